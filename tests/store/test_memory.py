"""What only the memory store has: watchers in its own process, and nothing that is left from before."""

from __future__ import annotations

import pytest

from onward.store.memory.adapter import MemoryDatabase
from onward.store.memory.state import WORKER_RENEW_S
from onward.store.port.log import Position
from onward.store.port.retention import Filling
from tests.conformance.drafts import queued

pytestmark = pytest.mark.anyio


async def test_a_watcher_hears_of_a_run_that_becomes_due_until_it_leaves() -> None:
    database, heard = MemoryDatabase(), list[str]()
    watching, other = database.connect(), database.connect()
    unwatch = await watching.watch(lambda: heard.append("due"))
    await queued(other)
    assert heard != []
    await unwatch()
    heard.clear()
    await queued(other)
    assert heard == []


@pytest.mark.parametrize(("lease_s", "renew_s"), [(None, WORKER_RENEW_S), (30.0, 10.0)])
async def test_a_worker_renews_three_times_in_a_lease(lease_s: float | None, renew_s: float) -> None:
    assert MemoryDatabase().connect(lease_s).workers.renew_s == renew_s


async def test_there_is_nothing_to_fill_in_from_an_earlier_version() -> None:
    backfill = MemoryDatabase().connect().backfill
    assert await backfill.missing() == ()
    assert await backfill.fill(Filling("gone", Position(1, b""), None, ()))
    await backfill.skip("gone")
    assert await backfill.missing() == ()
