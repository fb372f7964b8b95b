"""Runner a run: what is on disk before an effect begins, what becomes of its end, and where it leads."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from onward.engine.stop import StopSwitch
from onward.errors import StoreError
from onward.handlers.port import StepContext
from onward.model.events import AttemptFailed, StepStatus
from onward.model.result import Result
from onward.model.run import RunStatus
from onward.store.port.log import RunLog
from tests.conformance.faults import Around, Fault, FaultyStore
from tests.engine.test_resume_doors import crashed
from tests.world import World, line


async def test_an_attempt_is_on_disk_before_its_work_begins(world: World) -> None:
    """O1: the number of the attempt is stored before the effect, not after it."""
    witness, seen = await world.process(), []

    async def look(step: StepContext) -> Result:
        opened = (await witness.load(step.run_id)).run.open_steps[step.step]
        seen.append((opened.step, opened.attempt, step.attempt))
        return Result.retry("again") if step.attempt < 3 else Result.success()

    process = await world.process({"a": [look]})
    await process.start(line("a", a="max_retries=5"))
    assert seen == [("a#1", 1, 1), ("a#1", 2, 2), ("a#1", 3, 3)]


async def test_a_step_and_the_start_of_the_next_are_one_append(world: World) -> None:
    """One commit per step: what finished, the chosen edge, and what begins behind it."""
    process = await world.process()
    await process.start(line("a", "b", "c"))
    assert process.store.calls.count("log.append") == 3
    assert process.store.calls.count("log.create") == 1


async def test_a_crash_inside_a_step_repeats_only_that_step_and_keeps_its_number(world: World) -> None:
    """K2: a crash keeps the attempt's number and spends none of `max_retries`. H15."""
    await crashed(world, line("a", "b", "c", b="max_retries=1"), at="b")
    process = await world.process({"b": [Result.retry("once"), Result.success()]})
    assert (await process.resume()).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1", "b#1", "b#1", "c#1"]
    assert world.ledger.attempts("b") == [1, 1, 2]


async def test_an_effect_has_the_same_idempotency_key_on_every_attempt(world: World) -> None:
    await crashed(world, line("a", a="max_retries=2"))
    process = await world.process({"a": [Result.retry("once"), Result.success()]})
    await process.resume()
    assert {call.idempotency_key for call in world.ledger.calls} == {"run/a#1"}
    assert len(world.ledger.calls) == 3


class Odd(Exception):
    """An error of a user's own."""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("bad value"), "ValueError: bad value"),
        (Odd(), "Odd"),
        (KeyError("key"), "KeyError: 'key'"),
        (SystemExit(3), "SystemExit: 3"),
        (asyncio.CancelledError(), "the handler awaited something that was cancelled"),
    ],
)
async def test_an_error_of_a_handler_is_a_failure_of_its_step(
    world: World, error: BaseException, told: str
) -> None:
    """O2: whatever a handler raises, the run ends as failed and says why; nobody reads "running" for ever."""
    process = await world.process({"a": [error]})
    run = await process.start(line("a"))
    assert (run.status, run.reason, run.detail) == (RunStatus.FAILED, "step_failed", f"step a#1: {told}")
    assert (await process.load()).holder is None


class Panic(BaseException):
    """What libraries in other languages raise: not an Exception."""

    def __str__(self) -> str:
        raise RuntimeError("it cannot be printed, either")


async def test_what_a_handler_raises_that_goes_through_everything_frees_the_run(world: World) -> None:
    """Else a worker would hold it as long as it lives."""

    async def panic_once(step: StepContext) -> Result:
        if len(world.ledger.calls) == 1:
            raise Panic
        return Result.success()

    process = await world.process({"a": [panic_once]})
    with pytest.raises(Panic):
        await process.start(line("a"))
    assert (await process.resume()).status is RunStatus.COMPLETED
    assert world.ledger.attempts("a") == [1, 1]


async def test_an_error_of_a_handler_is_tried_again_like_any_failure(world: World) -> None:
    process = await world.process({"a": [ValueError("once"), Result.success()]})
    assert (await process.start(line("a", a="max_retries=1"))).status is RunStatus.COMPLETED


async def test_an_error_of_ours_is_not_worth_another_try(world: World) -> None:
    process = await world.process({"a": [StoreError("no"), Result.success()]})
    assert (await process.start(line("a", a="max_retries=5"))).status is RunStatus.FAILED
    assert world.ledger.attempts("a") == [1]


async def test_a_step_that_takes_too_long_is_ended_and_failed(world: World) -> None:
    cancelled: list[str] = []

    async def hang(step: StepContext) -> Result:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(step.step)
            raise
        return Result.success()

    process = await world.process({"a": [hang]})
    run = await process.start(line("a", a='timeout="5ms"'))
    assert run.detail == "step a#1: timed out after 0.005 s"
    assert cancelled == ["a#1"]


async def test_a_pause_is_not_a_failure_anywhere_in_the_log(world: World) -> None:
    """O15: a paused run has a status of its own, and no step of it failed."""
    stop = StopSwitch()
    stop.request("signal")
    process = await world.process()
    run = await process.start(line("a"), stop=stop)
    assert run.status is RunStatus.PAUSED
    assert not [event for event in await process.events() if isinstance(event, AttemptFailed)]
    assert "fail" not in str(await process.events()).lower()


async def test_a_stop_names_the_step_and_the_reason(world: World) -> None:
    process = await world.process({"b": [Result.fail("the moon is full", retryable=False)]})
    run = await process.start(line("a", "b"))
    assert (run.stopped_step, run.detail) == ("b#1", "step b#1: the moon is full")
    (failed,) = [event for event in await process.events() if isinstance(event, AttemptFailed)]
    assert (failed.status, failed.reason, failed.retry_at_us) == (StepStatus.FAIL, "the moon is full", None)


async def test_a_holder_that_finds_the_log_grown_plans_again(world: World) -> None:
    """Never appends blindly: the pause that came first is honoured by the very next append. H2."""
    other = await world.process()

    class Overtaken(Around[RunLog]):
        async def append(self, *arguments: Any) -> None:
            if self.store.calls.count("log.append") == 0:
                await other.engine.pause("run", by="ann")
            await self.part.append(*arguments)

    process = await world.process(wrap=partial(FaultyStore, log=Overtaken))
    run = await process.start(line("a", "b"))
    assert (run.status, run.reason) == (RunStatus.PAUSED, "operator")
    assert world.ledger.steps == ["a#1"]
    kinds = await process.kinds()
    assert kinds[-3:] == ["PauseRequested", "StepFinished", "RunPaused"]
    assert "StepStarted" not in kinds[kinds.index("PauseRequested") :]


async def test_a_run_whose_task_is_cancelled_counts_as_crashed_and_goes_on(world: World) -> None:
    """Cancellation counts as a crash: nothing that correctness needs happens in a `finally`."""
    started = asyncio.Event()

    async def hang(step: StepContext) -> Result:
        started.set()
        await asyncio.Event().wait()
        return Result.success()

    process = await world.process({"b": [hang]})
    driving = asyncio.create_task(process.start(line("a", "b")))
    await started.wait()
    process.store.fail(Fault.REFUSE, times=1_000_000)  # not even a word can be said to the store
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    await process.die()
    assert (await (await world.process()).resume()).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1", "b#1"]
