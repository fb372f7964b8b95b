"""Requests that reach the log just before a stop is written: every stop honours a cancel, then a pause."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from onward.engine.control.requests import StartRequest
from onward.engine.stop import StopSwitch
from onward.model.result import Result
from onward.model.run import RunStatus
from onward.store.port.leases import Lease
from onward.store.port.log import RunLog, Write
from onward.store.port.runs import RunQuery
from tests.conformance.faults import Around, FaultyStore
from tests.engine.test_restart import AGAIN, chain_of, counting
from tests.world import Process, Script, World, line

_ALL = RunQuery(limit=100)
ENDS = {"cancel": (RunStatus.CANCELLED, "user"), "pause": (RunStatus.PAUSED, "operator")}


class Overtaken(Around[RunLog]):
    """A log in which somebody else's request comes before the first append that holds such an event."""

    def __init__(
        self, part: RunLog, store: FaultyStore, kind: str, request: Callable[[], Awaitable[object]]
    ) -> None:
        super().__init__(part, store)
        self._kind, self._request, self.was_overtaken = kind, request, False

    async def append(self, write: Write, lease: Lease) -> None:
        if not self.was_overtaken and self._kind in [record.kind for record in write.records]:
            self.was_overtaken = True
            await self._request()
        await self.part.append(write, lease)


async def overtaken(world: World, asking: Process, request: str, kind: str) -> Process:
    """A process whose first `kind` is overtaken by a request of somebody else."""

    def log(part: RunLog, store: FaultyStore) -> Overtaken:
        return Overtaken(part, store, kind, lambda: getattr(asking.engine, request)("run", by="ann"))

    script: Script = {"a": [Result.retry("not yet")], "work": [counting()]}
    return await world.process(script, wrap=partial(FaultyStore, log=log))


@pytest.mark.parametrize("request_", ENDS)
async def test_a_run_that_is_handed_back_for_a_long_wait_honours_what_was_asked(
    world: World, request_: str
) -> None:
    """Else it would be queued until its next attempt, and nobody would look at the request before. H10."""
    asking = await world.process()
    process = await overtaken(world, asking, request_, "RunQueued")
    source = line("a", a='retry_policy="patient", max_retries=9')
    await process.engine.submit(process.pipeline(source), StartRequest(run_id="run", on_owner_loss="requeue"))
    taken = await process.engine.take(StopSwitch())
    assert taken is not None
    ended = (await taken[1]).run
    assert isinstance(process.store.log, Overtaken)
    assert process.store.log.was_overtaken
    assert (ended.status, ended.reason) == ENDS[request_]
    assert "RunQueued" not in await process.kinds()
    assert await process.is_sound()


async def test_a_run_that_is_cancelled_while_it_restarts_takes_the_new_run_with_it(world: World) -> None:
    """H10."""
    asking = await world.process()
    process = await overtaken(world, asking, "cancel", "RunCompleted")
    ended = await process.start(AGAIN)
    assert (ended.id, ended.status, ended.reason) == ("run", *ENDS["cancel"])
    (successor,) = [one.row for one in await process.store.runs.list(_ALL) if one.row.id != "run"]
    assert successor.status is RunStatus.CANCELLED
    assert world.ledger.steps == ["plan#1", "work#1"]


async def test_a_run_that_is_paused_while_it_restarts_becomes_the_same_run_when_it_goes_on(
    world: World,
) -> None:
    asking = await world.process({"work": [counting()]})
    process = await overtaken(world, asking, "pause", "RunCompleted")
    ended = await process.start(AGAIN)
    assert (ended.id, ended.status, ended.reason) == ("run", *ENDS["pause"])
    assert world.ledger.steps == ["plan#1", "work#1"]
    assert (await asking.resume()).status is RunStatus.COMPLETED
    assert [run.restarts for run in await chain_of(asking, "run")] == [0, 1, 2]
    assert len(await asking.store.runs.list(_ALL)) == 3
