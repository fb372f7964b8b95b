"""Verifying a run that is at work: what it writes meanwhile is no damage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from onward.read.verify import verify_run
from onward.store.port.log import Loaded, RunLog
from onward.store.port.store import Store
from onward.testing.drafts import held, stepped
from onward.testing.faults import Around, FaultyStore

pytestmark = pytest.mark.anyio


class Growing(Around[RunLog]):
    """A log in which something happens right after a run was loaded for the first time."""

    def __init__(self, part: RunLog, store: FaultyStore, happens: Callable[[], Awaitable[object]]) -> None:
        super().__init__(part, store)
        self._happens: Callable[[], Awaitable[object]] | None = happens

    async def load(self, run_id: str, *, fold_version: int) -> Loaded | None:
        loaded = await self.part.load(run_id, fold_version=fold_version)
        happens, self._happens = self._happens, None
        if happens is not None:
            await happens()
        return loaded


async def test_a_log_that_grows_while_it_is_verified_is_sound(store: Store, other: Store) -> None:
    run = await stepped(store, await held(store), times=3)
    growing = FaultyStore(other, log=partial(Growing, happens=lambda: stepped(store, run)))
    verified = await verify_run(growing, run.id)
    assert (verified.problems, verified.events) == ((), run.position.seq)
    assert (await verify_run(other, run.id)).events == run.position.seq + 2
