"""Every stop honours what was asked for, and crash loops come to an end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from onward.machine.decide.owner_loss import LOSSES_MAX
from onward.machine.plan.action import Stop
from onward.machine.plan.planner import DRAIN
from onward.machine.plan.results import WorkspaceUnusable, events_of
from onward.model.events import Event, RunCancelled, RunCompleted, RunPaused
from onward.model.result import Result
from onward.model.run import AttemptState, Pending, RunStatus
from tests.machine.play import ALIVE, NO_ONE, Play

TWO = "a [type=tool]; b [type=tool]; start -> a -> b -> exit"


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


def without_workspace(play: Play) -> Sequence[Event]:
    return events_of(play.definition, play.run, [WorkspaceUnusable("it is gone", has_begun=False)], now_us=0)


def test_owners_that_die_again_and_again_end_in_a_crash_loop() -> None:
    """Design §5: five losses in a row without a new checkpoint. H15."""
    play = Play(TWO)
    for _ in range(LOSSES_MAX - 1):
        play.claim()
    assert play.started.step == "a#1"
    play.claim()
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "crash_loop")
    assert "5 processes" in play.run.detail


def test_a_new_checkpoint_begins_the_count_of_losses_anew() -> None:
    """H15."""
    play = Play(TWO)
    for _ in range(LOSSES_MAX - 1):
        play.claim()
    play.succeed()
    for _ in range(LOSSES_MAX - 1):
        play.claim()
    assert play.started.step == "b#1"


def test_a_persons_resume_of_a_crash_loop_opens_a_new_allowance() -> None:
    play = Play(TWO)
    for _ in range(LOSSES_MAX):
        play.claim()
    play.resume(NO_ONE)
    assert (play.started.step, play.run.losses) == ("a#1", 0)


ONCE = "a [type=tool, repeatable=false, max_retries=1]; b [type=tool]; start -> a -> b -> exit"
Reach = Callable[[Play], object]
STOPS: dict[str, Reach] = {
    "the end of a step": lambda play: play.succeed(),
    "step_failed": lambda play: play.fail(),
    "in_doubt": lambda play: play.claim(),
    "a retry": lambda play: play.result(Result.retry("busy")),
    "crash_loop": lambda play: play.claim(),
}


def before_the_stop(name: str) -> Play:
    play = Play(TWO if name == "crash_loop" else ONCE)
    for _ in range(LOSSES_MAX - 1 if name == "crash_loop" else 0):
        play.claim()
    return play


@pytest.mark.parametrize("name", [name for name in STOPS if "_" in name])
def test_without_a_request_the_stop_is_what_it_is(name: str) -> None:
    play = before_the_stop(name)
    STOPS[name](play)
    assert play.run.reason == name


@pytest.mark.parametrize("name", STOPS)
def test_every_stop_honours_a_pending_cancel_first(name: str) -> None:
    """Design §3: cancel, then pause, then whatever the stop would have been. H10."""
    play = before_the_stop(name)
    play.pause(ALIVE)
    play.cancel(ALIVE)
    STOPS[name](play)
    assert (play.run.status, play.run.reason) == (RunStatus.CANCELLED, "user")
    assert play.last == RunCancelled(reason="user", by="kim")


@pytest.mark.parametrize("name", STOPS)
def test_every_stop_honours_a_pending_pause(name: str) -> None:
    """Design §3: a run that was asked to pause is paused, not failed or interrupted. H10."""
    play = before_the_stop(name)
    play.pause(ALIVE)
    STOPS[name](play)
    assert (play.run.status, play.run.reason) == (RunStatus.PAUSED, "operator")
    assert play.run.detail == "asked by pat"
    assert play.run.pending == Pending()


def test_a_failure_met_on_the_way_to_a_pause_is_tried_again_after_it() -> None:
    play = Play(TWO)
    play.pause(ALIVE)
    play.fail("no disk")
    assert play.run.open_steps["a#1"].state is AttemptState.FAILED
    play.resume(NO_ONE)
    assert (play.started.step, play.started.attempt) == ("a#1", 2)


@pytest.mark.parametrize("way_back", ["", "retry_target=a; max_reroutes=1;"])
def test_an_unmet_goal_honours_a_pending_pause(way_back: str) -> None:
    """Whether it has nowhere to go back to, or has gone back as often as it may."""
    play = Play(f"{way_back} a [type=tool, goal_gate=true, continue_on_fail=true]; start -> a -> exit")
    if way_back:
        play.fail()
        assert (play.started.step, play.run.reroutes) == ("a#2", 1)
    play.pause(ALIVE)
    play.fail()
    assert (play.run.status, play.run.reason) == (RunStatus.PAUSED, "operator")


def test_a_pause_is_a_state_of_its_own() -> None:
    """O15: pausing is neither an outcome nor a failure; the next step has not begun."""
    play = Play(TWO)
    play.pause(ALIVE)
    assert play.succeed() == Stop((RunPaused(reason="operator", detail="asked by pat"),))
    assert (play.run.next_node, play.run.context["outcome"], play.run.open_steps) == ("b", "success", {})


def test_a_process_that_must_stop_pauses_at_the_boundary() -> None:
    play = Play(TWO)
    stop = play.result(Result(), stop_reason="signal")
    assert stop == Stop((RunPaused(reason="signal"),))
    assert play.run.next_node == "b"


@pytest.mark.parametrize("stop_reason", ["signal", DRAIN])
def test_a_process_that_must_stop_honours_a_pending_pause(stop_reason: str) -> None:
    """Else a worker that drains would queue a run that somebody asked to pause, and the next would go on.

    H10.
    """
    play = Play(TWO)
    play.pause(ALIVE)
    stop = play.result(Result(), stop_reason=stop_reason)
    assert stop == Stop((RunPaused(reason="operator", detail="asked by pat"),))


def test_a_workspace_that_cannot_be_used_honours_a_pending_pause_and_first_a_cancel() -> None:
    """H10."""
    play = Play(TWO)
    play.go(without_workspace(play))
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "pipeline_error")
    play = Play(TWO)
    play.pause(ALIVE)
    play.go(without_workspace(play))
    assert (play.run.status, play.run.reason) == (RunStatus.PAUSED, "operator")
    play = Play(TWO)
    play.pause(ALIVE)
    play.cancel(ALIVE)
    play.go(without_workspace(play))
    assert (play.run.status, play.run.reason) == (RunStatus.CANCELLED, "user")


def test_a_pause_during_back_off_takes_effect_at_once() -> None:
    """K15: waiting for a retry is a boundary."""
    play = Play("a [type=tool, max_retries=2]; start -> a -> exit")
    play.result(Result.retry("busy"))
    assert play.go(stop_reason="signal") == Stop((RunPaused(reason="signal"),))
    play.resume(NO_ONE)
    play.now_us += 1_000_000
    play.go()
    assert play.started.attempt == 2


def test_a_run_that_has_arrived_is_finished_and_not_paused() -> None:
    play = Play(TWO)
    play.succeed()
    play.pause(ALIVE)
    assert play.result(Result(), stop_reason="signal") == Stop((RunCompleted(),))
    assert play.run.pending == Pending()


def test_a_cancel_closes_what_is_open() -> None:
    """Design §3: the cancel, the end of the attempt and the withdrawal of gates are one append."""
    play = Play(TWO)
    play.cancel(ALIVE)
    before = len(play.log)
    play.claim()
    assert kinds(play.events[before:]) == ["RunClaimed", "AttemptInterrupted", "RunCancelled"]
    assert play.run.open_steps == {}
