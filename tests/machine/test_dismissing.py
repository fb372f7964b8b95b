"""Dismissing: a stopped run stays as it is, and nothing continues it but a person who names it."""

from __future__ import annotations

import pytest

from onward.errors import Refused
from onward.machine.decide.requests import decide_cancel, decide_dismiss, decide_pause
from onward.machine.decide.resume import ResumeRequest, decide_resume
from onward.machine.fold.rows import run_row
from onward.model.events import (
    Event,
    RunClaimed,
    RunDismissed,
    RunFailed,
    RunInterrupted,
    RunPaused,
    RunQueued,
)
from onward.model.run import RunStatus
from tests.machine.play import ALIVE, DEAD, NO_ONE, Play

TWO = "a [type=tool]; b [type=tool]; start -> a -> b -> exit"
STOPS = [
    RunPaused(reason="operator"),
    RunInterrupted(reason="limit"),
    RunInterrupted(reason="rate_limit", wake_at_us=99),
    RunFailed(reason="step_failed"),
]


def stopped(stop: Event) -> Play:
    play = Play(TWO)
    play.write(stop)
    return play


@pytest.mark.parametrize("stop", STOPS)
def test_a_stopped_run_is_dismissed_once_and_keeps_its_status(stop: Event) -> None:
    """B0-2: dismissing is stored."""
    play = stopped(stop)
    before = play.run.status, play.run.reason
    play.write(*decide_dismiss(play.run, NO_ONE, by="ann"))
    assert play.events[-1] == RunDismissed(by="ann")
    assert (play.run.status, play.run.reason) == before
    assert play.run.is_dismissed
    assert run_row(play.run).is_dismissed
    assert decide_dismiss(play.run, NO_ONE, by="ann") == ()


def test_a_dismissed_run_does_not_continue_when_its_time_comes() -> None:
    play = stopped(RunInterrupted(reason="rate_limit", wake_at_us=99))
    play.write(RunDismissed(by="ann"))
    assert play.run.wake_at_us is None


def test_a_resume_by_name_ends_that_it_is_dismissed() -> None:
    play = stopped(RunPaused(reason="operator"))
    play.write(RunDismissed(by="ann"))
    play.write(*decide_resume(play.definition, play.run, NO_ONE, ResumeRequest(by="ann")))
    assert not play.run.is_dismissed


def test_a_run_whose_process_died_is_interrupted_and_dismissed() -> None:
    play = Play(TWO)
    play.write(*decide_dismiss(play.run, DEAD, by="ann"))
    assert [type(event) for event in play.events[-3:]] == [RunClaimed, RunInterrupted, RunDismissed]
    assert (play.run.status, play.run.reason) == (RunStatus.INTERRUPTED, "crash")


@pytest.mark.parametrize("state", ["running", "queued", "cancelled"])
def test_a_run_that_has_not_stopped_or_has_ended_cannot_be_dismissed(state: str) -> None:
    play = Play(TWO)
    if state == "queued":
        play.write(RunQueued(why="later", wake_at_us=9))
    elif state == "cancelled":
        play.write(*decide_cancel(play.run, DEAD, by="ann"))
    with pytest.raises(Refused, match=f"is {state} and cannot be dismissed: it has") as refused:
        decide_dismiss(play.run, ALIVE if state == "running" else NO_ONE, by="ann")
    assert refused.value.code == "invalid_state"


def test_a_holder_that_is_asked_to_make_room_says_that_the_run_was_superseded() -> None:
    """B0-1: a fresh start ends the run that it replaces for good, through its holder, too."""
    play = Play(TWO)
    play.write(*decide_cancel(play.run, ALIVE, by="ann", reason="superseded", detail="start over"))
    play.write(*decide_pause(play.run, DEAD, after="now", by="bob"))
    assert (play.run.status, play.run.reason, play.run.detail) == (
        RunStatus.CANCELLED,
        "superseded",
        "start over",
    )
