"""A claim whose connection breaks is made again from the beginning, and what it first saw is forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from onward.clock import SystemClock
from onward.engine.journal import Journal
from onward.engine.log import Folded
from onward.machine.decide.requests import HolderView, decide_claim
from onward.model.events import Event
from onward.store.port.log import TakeFilter
from onward.store.postgres.adapter import PostgresStore
from onward.store.postgres.connection import ConnectionLost
from onward.store.postgres.pool import Wire
from tests.conformance.drafts import creation

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]
WANTED = TakeFilter()


class Breaking:
    """A writer whose connection breaks the first time that it claims, and whom another one beats then."""

    def __init__(self, writer: Any, rival: PostgresStore) -> None:
        self._writer, self._rival = writer, rival
        self.taken: Folded | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    async def write(self, wire: Wire, *rest: Any) -> Any:
        if self.taken is not None:
            return await self._writer.write(wire, *rest)
        wire.close("the cable was pulled")
        while self.taken is None:  # the server gives the row free when it has noticed
            self.taken = await take(self._rival)
        raise ConnectionLost("the cable was pulled")


async def take(store: PostgresStore) -> Folded | None:
    def decide(current: Folded) -> Sequence[Event]:
        return decide_claim(current.run, HolderView(None, False, store.leases.owner))

    def damaged(run_id: str, error: Exception) -> None:
        raise AssertionError(error)

    return await Journal(store.log, SystemClock()).take(WANTED, decide, damaged)


async def test_a_run_that_another_took_meanwhile_is_not_driven(postgres_emptied_url: str) -> None:
    ours, theirs = [await PostgresStore.open(postgres_emptied_url) for _ in range(2)]
    try:
        write, _ = creation("run")
        await ours.log.create(write, "created")
        breaking = Breaking(ours.log._writer, theirs)
        ours.log._writer = breaking  # type: ignore[assignment]
        assert await take(ours) is None
        assert breaking.taken is not None
    finally:
        await ours.close()
        await theirs.close()
