"""Resuming: what is checked, in which order, and what it makes of the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import pytest
from msgspec.structs import replace

from onward.errors import InvalidInput, Refused
from onward.machine.decide.calls import is_in_doubt
from onward.machine.decide.owner_loss import LOSSES_MAX
from onward.machine.decide.resume import ResumeRequest, check_resumable, decide_resume
from onward.model.events import (
    AttemptInterrupted,
    PipelineChanged,
    RunClaimed,
    RunFailed,
    RunInterrupted,
    RunQueued,
    RunResumed,
    StepFinished,
    StepStatus,
    WorkdirChanged,
)
from onward.model.result import Result
from onward.model.run import AttemptState, RunStatus
from tests.machine.play import ALIVE, DEAD, NO_ONE, Play, define

TWO = "a [type=tool]; b [type=tool]; start -> a -> b -> exit"
ONCE = "a [type=tool, repeatable=false]; b [type=tool]; start -> a -> b -> exit"
ASK = "g [shape=hexagon]; start -> g -> exit"


def kinds(play: Play, start: int = 0) -> list[str]:
    return [event.kind for event in play.events[start:]]


def failed() -> Play:
    play = Play(TWO)
    play.fail("no disk")
    return play


def doubtful() -> Play:
    play = Play(ONCE)
    play.claim()
    return play


# -- whether -------------------------------------------------------------------------------------------


def test_a_completed_run_cannot_be_resumed_but_forked() -> None:
    """K5."""
    play = Play("start -> exit")
    with pytest.raises(Refused, match=r"is completed and cannot be resumed: .*onward replay r") as refused:
        play.resume(NO_ONE)
    assert refused.value.code == "invalid_state"


def test_a_failed_run_can_be_resumed() -> None:
    """K5, O4."""
    play = failed()
    before = len(play.log)
    play.resume(NO_ONE)
    assert kinds(play, before) == ["RunResumed", "RunClaimed", "StepStarted"]
    assert (play.run.status, play.run.reason, play.run.ended_at_us) == (RunStatus.RUNNING, "", None)


@pytest.mark.parametrize("reason", ["rejected", "invalid"])
def test_a_run_that_failed_for_good_cannot_be_resumed(reason: str) -> None:
    play = Play(TWO)
    play.write(RunFailed(reason=reason))
    with pytest.raises(Refused, match="is failed and cannot be resumed"):
        play.resume(NO_ONE)


def test_a_cancelled_run_cannot_be_resumed() -> None:
    play = Play(TWO)
    play.cancel(DEAD)
    with pytest.raises(Refused, match="is cancelled and cannot be resumed: cancellation was requested"):
        play.resume(NO_ONE)


def test_a_stop_without_a_known_reason_cannot_be_resumed() -> None:
    play = Play(TWO)
    play.write(RunFailed(reason="written by a newer version"))
    with pytest.raises(Refused, match="cannot be resumed: it has ended"):
        play.resume(NO_ONE)


def test_a_run_in_living_hands_cannot_be_resumed() -> None:
    """K4: the refusal names the holder."""
    with pytest.raises(Refused, match="held by first") as refused:
        check_resumable(Play(TWO).run, ALIVE, ResumeRequest("pat"))
    assert refused.value.code == "occupied"


def test_a_running_run_with_a_dead_owner_counts_as_interrupted() -> None:
    """Design §4: and the step it was in is made again."""
    play = Play(TWO)
    before = len(play.log)
    play.resume(DEAD)
    assert kinds(play, before) == ["RunInterrupted", "RunResumed", "RunClaimed", "StepStarted"]
    assert play.events[before] == RunInterrupted(reason="crash", detail="first died")
    assert (play.started.step, play.started.attempt, play.run.token, play.run.losses) == ("a#1", 1, 2, 0)


def test_a_running_run_without_any_owner_counts_as_interrupted_too() -> None:
    [fallen] = check_resumable(Play(TWO).run, NO_ONE, ResumeRequest("pat"))
    assert fallen == RunInterrupted(reason="crash", detail="its holder died")


def test_a_stopped_process_can_be_robbed_and_the_log_says_so() -> None:
    play = Play(TWO)
    play.resume(ALIVE, take_over=True)
    interrupted = next(event for event in play.events if isinstance(event, RunInterrupted))
    assert interrupted.detail == "taken over from first, which was still alive"
    assert (play.run.worker, play.run.token) == ("second", 2)


def test_a_queued_run_is_simply_started() -> None:
    """Design §4: nothing is resumed, because nothing has stopped."""
    play = Play(TWO, claim=False)
    play.resume(NO_ONE)
    assert kinds(play)[:2] == ["RunCreated", "RunClaimed"]
    assert play.started.step == "a#1"


def test_a_waiting_run_is_answered_and_not_resumed() -> None:
    with pytest.raises(Refused, match="waits for an answer at g#1; answer with `onward answer r`"):
        Play(ASK).resume(NO_ONE)


def test_a_run_whose_cancel_was_acknowledged_is_not_resumed() -> None:
    """Design §3: a stop honours a pending cancel, also when the owner died before it could."""
    play = Play(TWO)
    play.cancel(ALIVE)
    with pytest.raises(Refused, match="kim requested to cancel it; `onward cancel r` does it now"):
        play.resume(DEAD)
    play.resume(DEAD, action="abort")
    assert play.run.status is RunStatus.CANCELLED


def test_a_refusal_comes_before_the_first_event() -> None:
    """Design §4: nothing is changed until everything holds."""
    play = doubtful()
    head = play.run.head
    for request in (ResumeRequest("pat"), ResumeRequest("pat", from_node="nowhere")):
        with pytest.raises((Refused, InvalidInput)):
            decide_resume(play.definition, play.run, NO_ONE, request)
    assert play.run.head == head


# -- doubt ---------------------------------------------------------------------------------------------


def test_a_step_in_doubt_must_be_decided() -> None:
    """I11: with what the attempt was, and what can be said."""
    play = doubtful()
    with pytest.raises(
        Refused, match=r"a#1 started and never finished.*--retry, --skip, --continue"
    ) as refused:
        play.resume(NO_ONE)
    assert (refused.value.code, refused.value.details) == ("in_doubt", {"step": "a#1", "attempt": 1})


@pytest.mark.parametrize("action", ["retry", "continue"])
def test_a_doubt_is_decided_by_trying_again(action: str) -> None:
    play = doubtful()
    play.resume(NO_ONE, action=action)
    assert (play.started.step, play.started.attempt) == ("a#1", 2)
    assert play.run.directives == {"a#1": action}
    play.succeed()
    assert (play.started.step, play.run.directives) == ("b#1", {})


def test_a_doubt_is_decided_by_skipping() -> None:
    play = doubtful()
    before = len(play.log)
    play.resume(NO_ONE, action="skip")
    assert kinds(play, before) == ["RunResumed", "StepFinished", "RunClaimed", "StepStarted"]
    skipped = play.events[before + 1]
    assert isinstance(skipped, StepFinished)
    assert (skipped.step, skipped.outcome.status) == ("a#1", StepStatus.SKIPPED)
    assert skipped.outcome.notes == "skipped by a person"
    assert (play.started.step, play.run.context["outcome"]) == ("b#1", "success")


@pytest.mark.parametrize("make", [doubtful, failed])
def test_a_stopped_step_is_decided_by_giving_up(make: Callable[[], Play]) -> None:
    play = make()
    play.resume(NO_ONE, action="abort")
    assert (play.run.status, play.run.reason, play.run.open_steps) == (RunStatus.CANCELLED, "user", {})


def test_a_running_run_with_a_dead_owner_can_be_given_up() -> None:
    play = Play(ONCE)
    before = len(play.log)
    play.resume(DEAD, action="abort")
    assert kinds(play, before) == ["RunInterrupted", "AttemptInterrupted", "RunCancelled"]


def test_an_attempt_that_was_cut_off_by_a_signal_is_in_doubt_as_well() -> None:
    play = Play(ONCE)
    play.go([AttemptInterrupted(step="a#1", attempt=1, why="stopped")], stop_reason="signal")
    assert play.run.status is RunStatus.PAUSED
    assert is_in_doubt(play.run.open_steps["a#1"])
    with pytest.raises(Refused, match="a#1 started and never finished"):
        play.resume(NO_ONE)


def test_an_attempt_that_failed_is_not_in_doubt() -> None:
    play = Play(ONCE)
    play.fail()
    assert not is_in_doubt(play.run.open_steps["a#1"])
    play.resume(NO_ONE)
    assert play.started.attempt == 2


# -- steps and places ----------------------------------------------------------------------------------


def test_retry_and_skip_work_on_any_stopped_step() -> None:
    play = failed()
    play.resume(NO_ONE, action="skip", step="a")
    assert play.started.step == "b#1"
    play.fail()
    play.resume(NO_ONE, action="retry", step="b#1")
    assert (play.started.step, play.started.attempt) == ("b#1", 2)


@pytest.mark.parametrize("step", [None, "b", "a#2"])
def test_a_step_that_has_not_stopped_cannot_be_retried(step: str | None) -> None:
    play = failed() if step else Play(TWO)
    if step is None:
        play.pause(ALIVE)
        play.succeed()
    with pytest.raises(Refused, match="has no unfinished step to retry") as refused:
        play.resume(NO_ONE, action="retry", step=step)
    assert refused.value.code == "nothing_stopped"


def test_among_several_stopped_steps_the_one_in_doubt_is_meant() -> None:
    play = doubtful()
    doubt = play.run.open_steps["a#1"]
    other = replace(doubt, step="b#1", node="b", repeatable=True)
    play.run = replace(play.run, open_steps={"b#1": other, "a#1": doubt})
    for step, meant in ((None, "a#1"), ("b", "b#1")):
        request = ResumeRequest("pat", action="retry", step=step)
        resumed, _ = decide_resume(play.definition, play.run, NO_ONE, request)
        assert resumed == RunResumed(by="pat", action="retry", step=meant)


def test_an_action_is_one_of_four() -> None:
    with pytest.raises(InvalidInput, match="'hope' is not one of retry, skip, continue, abort"):
        failed().resume(NO_ONE, action="hope")


@pytest.mark.parametrize("action", ["retry", "skip"])
def test_an_action_on_a_step_that_is_left_behind_has_no_meaning(action: str) -> None:
    with pytest.raises(InvalidInput, match=f"nothing to {action}; give only one of the two"):
        failed().resume(NO_ONE, action=action, from_node="b")


def test_a_run_goes_on_from_an_earlier_step_as_another_visit() -> None:
    play = Play(TWO)
    play.succeed()
    play.fail()
    play.resume(NO_ONE, from_node="a")
    assert (play.started.step, play.run.steps_finished) == ("a#2", 2)


def test_what_is_left_behind_is_closed_in_the_log() -> None:
    """A reader of the log never finds an attempt or a question without an end."""
    play = Play(ONCE)
    before = len(play.log)
    play.resume(DEAD, from_node="b")
    assert kinds(play, before) == [
        "RunInterrupted",
        "AttemptInterrupted",
        "RunResumed",
        "RunClaimed",
        "StepStarted",
    ]
    play = Play(ASK)
    play.pause(NO_ONE)
    before = len(play.log)
    play.resume(NO_ONE, from_node="g")
    assert kinds(play, before)[:2] == ["GateWithdrawn", "RunResumed"]
    assert list(play.run.gates) == ["g#2"]


def test_a_place_that_the_pipeline_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no node 'z'; it has start, exit, a, b"):
        failed().resume(NO_ONE, from_node="z")


def test_a_queued_run_can_be_sent_elsewhere() -> None:
    """A run that waits for a retry is queued, and a person need not wait with it."""
    play = Play("a [type=tool, max_retries=3]; b [type=tool]; start -> a -> b -> exit")
    play.result(Result.retry("busy"))
    play.write(RunQueued(why="retry", wake_at_us=play.now_us + 10**9))
    assert play.run.status is RunStatus.QUEUED
    play.resume(NO_ONE, from_node="b")
    assert play.started.step == "b#1"


def test_a_queued_runs_retry_can_be_had_at_once() -> None:
    play = Play("a [type=tool, max_retries=3]; start -> a -> exit")
    play.result(Result.retry("busy"))
    play.write(RunQueued(why="retry", wake_at_us=play.now_us + 10**9))
    play.resume(NO_ONE, action="retry")
    assert (play.started.step, play.started.attempt) == ("a#1", 2)


# -- allowances and definitions ------------------------------------------------------------------------


def test_a_persons_resume_opens_a_new_allowance_of_crashes_and_keeps_the_visits() -> None:
    """Design §4."""
    play = Play(TWO)
    for _ in range(LOSSES_MAX - 1):
        play.claim()
    play.resume(DEAD)
    for _ in range(LOSSES_MAX - 1):
        play.claim()
    assert (play.started.step, play.run.visits["a"]) == ("a#1", 1)


def test_an_accepted_change_is_written_down_before_the_claim() -> None:
    play = failed()
    events = decide_resume(play.definition, play.run, NO_ONE, ResumeRequest("pat"), changed_to="other")
    assert events == (
        RunResumed(by="pat"),
        PipelineChanged(pipeline_hash="other", before="h", by="pat", plan=("start", "a", "b", "exit")),
        RunClaimed(token=2, worker="second"),
    )


def test_an_unchanged_pipeline_is_no_event() -> None:
    play = Play(TWO, claim=False)
    resume = partial(decide_resume, play.definition, play.run, NO_ONE, ResumeRequest("pat"))
    assert resume(changed_to="h") == (RunClaimed(token=1, worker="second"),)
    assert [event.kind for event in resume(changed_to="other")] == ["PipelineChanged", "RunClaimed"]


def test_another_directory_is_written_down_before_the_claim_and_the_same_is_not() -> None:
    play = failed()
    moved = WorkdirChanged(workdir="/there", before=None, by="pat")
    request = ResumeRequest("pat", workdir="/there")
    assert decide_resume(play.definition, play.run, NO_ONE, request)[1:-1] == (moved,)
    there = replace(play.run, workdir="/there")
    assert decide_resume(play.definition, there, NO_ONE, request)[1:-1] == ()


def test_a_waiting_run_is_moved_and_waits_on_but_does_not_continue_elsewhere() -> None:
    play = Play(ASK)
    decide = partial(decide_resume, play.definition, play.run, NO_ONE)
    moved = WorkdirChanged(workdir="/there", before=None, by="pat")
    assert decide(ResumeRequest("pat", workdir="/there")) == (moved,)
    for more in (ResumeRequest("pat", from_node="g"), ResumeRequest("pat", restore_workspace=True)):
        with pytest.raises(Refused, match="waits for an answer"):
            decide(dataclasses.replace(more, workdir="/there"))


def test_a_waiting_run_takes_a_changed_pipeline_and_waits_on() -> None:
    play = Play(ASK)
    changed = PipelineChanged(
        pipeline_hash="other", before=play.run.pipeline_hash, by="pat", plan=("start", "g", "exit")
    )
    request = ResumeRequest("pat", accept_changes=True)
    decided = decide_resume(play.definition, play.run, NO_ONE, request, changed_to="other")
    assert decided == (changed,)
    play.write(*decided)
    assert (play.run.status, play.run.pipeline_hash) == (RunStatus.WAITING, "other")
    assert decide_resume(play.definition, play.run, NO_ONE, request, changed_to="other") == ()


def test_a_resumed_run_goes_on_under_the_changed_pipeline() -> None:
    play = failed()
    play.definition = define("a [type=tool]; c [type=tool]; start -> a -> c -> exit")
    play.resume(NO_ONE)
    play.succeed()
    assert play.started.node == "c"


def test_a_failed_steps_state_after_a_resume_is_due() -> None:
    play = failed()
    play.write(*decide_resume(play.definition, play.run, NO_ONE, ResumeRequest("pat")))
    assert play.run.open_steps["a#1"].state is AttemptState.RETRYING
