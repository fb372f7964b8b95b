"""Deciding without executing: the decision is committed, the run is queued, and a worker executes it."""

from __future__ import annotations

from typing import Any

import pytest

from onward.engine.control.requests import Resume
from onward.engine.stop import StopSwitch
from onward.errors import Refused
from onward.model.result import Result
from onward.model.run import RunStatus
from tests.engine.test_resume_doors import crashed
from tests.test_pause import GATED
from tests.world import Process, World, line


async def work(process: Process) -> RunStatus:
    """Take the run whose turn it is, as a worker does, and execute it until it stops."""
    taken = await process.engine.take(StopSwitch())
    assert taken is not None
    return (await taken[1]).run.status


async def queued(world: World, **how: Any) -> Process:
    """Resume the run from a process that has no handlers at all, and leave it to the workers."""
    process = await world.process(handlers={})
    folded = await process.engine.resume("run", Resume(run=False, **how))
    assert (folded.run.status, folded.run.worker) == (RunStatus.QUEUED, None)
    assert (await process.shown())["holder"] is None
    return process


async def test_a_resume_is_decided_here_and_executed_by_a_worker(world: World) -> None:
    """The process that decides needs no handlers; the step that was cut off is executed once more."""
    await crashed(world, line("a", "b"))
    await queued(world)
    assert world.ledger.steps == ["a#1"]
    worker = await world.process()
    assert await work(worker) is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "a#1", "b#1"]
    assert await worker.is_sound()


@pytest.mark.parametrize(("action", "steps"), [("retry", ["a#1", "a#1", "b#1"]), ("skip", ["a#1", "b#1"])])
async def test_a_stopped_step_is_decided_here_and_the_rest_left_to_a_worker(
    world: World, action: str, steps: list[str]
) -> None:
    process = await world.process({"a": [Result.fail("no")]})
    assert (await process.start(line("a", "b"))).status is RunStatus.FAILED
    await queued(world, action=action)
    assert await work(await world.process()) is RunStatus.COMPLETED
    assert world.ledger.steps == steps


async def test_a_queued_run_stays_queued_and_nothing_is_written(world: World) -> None:
    await crashed(world, line("a"))
    process = await queued(world)
    before = await process.log()
    await queued(world)
    assert await process.log() == before


async def test_a_run_in_living_hands_is_not_queued(world: World) -> None:
    process = await world.process()
    await process.start(GATED)
    with pytest.raises(Refused, match="waits for an answer"):
        await process.engine.resume("run", Resume(run=False))


async def test_an_answer_is_decided_here_and_executed_by_a_worker(world: World) -> None:
    await (await world.process()).start(GATED)
    process = await world.process(handlers={})
    folded = await process.engine.answer("run", "yes", by="ann", run=False)
    assert folded.run.status is RunStatus.QUEUED
    assert await work(await world.process()) is RunStatus.COMPLETED
