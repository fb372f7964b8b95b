"""Requests: each becomes events, nothing (it is so already), or a refusal that says what to do."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from onward.errors import InvalidInput, Refused
from onward.machine.decide.owner_loss import decide_release
from onward.machine.decide.requests import HolderView, decide_cancel, decide_claim, decide_pause
from onward.machine.decide.resume import ResumeRequest, decide_resume
from onward.model.events import (
    AttemptInterrupted,
    CancelRequested,
    Event,
    PauseRequested,
    RunCancelled,
    RunClaimed,
    RunCompleted,
    RunFailed,
    RunInterrupted,
    RunPaused,
    RunQueued,
)
from onward.model.gate import GateDecided
from onward.model.run import RunStatus
from tests.machine.play import ALIVE, DEAD, NO_ONE, Play

TWO = "a [type=tool]; b [type=tool]; start -> a -> b -> exit"
ASK = 'g [shape=hexagon]; b [type=tool]; start -> g; g -> b [label="Yes"]; g -> exit [label="No"]; b -> exit'


def kinds(play: Play, start: int = 0) -> list[str]:
    return [event.kind for event in play.events[start:]]


def done() -> Play:
    play = Play(TWO)
    play.succeed()
    play.succeed()
    return play


# -- claiming ------------------------------------------------------------------------------------------


def test_a_run_that_a_living_process_holds_cannot_be_claimed() -> None:
    """I14: the refusal names the holder and says what to do."""
    with pytest.raises(Refused, match="held by first; wait for it") as refused:
        decide_claim(Play(TWO).run, ALIVE)
    assert (refused.value.code, refused.value.details) == ("occupied", {"holder": "first"})


@pytest.mark.parametrize(("holder_view", "take_over"), [(DEAD, False), (ALIVE, True), (NO_ONE, False)])
def test_a_running_run_is_taken_over_with_a_higher_token(holder_view: HolderView, take_over: bool) -> None:
    """Design §3: the claim that takes over says that the owner before was lost. H8."""
    claim = RunClaimed(token=2, worker="second", lost=True)
    assert decide_claim(Play(TWO).run, holder_view, take_over=take_over) == (claim,)


def test_a_queued_run_is_claimed_without_a_loss() -> None:
    """H8."""
    run = Play(TWO, claim=False).run
    assert decide_claim(run, NO_ONE) == (RunClaimed(token=1, worker="second"),)


def test_a_run_that_waits_for_a_provider_can_be_claimed_though_it_is_interrupted() -> None:
    """Design §3: claimable when its wake time has come and nobody alive has it, whatever its status. H8."""
    play = Play(TWO)
    play.write(RunInterrupted(reason="rate_limit", wake_at_us=9))
    events = decide_claim(play.run, NO_ONE)
    assert events == (RunQueued(why="rate_limit", wake_at_us=9), RunClaimed(token=2, worker="second"))
    play.write(*events)
    assert (play.run.status, play.run.reason) == (RunStatus.RUNNING, "")


def test_a_waiting_run_is_claimed_together_with_its_answer() -> None:
    """Design §3: a foreground answer claims in the same transaction."""
    play = Play(ASK)
    claim = decide_claim(play.run, NO_ONE, answered=True)
    play.answer("Yes")
    play.write(*claim)
    play.go()
    assert play.started.node == "b"


@pytest.mark.parametrize("stop", [RunPaused(reason="operator"), RunFailed(reason="invalid"), RunCompleted()])
def test_a_stopped_run_is_not_claimed_but_resumed(
    stop: RunPaused | RunFailed | RunCompleted,
) -> None:
    play = done() if isinstance(stop, RunCompleted) else Play(TWO)
    if not isinstance(stop, RunCompleted):
        play.write(stop)
    with pytest.raises(Refused, match="cannot be claimed") as refused:
        decide_claim(play.run, NO_ONE)
    assert refused.value.code == "invalid_state"


# -- pausing -------------------------------------------------------------------------------------------


def test_a_pause_goes_through_the_holder_while_there_is_one() -> None:
    play = Play(TWO)
    assert play.pause(ALIVE) == (PauseRequested(after="step", by="pat"),)
    play.succeed()
    assert play.run.status is RunStatus.PAUSED


def test_asking_again_for_a_pause_is_nothing_unless_it_is_more_urgent() -> None:
    """Design §2: what is already asked for is a no-op."""
    play = Play(TWO)
    play.pause(ALIVE, "call")
    assert play.pause(ALIVE, "step") == ()
    assert play.pause(ALIVE, "call") == ()
    assert play.pause(ALIVE, "now") == (PauseRequested(after="now", by="pat"),)
    play.succeed()
    assert play.pause(NO_ONE) == ()


def test_a_dead_owners_run_is_paused_at_once_and_the_owner_fenced() -> None:
    play = Play(TWO)
    play.pause(DEAD)
    assert kinds(play)[-2:] == ["RunClaimed", "RunPaused"]
    assert (play.run.status, play.run.token, play.run.worker) == (RunStatus.PAUSED, 2, None)
    assert play.run.detail == "asked by pat"


def test_a_pause_of_a_dead_owners_run_honours_a_cancel_that_came_first() -> None:
    """Design §3: every stop honours a pending cancel, then a pending pause."""
    play = Play(TWO)
    play.cancel(ALIVE)
    play.pause(DEAD)
    assert (play.run.status, play.run.reason) == (RunStatus.CANCELLED, "user")
    assert play.last == RunCancelled(reason="user", by="kim")


@pytest.mark.parametrize(("body", "claim"), [(TWO, False), (ASK, True)])
def test_a_run_that_nobody_holds_is_paused_at_once(body: str, claim: bool) -> None:
    play = Play(body, claim=claim)
    assert play.pause(NO_ONE) == (RunPaused(reason="operator", detail="asked by pat"),)


def test_what_has_stopped_otherwise_cannot_be_paused() -> None:
    with pytest.raises(Refused, match="is completed and cannot be paused") as refused:
        decide_pause(done().run, NO_ONE, after="step", by="pat")
    assert refused.value.code == "invalid_state"


def test_a_pause_is_after_the_step_the_call_or_now() -> None:
    with pytest.raises(InvalidInput, match="'lunch' is not one of step, call, now"):
        decide_pause(Play(TWO).run, ALIVE, after="lunch", by="pat")


# -- cancelling ----------------------------------------------------------------------------------------


def test_a_cancel_goes_through_the_holder_while_there_is_one() -> None:
    play = Play(TWO)
    assert play.cancel(ALIVE) == (CancelRequested(by="kim"),)
    assert play.cancel(ALIVE) == ()
    play.succeed()
    assert (play.run.status, play.run.reason) == (RunStatus.CANCELLED, "user")
    assert play.cancel(NO_ONE) == ()


def test_a_dead_owners_run_is_cancelled_at_once_with_its_attempt_closed() -> None:
    play = Play(TWO)
    before = len(play.log)
    play.cancel(DEAD)
    assert kinds(play, before) == ["RunClaimed", "AttemptInterrupted", "RunCancelled"]


def test_a_cancel_withdraws_the_open_question() -> None:
    """Design §3: a final status withdraws open gates in the same append."""
    play = Play(ASK)
    before = len(play.log)
    play.cancel(NO_ONE)
    assert kinds(play, before) == ["GateWithdrawn", "RunCancelled"]
    assert play.run.gates == {}


def test_an_answered_question_is_not_withdrawn_again() -> None:
    play = Play(ASK)
    play.answer("Yes")
    before = len(play.log)
    play.cancel(NO_ONE)
    assert kinds(play, before) == ["RunCancelled"]


@pytest.mark.parametrize("stop", [RunPaused(reason="operator"), RunFailed(reason="rejected")])
def test_a_stopped_run_can_be_cancelled(stop: RunPaused | RunFailed) -> None:
    play = Play(TWO)
    play.write(AttemptInterrupted(step="a#1", attempt=1, why="stop"), stop)
    assert play.cancel(NO_ONE) == (RunCancelled(reason="user", by="kim"),)


def test_a_run_can_be_superseded() -> None:
    play = Play(TWO, claim=False)
    [event] = decide_cancel(play.run, NO_ONE, by="kim", reason="superseded")
    assert event == RunCancelled(reason="superseded", by="kim")


@pytest.mark.parametrize("holder_view", [ALIVE, DEAD])
def test_a_cancel_says_why_in_the_words_of_whoever_asked(holder_view: HolderView) -> None:
    """Also when the holder does it later, after whatever it had under way."""
    play = Play(TWO)
    play.write(*decide_cancel(play.run, holder_view, by="kim", detail=" wrong branch "))
    if holder_view is ALIVE:
        play.succeed()
    assert play.last == RunCancelled(reason="user", by="kim", detail="wrong branch")
    assert (play.run.status, play.run.detail) == (RunStatus.CANCELLED, "wrong branch")


def test_a_pause_keeps_why_a_cancel_was_asked_for() -> None:
    play = Play(TWO)
    play.write(*decide_cancel(play.run, ALIVE, by="kim", detail="wrong branch"))
    play.write(AttemptInterrupted(step="a#1", attempt=1, why="stop"), RunPaused(reason="signal"))
    assert (play.run.pending.cancel_by, play.run.pending.cancel_detail) == ("kim", "wrong branch")


def test_a_reason_has_an_end() -> None:
    with pytest.raises(InvalidInput, match="1001 characters; use at most 1000"):
        decide_cancel(Play(TWO).run, ALIVE, by="kim", detail="x" * 1_001)


def test_what_has_finished_cannot_be_cancelled() -> None:
    with pytest.raises(Refused, match="is completed and cannot be cancelled: it has finished"):
        decide_cancel(done().run, NO_ONE, by="kim")


# -- giving back ---------------------------------------------------------------------------------------


def release(play: Play, owner: str = "first", token: int = 1) -> tuple[Event, ...]:
    events = decide_release(play.run, owner=owner, token=token, now_us=77)
    play.write(*events)
    return events


@pytest.mark.parametrize(
    ("policy", "status", "wake_at_us"),
    [("requeue", RunStatus.QUEUED, 77), ("interrupt", RunStatus.INTERRUPTED, None)],
)
def test_a_run_that_its_owner_no_longer_drives_follows_its_own_policy(
    policy: str, status: RunStatus, wake_at_us: int | None
) -> None:
    """Design §7: a process gives back what it holds and does not drive. H18."""
    play = Play(TWO)
    play.run = replace(play.run, on_owner_loss=policy)
    release(play)
    assert (play.run.status, play.run.wake_at_us, play.run.worker) == (status, wake_at_us, None)
    assert play.run.detail == "the process that held it stopped running it"


@pytest.mark.parametrize(("owner", "token"), [("second", 1), ("first", 2)])
def test_only_the_lease_that_is_meant_is_given_back(owner: str, token: int) -> None:
    """I9: owner and token, both."""
    assert release(Play(TWO), owner, token) == ()


def test_a_run_that_has_stopped_is_not_given_back_again() -> None:
    play = Play(TWO)
    play.pause(DEAD)
    assert release(play) == ()


def test_giving_back_honours_a_pending_cancel_and_then_a_pending_pause() -> None:
    """Design §3: every stop does."""
    play = Play(TWO)
    play.pause(ALIVE)
    asked = play.run
    release(play)
    assert (play.run.status, play.run.detail) == (RunStatus.PAUSED, "asked by pat")
    play.run = asked
    play.cancel(ALIVE)
    release(play)
    assert (play.run.status, play.run.reason, play.run.open_steps) == (RunStatus.CANCELLED, "user", {})


# -- answering -----------------------------------------------------------------------------------------


def test_the_first_of_two_rival_answers_wins() -> None:
    """Design §2, I22: the second sees what the first said, and is told by whom."""
    play = Play(ASK)
    [decided] = play.answer("yes", text="fine")
    assert isinstance(decided, GateDecided)
    assert (decided.gate, decided.choice.to, decided.by, decided.text) == ("g#1", "b", "pat", "fine")
    for answer, text in (("No", ""), ("No", "fine"), ("Yes", "but")):
        with pytest.raises(Refused, match="already decided: 'Yes' by pat") as refused:
            play.answer(answer, text=text)
        assert refused.value.code == "gate_decided"
        assert refused.value.details == {"choice": "Y", "by": "pat"}


def test_giving_the_same_answer_again_is_nothing() -> None:
    """Design §2: what is already asked for is a no-op. H3."""
    play = Play(ASK)
    play.answer("yes", text="fine")
    assert play.answer("Y", text="fine") == ()
    assert play.answer("Y", gate="g#1", text="fine") == ()


@pytest.mark.parametrize("gate", [None, "g#1"])
def test_an_answer_that_the_gate_does_not_offer_is_refused_with_what_it_does(gate: str | None) -> None:
    with pytest.raises(InvalidInput, match=r"has no choice 'perhaps'; choose one of: Y \(Yes\), N \(No\)"):
        Play(ASK).answer("perhaps", gate=gate)


def test_an_answer_whose_text_cannot_be_stored_is_refused() -> None:
    with pytest.raises(InvalidInput, match="the text of the answer contains a lone surrogate"):
        Play(ASK).answer("Yes", text="\udce9")


def test_a_gate_that_is_not_there_cannot_be_answered() -> None:
    with pytest.raises(Refused, match="has no gate 'g#9'; open gates: g#1") as refused:
        Play(ASK).answer("Yes", gate="g#9")
    assert refused.value.code == "no_open_gate"
    with pytest.raises(Refused, match="has no gate 'g#9'; open gates: none"):
        Play(TWO).answer("Yes", gate="g#9")


def test_a_run_that_asks_nothing_cannot_be_answered() -> None:
    with pytest.raises(Refused, match="is running and has no open gate") as refused:
        Play(TWO).answer("Yes")
    assert refused.value.code == "no_open_gate"


def test_with_several_open_gates_one_must_be_named() -> None:
    play = Play(ASK)
    other = play.run.gates["g#1"]
    play.run = replace(play.run, gates={"g#1": other, "h#1": replace(other, gate="h#1")})
    with pytest.raises(InvalidInput, match=r"several open gates \(g#1, h#1\); name one with --gate"):
        play.answer("Yes")
    assert play.answer("Yes", gate="h#1")


def test_a_paused_or_requeued_runs_question_can_be_answered() -> None:
    """K13: the answer is kept for when the run goes on."""
    play = Play(ASK)
    play.pause(NO_ONE)
    play.answer("Yes")
    assert play.run.status is RunStatus.PAUSED
    play.resume(NO_ONE)
    assert play.started.node == "b"


def test_a_run_requeued_at_its_question_can_be_answered() -> None:
    """K13: an owner that died right after a resume leaves a queued run with an open question."""
    play = Play(ASK)
    play.pause(NO_ONE)
    play.write(*resume_events(play))
    play.write(RunClaimed(token=play.run.token + 1, worker="sweep", lost=True))
    play.write(RunQueued(why="owner lost", wake_at_us=play.now_us))
    play.answer("Yes")
    assert play.run.status is RunStatus.QUEUED
    play.claim()
    assert play.started.node == "b"


def resume_events(play: Play) -> tuple[Event, ...]:
    return decide_resume(play.definition, play.run, NO_ONE, ResumeRequest("pat"))
