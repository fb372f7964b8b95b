"""Verifying a run that is at work: what it writes meanwhile is no damage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import pytest

from onward.model.row import GateRow
from onward.operations.here.verify import verify_run
from onward.store.port.log import Loaded, RunLog
from onward.store.port.runs import Gates
from onward.store.port.store import Store
from tests.conformance.drafts import held, stepped
from tests.conformance.faults import Around, FaultyStore
from tests.conformance.questions import asked

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


class Asking(Around[Gates]):
    """Gates of which another one is opened right after they were read for the first time."""

    def __init__(self, part: Gates, store: FaultyStore, happens: Callable[[], Awaitable[object]]) -> None:
        super().__init__(part, store)
        self._happens: Callable[[], Awaitable[object]] | None = happens

    async def of(self, run_id: str) -> Sequence[GateRow]:
        found = await self.part.of(run_id)
        happens, self._happens = self._happens, None
        if happens is not None:
            await happens()
        return found


async def test_a_run_that_asks_while_it_is_verified_is_sound(store: Store, other: Store) -> None:
    run = await asked(store, await held(store))
    asking = FaultyStore(other, gates=partial(Asking, happens=lambda: asked(store, run, "ask#2")))
    assert (await verify_run(asking, run.id)).problems == ()
    assert len(await other.gates.of(run.id)) == 2
