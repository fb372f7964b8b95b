"""Stopping on request: at the next boundary, or now; by a signal, or by another process; never half."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from onward.engine.control.requests import AutoApprove, StartRequest
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput, Refused
from onward.handlers.port import StepContext
from onward.model.events import (
    AttemptInterrupted,
    Event,
    PauseRequested,
    RunCancelled,
    RunPaused,
    StepStarted,
)
from onward.model.result import Result
from onward.model.run import AttemptState, Run, RunStatus
from onward.testing.clock import ManualClock
from tests.conformance.handlers import Act, Doorway
from tests.world import World, line

GATED = """digraph gated {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  ask [shape=hexagon, label="Ship it?"]
  work [prompt="do it"]
  start -> work -> ask
  ask -> exit [label="[Y] yes"]
  ask -> work [label="[N] no"]
}"""


def pressing_ctrl_c(stop: StopSwitch, result: Result | None = None) -> Act:
    async def act(step: StepContext) -> Result:
        stop.request("signal")
        return result or Result.success()

    return act


def test_a_reason_that_no_run_could_be_resumed_from_is_refused() -> None:
    """A run that was paused for an unknown reason could not be resumed."""
    stop = StopSwitch()
    with pytest.raises(
        InvalidInput, match="'deploy' is not a valid reason to stop runs; use one of drain, signal"
    ):
        stop.request("deploy")
    assert stop.reason is None


async def test_graceful_pause(world: World) -> None:
    """S3-6: a signal during a step: the step finishes, its checkpoint is saved, the run is paused. K16."""
    stop = StopSwitch()
    process = await world.process({"b": [pressing_ctrl_c(stop, Result.success(found="it"))]})
    run = await process.start(line("a", "b", "c"), stop=stop)
    assert (run.status, run.reason) == (RunStatus.PAUSED, "signal")
    assert world.ledger.steps == ["a#1", "b#1"]
    assert run.context["found"] == "it"
    assert (await process.kinds())[-2:] == ["StepFinished", "RunPaused"]
    assert (await process.checkpoints())[-1]["next_node_id"] == "c"
    assert (await process.load()).holder is None
    assert await process.is_sound()


async def test_graceful_pause_lets_a_long_step_finish(world: World) -> None:
    """B1-3."""
    door, stop = Doorway(), StopSwitch()
    process = await world.process({"b": [door]})
    driving = asyncio.create_task(process.start(line("a", "b", "c"), stop=stop))
    await door.entered()
    stop.request("signal")
    door.open()
    assert (await driving).status is RunStatus.PAUSED
    assert not door.was_cancelled
    assert await process.completed() == ["start#1", "a#1", "b#1"]


async def test_a_second_signal_stops_now_and_keeps_the_attempt_open(world: World) -> None:
    """O14."""
    door, stop = Doorway(), StopSwitch()
    process = await world.process({"b": [door]})
    driving = asyncio.create_task(process.start(line("a", "b", "c"), stop=stop))
    await door.entered()
    stop.request("signal")
    stop.request("signal")
    run = await driving
    assert (run.status, run.reason) == (RunStatus.PAUSED, "signal")
    assert door.was_cancelled
    assert (await process.kinds())[-2:] == ["AttemptInterrupted", "RunPaused"]
    assert run.open_steps["b#1"].state is AttemptState.INTERRUPTED
    again = await world.process()
    assert (await again.resume()).status is RunStatus.COMPLETED
    assert world.ledger.attempts("b") == [1, 1], "a step that was cut off keeps its attempt's number"


async def test_a_signal_whose_grace_time_is_over_stops_now(world: World) -> None:
    clock = ManualClock(autojump=False)
    door, stop = Doorway(), StopSwitch(grace_s=30, clock=clock)
    process = await world.process({"b": [door]})
    driving = asyncio.create_task(process.start(line("a", "b", "c"), stop=stop))
    await door.entered()
    stop.request("signal")
    clock.advance(29)
    await asyncio.sleep(0)
    assert not stop.is_now
    clock.advance(1)
    assert (await driving).status is RunStatus.PAUSED
    assert door.was_cancelled


async def test_a_stop_that_comes_while_a_start_is_written_begins_no_effect(world: World) -> None:
    """Both signals arrive between the plan for a step and its effect: the effect never happens."""
    stop = StopSwitch()

    def interfere(run: Run, events: Sequence[Event]) -> None:
        if any(isinstance(event, StepStarted) and event.node == "b" for event in events):
            stop.request("signal")
            stop.request("signal")

    process = await world.process(observe=interfere)
    run = await process.start(line("a", "b", "c"), stop=stop)
    assert run.status is RunStatus.PAUSED
    assert world.ledger.steps == ["a#1"]
    assert (await (await world.process()).resume()).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1", "c#1"]


async def test_a_signal_before_the_first_step_pauses_before_it(world: World) -> None:
    stop = StopSwitch()
    stop.request("signal")
    process = await world.process()
    run = await process.start(line("a"), stop=stop)
    assert run.status is RunStatus.PAUSED
    assert world.ledger.steps == []
    assert (await (await world.process()).resume()).status is RunStatus.COMPLETED


async def test_a_signal_during_the_last_step_lets_the_run_finish(world: World) -> None:
    stop = StopSwitch()
    process = await world.process({"b": [pressing_ctrl_c(stop)]})
    assert (await process.start(line("a", "b"), stop=stop)).status is RunStatus.COMPLETED


async def test_a_signal_during_a_back_off_does_not_wait_for_its_end(world: World) -> None:
    """K15, O14."""
    clock, stop = ManualClock(autojump=False), StopSwitch()
    process = await world.process({"a": [Result.retry("later"), Result.success()]}, clock=clock)
    driving = asyncio.create_task(process.start(line("a", a="max_retries=3"), stop=stop))
    await clock.until_waiting(2)  # the heartbeat, and the back-off
    stop.request("signal")
    run = await driving
    assert (run.status, run.reason) == (RunStatus.PAUSED, "signal")
    assert run.open_steps["a#1"].state is AttemptState.RETRYING
    assert world.ledger.attempts("a") == [1]
    assert (await (await world.process()).resume()).status is RunStatus.COMPLETED
    assert world.ledger.attempts("a") == [1, 2]


async def test_a_resume_waits_out_the_rest_of_a_back_off(world: World) -> None:
    clock, stop = ManualClock(autojump=False), StopSwitch()
    process = await world.process({"a": [Result.retry("later")]}, clock=clock)
    driving = asyncio.create_task(process.start(line("a", a="max_retries=3"), stop=stop))
    await clock.until_waiting(2)
    stop.request("signal")
    retry_at_us = (await driving).open_steps["a#1"].retry_at_us
    again = await world.process()
    run = await again.resume()
    assert run.status is RunStatus.COMPLETED
    assert retry_at_us is not None
    started = [record for record in await again.log() if record.kind == "StepStarted"]
    assert started[-1].at_us >= retry_at_us


async def test_a_signal_at_a_gate_leaves_the_run_waiting(world: World) -> None:
    stop = StopSwitch()
    process = await world.process()
    folded = await process.engine.start(process.pipeline(GATED), _start("run"), stop)
    stop.request("signal")
    folded = await process.engine.attend(folded, AutoApprove(), stop)
    assert folded.run.status is RunStatus.WAITING
    assert list(folded.run.gates) == ["ask#1"]


def _start(run_id: str) -> StartRequest:
    return StartRequest(run_id=run_id)


@pytest.mark.parametrize("after", ["step", "call"])
async def test_another_process_can_ask_for_a_pause_during_a_long_step(world: World, after: str) -> None:
    """O14."""
    door = Doorway()
    process, other = await world.process({"b": [door]}), await world.process()
    driving = asyncio.create_task(process.start(line("a", "b", "c")))
    await door.entered()
    asked = await other.engine.pause("run", after=after, by="ann")
    assert asked.run.status is RunStatus.RUNNING
    door.open()
    run = await driving
    assert (run.status, run.reason, run.detail) == (RunStatus.PAUSED, "operator", "asked by ann")
    assert not door.was_cancelled
    assert world.ledger.steps == ["a#1", "b#1"]


async def test_another_process_can_end_a_long_step_now(world: World) -> None:
    """K15, O14. The heartbeat tells a holder inside a long step that the log has grown. H4."""
    door = Doorway()
    process, other = await world.process({"b": [door]}), await world.process()
    driving = asyncio.create_task(process.start(line("a", "b", "c")))
    await door.entered()
    await other.engine.pause("run", after="now", by="ann")
    run = await driving
    assert (run.status, run.reason) == (RunStatus.PAUSED, "operator")
    assert door.was_cancelled
    (cut,) = [event for event in await process.events() if isinstance(event, AttemptInterrupted)]
    assert (cut.step, cut.why) == ("b#1", "paused by ann")
    assert (await (await world.process()).resume()).status is RunStatus.COMPLETED


async def test_another_process_can_ask_for_a_pause_during_a_back_off(world: World) -> None:
    """K15, O14."""
    clock = ManualClock(autojump=False)
    process = await world.process({"a": [Result.retry("later")]}, clock=clock)
    other = await world.process()
    driving = asyncio.create_task(process.start(line("a", a="max_retries=3, retry_policy=patient")))
    await clock.until_waiting(2)
    await other.engine.pause("run", by="ann")
    clock.advance(process.store.leases.heartbeat_s)
    run = await driving
    assert (run.status, run.reason) == (RunStatus.PAUSED, "operator")
    assert world.ledger.attempts("a") == [1]


async def test_a_cancel_ends_the_step_and_closes_everything_in_one_append(world: World) -> None:
    door = Doorway()
    process, other = await world.process({"b": [door]}), await world.process()
    driving = asyncio.create_task(process.start(line("a", "b", "c")))
    await door.entered()
    await other.engine.cancel("run", by="ann")
    run = await driving
    assert (run.status, run.reason, run.is_final) == (RunStatus.CANCELLED, "user", True)
    assert door.was_cancelled
    assert run.open_steps == {}
    *_, closed, cancelled = await process.events()
    assert isinstance(closed, AttemptInterrupted)
    assert isinstance(cancelled, RunCancelled)
    assert cancelled.by == "ann"
    with pytest.raises(Refused, match="cannot be resumed"):
        await other.resume()


async def test_a_cancel_beats_a_pause_that_was_asked_before(world: World) -> None:
    """H10."""
    door = Doorway()
    process, other = await world.process({"b": [door]}), await world.process()
    driving = asyncio.create_task(process.start(line("a", "b", "c")))
    await door.entered()
    await other.engine.pause("run")
    await other.engine.cancel("run")
    assert (await driving).status is RunStatus.CANCELLED


async def test_a_step_that_fails_while_a_pause_is_asked_stops_as_paused(world: World) -> None:
    """Every stop honours a pending pause; the failed step is tried again on resume. H10."""
    door = Doorway(Result.fail("no", retryable=False))
    process, other = await world.process({"a": [door, Result.success()]}), await world.process()
    driving = asyncio.create_task(process.start(line("a")))
    await door.entered()
    await other.engine.pause("run", by="ann")
    door.open()
    run = await driving
    assert (run.status, run.reason) == (RunStatus.PAUSED, "operator")
    assert (await process.resume()).status is RunStatus.COMPLETED


async def test_asking_again_for_a_pause_changes_nothing(world: World) -> None:
    """H3."""
    door = Doorway()
    process, other = await world.process({"a": [door]}), await world.process()
    driving = asyncio.create_task(process.start(line("a", "b")))
    await door.entered()
    first = await other.engine.pause("run", by="ann")
    assert (await other.engine.pause("run", by="bob")).position == first.position
    assert (await other.engine.pause("run", after="now", by="bob")).position.seq == first.position.seq + 1
    run = await driving
    asked = [event for event in await process.events() if isinstance(event, PauseRequested)]
    assert [(event.after, event.by) for event in asked] == [("step", "ann"), ("now", "bob")]
    assert (await other.engine.pause("run")).position == (await process.load()).position
    assert run.status is RunStatus.PAUSED


async def test_a_waiting_run_is_paused_at_once_and_its_question_survives(world: World) -> None:
    process, other = await world.process(), await world.process()
    assert (await process.start(GATED)).status is RunStatus.WAITING
    paused = (await other.engine.pause("run", by="ann")).run
    assert (paused.status, paused.reason) == (RunStatus.PAUSED, "operator")
    again = await other.resume()
    assert again.status is RunStatus.WAITING
    assert list(again.gates) == ["ask#1"]
    answered = await other.engine.answer("run", "yes", by="bob")
    assert answered.run.status is RunStatus.COMPLETED


async def test_a_queued_run_is_paused_at_once(world: World) -> None:
    process = await world.process()
    await process.engine.submit(process.pipeline(line("a")), _start("run"))
    assert (await process.engine.pause("run")).run.status is RunStatus.PAUSED
    assert (await process.kinds())[-1] == RunPaused.__name__


async def test_a_run_whose_owner_died_is_paused_at_once_by_a_claim(world: World) -> None:
    """The stop of a dead owner's run is itself a claim, so the owner is fenced if it only slept. H19."""
    door = Doorway()
    process, other = await world.process({"a": [door]}), await world.process()
    driving = asyncio.create_task(process.start(line("a")))
    await door.entered()
    await process.die()
    paused = (await other.engine.pause("run")).run
    assert (paused.status, paused.token) == (RunStatus.PAUSED, 2)
    assert (await other.kinds())[-2:] == ["RunClaimed", "RunPaused"]
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)


async def test_a_run_whose_owner_died_is_cancelled_at_once_and_left_without_open_attempts(
    world: World,
) -> None:
    """A final status closes open attempts in the same append. H11."""
    door = Doorway()
    process, other = await world.process({"a": [door]}), await world.process()
    driving = asyncio.create_task(process.start(line("a")))
    await door.entered()
    await process.die()
    cancelled = (await other.engine.cancel("run")).run
    assert (cancelled.status, cancelled.token, cancelled.open_steps) == (RunStatus.CANCELLED, 2, {})
    assert (await other.kinds())[-3:] == ["RunClaimed", "AttemptInterrupted", "RunCancelled"]
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)


@pytest.mark.parametrize("run_id", ["completed", "failed"])
async def test_a_run_that_has_ended_cannot_be_paused(world: World, run_id: str) -> None:
    process = await world.process({"b": [Result.fail("no")]})
    await process.start(line("a" if run_id == "completed" else "b"), run_id)
    before = await process.load(run_id)
    with pytest.raises(Refused) as refused:
        await process.engine.pause(run_id)
    assert refused.value.code == "invalid_state"
    assert await process.load(run_id) == before
