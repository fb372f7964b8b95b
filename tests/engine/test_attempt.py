"""One attempt, and ending it from outside: a stop, a real cancellation and a result are never mistaken."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from onward.engine.attempt import AttemptRunner, Interrupted
from onward.engine.log import applied
from onward.engine.loop import AttemptTasks
from onward.handlers.port import Postponed, StepContext
from onward.handlers.room import Room
from onward.model.events import RunClaimed, RunCreated, StepStarted
from onward.model.result import Result
from onward.pipeline.build import build
from onward.testing.clock import ManualClock
from tests.conformance.handlers import Act, Doorway, Scripted
from tests.world import line


def step_context(attrs: str = "") -> StepContext:
    pipeline = build(line("a", a=attrs), file="<test>")
    begun = StepStarted(step="a#1", node="a", attempt=1)
    created = RunCreated(pipeline="p", pipeline_hash=pipeline.hash, start_node="start", version="1")
    run, _ = applied(None, (created, RunClaimed(token=1, worker="me"), begun), run_id="run", at_us=1)
    return StepContext(run, begun, pipeline.graph, room=Room(), stopping=asyncio.Event())


def performing(runner: AttemptRunner, act: Act, attrs: str = "") -> asyncio.Task[Result | Interrupted]:
    return asyncio.create_task(runner.run(Scripted({"a": [act]}), step_context(attrs)))


async def test_an_attempt_that_is_ended_says_why() -> None:
    runner, door = AttemptRunner(ManualClock()), Doorway()
    task = performing(runner, door)
    await door.entered()
    runner.interrupt("enough")
    runner.interrupt("too late to be the reason")
    assert await task == Interrupted("enough")
    assert task.cancelling() == 0, "nothing of it is left in the task"


async def test_an_interruption_without_an_attempt_is_nothing() -> None:
    runner = AttemptRunner(ManualClock())
    runner.interrupt("nobody is here")
    assert await performing(runner, Result.success(x=1)) == Result.success(x=1)


async def test_an_effect_beside_others_can_be_ended_before_it_has_begun() -> None:
    """Between the record of its start and the effect another branch may win, or somebody cancel the run."""
    done, agent = asyncio.Event(), Scripted()
    tasks: AttemptTasks[Result | Interrupted] = AttemptTasks(done, ManualClock())
    tasks.start("a#1", lambda runner: runner.run(agent, step_context()))
    tasks.interrupt("another was first", ["a#1"])
    await done.wait()
    assert (tasks.take_done(), agent.ledger.calls) == ([Interrupted("another was first")], [])


async def test_a_real_cancellation_goes_through() -> None:
    runner, door = AttemptRunner(ManualClock()), Doorway()
    task = performing(runner, door)
    await door.entered()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_real_cancellation_beside_an_interruption_goes_through_too() -> None:
    runner, door = AttemptRunner(ManualClock()), Doorway()
    task = performing(runner, door)
    await door.entered()
    runner.interrupt("enough")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_result_that_was_there_first_is_kept() -> None:
    """Finished work is never repeated: an interruption from within comes too late, and does no harm later."""
    runner = AttemptRunner(ManualClock())

    async def interrupt_and_finish(step: StepContext) -> Result:
        runner.interrupt("enough")
        return Result.success(done=True)

    async def perform_and_go_on() -> tuple[Result | Interrupted, str]:
        result = await runner.run(Scripted({"a": [interrupt_and_finish]}), step_context())
        await asyncio.sleep(0)  # the next thing that its driver waits for
        return result, "went on"

    assert await perform_and_go_on() == (Result.success(done=True), "went on")


async def test_a_handler_that_finishes_in_spite_of_it_is_believed() -> None:
    runner, entered = AttemptRunner(ManualClock()), asyncio.Event()

    async def stubborn(step: StepContext) -> Result:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return Result.success(saved="in time")
        return Result.success()

    task = performing(runner, stubborn)
    await entered.wait()
    runner.interrupt("enough")
    assert await task == Result.success(saved="in time")
    assert task.cancelling() == 0


async def test_an_attempt_after_an_interrupted_one_is_not_interrupted() -> None:
    runner, door = AttemptRunner(ManualClock()), Doorway()

    async def both() -> list[Result | Interrupted]:
        first = await runner.run(Scripted({"a": [door]}), step_context())
        second = await runner.run(Scripted({"a": [Result.success()]}), step_context())
        return [first, second]

    task = asyncio.create_task(both())
    await door.entered()
    runner.interrupt("enough")
    assert await task == [Interrupted("enough"), Result.success()]


async def test_a_time_limit_and_an_interruption_are_told_apart() -> None:
    runner, door = AttemptRunner(ManualClock()), Doorway()
    task = performing(runner, door, 'timeout="1h"')
    await door.entered()
    runner.interrupt("enough")
    assert await task == Interrupted("enough")
    hanging = await performing(AttemptRunner(ManualClock()), Doorway(), 'timeout="1ms"')
    assert hanging == replace(Result.fail("timed out after 0.001 s"), keeps_calls=True)


async def test_a_time_out_of_a_handlers_own_is_an_error_like_any_other() -> None:
    result = await performing(AttemptRunner(ManualClock()), TimeoutError("the other side"), 'timeout="1h"')
    assert result == replace(Result.fail("TimeoutError: the other side"), keeps_calls=True)


async def test_a_handler_may_put_its_step_off_only_when_it_was_asked_to_stop() -> None:
    """An attempt that ends as asked is no failure; one that nobody asked to end is."""
    step, patient = step_context(), Scripted({"a": [Postponed("later")]})
    refused = await AttemptRunner(ManualClock()).run(patient, step)
    assert isinstance(refused, Result)
    assert (refused.retryable, "without a request" in refused.failure_reason) == (False, True)
    step.stopping.set()
    assert await AttemptRunner(ManualClock()).run(patient, step) == Interrupted("later")
