"""The one writer of a held run: what it writes is decided from the run as it is when it is written."""

from __future__ import annotations

import asyncio

import pytest

from onward.engine.appender import Appender
from onward.engine.claims import NOBODY, Hold
from onward.engine.control.requests import StartRequest
from onward.engine.stop import StopSwitch
from onward.errors import LeaseLost
from onward.machine.definition import Definition
from onward.machine.plan.action import Execute, Stop, Wait
from onward.machine.plan.results import AttemptEnded
from onward.model.result import Result
from onward.model.run import RunStatus
from tests.world import Process, World, line

FAN = """digraph fan {
  start [shape=Mdiamond]; exit [shape=Msquare]
  fan [shape=component]; join [shape=tripleoctagon]
  a [prompt="do it"]; b [prompt="do it"]
  start -> fan; fan -> a -> join; fan -> b -> join; join -> exit
}"""


@pytest.fixture
async def process(world: World) -> Process:
    return await world.process()


async def held(process: Process, source: str) -> Appender:
    """The appender of a run that `process` has just claimed."""
    pipeline = process.pipeline(source)
    await process.engine.submit(pipeline, StartRequest(run_id="run"))
    taken = await process.engine.take(StopSwitch())
    assert taken is not None
    folded, execution = taken
    execution.close()  # type: ignore[attr-defined]  # this test is the run loop
    ports = process.engine._runner.parts
    hold: Hold = ports.keeper.hold(folded.lease, NOBODY, claimed_s=process.clock.awake_s())
    return Appender(ports, Definition(pipeline.graph), folded, hold, StopSwitch(), lambda pending: None)


def done(step: str) -> list[AttemptEnded]:
    return [AttemptEnded(step, Result.success(), 0.5)]


async def test_writers_of_one_run_take_turns(process: Process) -> None:
    """Branches and, later, calls inside steps write at the same time: nobody decides from an old state."""
    appender = await held(process, FAN)
    begun = await appender.append()
    assert isinstance(begun, Wait)
    await asyncio.gather(*(appender.append(done(started.step)) for started in begun.starts))
    assert appender.run.status is RunStatus.COMPLETED
    assert appender.folded.position == (await process.load()).position
    assert await process.is_sound()


async def test_a_request_that_came_first_is_honoured_by_the_append_behind_it(
    process: Process, world: World
) -> None:
    appender = await held(process, line("a", "b"))
    begun = await appender.append()
    assert isinstance(begun, Execute)
    other = await world.process()
    await other.engine.pause("run", by="pat")
    stopped = await appender.append(done(begun.started.step))
    assert isinstance(stopped, Stop)
    assert (appender.run.status, appender.run.steps_finished) == (RunStatus.PAUSED, 2)


async def test_nothing_is_written_to_a_run_that_another_process_has_claimed(
    process: Process, world: World
) -> None:
    appender = await held(process, line("a", "b"))
    begun = await appender.append()
    assert isinstance(begun, Execute)
    other = await world.process()
    await other.resume(take_over=True)
    before = await other.kinds()
    with pytest.raises(LeaseLost):
        await appender.append(done(begun.started.step))
    assert await other.kinds() == before
