"""Calls inside steps: begun once, answered once, in doubt one by one, and what a person's decision does."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from onward.errors import InvalidInput, Refused
from onward.machine.decide.calls import (
    call_in_doubt,
    finish_call,
    hold_attempt,
    lose_call,
    question_changed,
    start_call,
    told_in_doubt,
)
from onward.machine.decide.owner_loss import decide_arrival
from onward.machine.decide.resume import ResumeRequest, decide_resume, repeat_notice
from onward.machine.fold.changes import IllegalEvent
from onward.machine.fold.rows import call_rows
from onward.machine.plan.action import Execute, Stop
from onward.model.call import AttemptHeld, CallFinished, CallLost, CallStarted, CallStatus
from onward.model.events import (
    AttemptFailed,
    Event,
    RunClaimed,
    RunInterrupted,
    RunPaused,
    RunResumed,
    SteeringGiven,
    StepStarted,
    StepStatus,
)
from onward.model.gate import GateDecided
from onward.model.run import OpenStep, Run, StepCalls
from tests.machine.events import ASKED, YES, held, started, then
from tests.machine.play import DEAD, NO_ONE, Play

OK = CallStatus.OK
MODEL = CallStarted(step="a#1", attempt=1, call="m1", number=1, type="model", thread="t1")
TOOL = CallStarted(
    step="a#1", attempt=1, call="m1.t1", number=1, type="tool", name="pay", about="7 EUR", repeatable=False
)
PAID = CallFinished(step="a#1", attempt=1, call="m1.t1", number=1, type="tool", status=OK)
LOST = CallLost(step="a#1", call="m1.t1", number=1)
FAILED = AttemptFailed(step="a#1", attempt=1, status=StepStatus.RETRY, reason="busy", retry_at_us=60)
IN_STEP = replace(ASKED, gate="a#1:ok?", node="a")
AGENT = "a [prompt=p, max_retries=1]; start -> a -> exit"
CUT_OFF = RunInterrupted(reason="in_doubt", detail="")


def calls_of(run: Run) -> StepCalls:
    calls = run.open_steps["a#1"].calls
    assert calls is not None
    return calls


def working(*events: Event) -> Run:
    return then(held(), started(thread="t"), *events)


def doubtful() -> Play:
    """A run that stopped because a tool that must not be used twice has no answer."""
    play = Play(AGENT)
    play.write(TOOL, LOST, RunClaimed(token=2, worker="second", lost=True))
    play.go()
    return play


def test_a_call_that_the_attempt_dropped_is_lost_before_it_begins_again() -> None:
    again = replace(MODEL, number=2)
    assert start_call(working(), MODEL) == (MODEL,)
    assert [event.kind for event in start_call(working(MODEL), again)] == ["CallLost", "CallStarted"]
    with pytest.raises(Refused) as refused:
        start_call(working(TOOL), replace(TOOL, number=2))
    assert refused.value.code == call_in_doubt("a#1", "m1.t1").code == "call_in_doubt"


def test_a_conversation_with_instructions_that_another_step_took_does_not_begin() -> None:
    run = working(SteeringGiven(text="be brief", by="ann"))
    assert start_call(run, MODEL, ["be brief"]) == (MODEL,)
    with pytest.raises(Refused, match="another step has received the instructions that a#1 read"):
        start_call(run, MODEL, ["in French"])


def test_a_call_takes_the_instructions_that_its_conversation_has() -> None:
    given = [SteeringGiven(text=text, by="ann") for text in ("one", "two")]
    run = working(*given, replace(MODEL, steering=1))
    assert (run.open_steps["a#1"].steering, run.steering) == (("one",), ("two",))


def test_a_call_ends_with_an_answer_or_is_given_up_while_it_is_open() -> None:
    assert finish_call(working(TOOL), PAID) == (PAID,)
    assert lose_call(working(TOOL), LOST, 1) == (LOST,)
    assert lose_call(working(TOOL, PAID), LOST, 1) == ()
    assert lose_call(working(), LOST, 1) == ()


def test_a_hold_asks_what_is_not_asked_yet() -> None:
    hold = AttemptHeld(step="a#1", attempt=1, reason="gate", gates=(IN_STEP.gate,))
    assert hold_attempt(working(), hold, set(), [IN_STEP]) == (IN_STEP, hold)
    assert hold_attempt(working(IN_STEP), hold, set(), [IN_STEP]) == (hold,)


def test_another_question_under_the_same_key_is_refused() -> None:
    refused = question_changed("a#1", "ok?")
    assert (refused.code, refused.details) == ("question_changed", {"step": "a#1", "call": "ok?"})


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ((replace(MODEL, step="b#1"),), "step b#1 is not open, so it has no calls"),
        ((MODEL, MODEL), "call m1 of step a#1 is already open"),
        ((LOST,), r"try 1 of call m1\.t1 of step a#1 is not open"),
        ((TOOL, replace(LOST, number=2)), r"try 2 of call m1\.t1 of step a#1 is not open"),
        ((TOOL, replace(PAID, by="ann")), r"call m1\.t1 of step a#1 is not in doubt"),
        ((replace(PAID, by="ann"),), r"call m1\.t1 of step a#1 is not in doubt"),
        ((replace(PAID, call="ok?", type="gate"),), r"call ok\? of step a#1 has no answered gate"),
        ((IN_STEP, replace(PAID, call="ok?", type="gate")), r"call ok\? of step a#1 has no answered gate"),
        ((AttemptHeld(step="a#1", attempt=2, reason="pause"),), "step a#1 has no open attempt 2"),
        ((replace(IN_STEP, gate="b#1:ok?"),), r"gate b#1:ok\? has no open attempt that asks"),
        ((IN_STEP, RunPaused(reason="operator")), r"RunPaused leaves gates open: a#1:ok\?"),
    ],
)
def test_what_calls_and_their_gates_cannot_do_does_not_fold(events: tuple[Event, ...], told: str) -> None:
    with pytest.raises(IllegalEvent, match=told):
        working(*events)


def test_the_answer_of_a_person_closes_the_gate_when_the_call_has_it() -> None:
    decided = GateDecided(gate=IN_STEP.gate, choice=YES, by="ann")
    run = working(IN_STEP, decided, replace(PAID, call="ok?", type="gate", by="ann"))
    assert run.gates == {}


def test_a_gate_of_another_step_stays_open_when_an_attempt_ends() -> None:
    other = StepStarted(step="b#1", node="b", attempt=1)
    run = working(other, IN_STEP)
    failed = replace(FAILED, step="b#1")
    assert [*then(run, failed).gates] == [IN_STEP.gate]


def test_a_lost_call_says_what_it_was_about() -> None:
    plain = replace(TOOL, call="charge", about="")
    run = working(TOOL, replace(TOOL, call="m1.t2", about="x" * 400), plain, LOST)
    first, second, third = sorted(told_in_doubt(run.open_steps["a#1"]), key=len, reverse=True)
    assert (first[:13], first[-2:], len(first)) == ("m1.t2: pay xx", "x…", 308)
    assert (second, third) == ("m1.t1: pay 7 EUR", "charge")
    assert told_in_doubt(working().open_steps["a#1"]) == []


def test_what_a_person_says_of_a_lost_call_is_its_answer() -> None:
    run = working(TOOL, LOST)
    assert (dict(calls_of(run).lost), dict(calls_of(run).told)) == ({"m1.t1": 1}, {"m1.t1": "pay 7 EUR"})
    settled = calls_of(then(run, replace(PAID, by="ann")))
    assert (dict(settled.lost), dict(settled.told), settled.has_acted) == ({}, {}, True)


def test_a_run_with_a_lost_call_that_must_not_be_repeated_stops_and_names_it() -> None:
    play = doubtful()
    assert isinstance(play.action, Stop)
    assert isinstance(stopped := play.last, RunInterrupted)
    assert stopped.reason == "in_doubt"
    assert stopped.detail == "step a#1 was cut off in m1.t1, which must not be repeated blindly"


@pytest.mark.parametrize(("action", "forgets"), [("retry", False), ("continue", False)])
def test_a_person_decides_whether_a_lost_call_is_made_again(action: str, forgets: bool) -> None:
    play = doubtful()
    play.resume(NO_ONE, action=action)
    assert isinstance(play.action, Execute)
    calls = calls_of(play.run)
    assert (dict(calls.lost), calls.forgets) == ({}, forgets)
    answers = [event for event in play.events if isinstance(event, CallFinished)]
    assert [answer.by for answer in answers] == (["pat"] if action == "continue" else [])


def test_a_retry_keeps_what_was_answered_unless_it_is_to_be_fresh() -> None:
    for fresh in (False, True):
        play = doubtful()
        request = ResumeRequest("pat", None, "retry", None, fresh=fresh)
        (resumed,) = (
            event
            for event in decide_resume(play.definition, play.run, NO_ONE, request)
            if isinstance(event, RunResumed)
        )
        assert resumed.keeps_calls is not fresh
        opened = then(play.run, resumed).open_steps["a#1"]
        assert opened.calls is not None
        assert (dict(opened.calls.lost), opened.calls.forgets) == ({}, fresh)


def test_a_skip_of_a_use_in_doubt_goes_on_with_the_step_without_its_answer() -> None:
    play = doubtful()
    play.resume(NO_ONE, action="skip")
    assert isinstance(play.action, Execute)
    assert not calls_of(play.run).lost
    (answer,) = (event for event in play.events if isinstance(event, CallFinished))
    assert (answer.call, answer.value, answer.by) == ("m1.t1", None, "pat")


def test_a_retry_of_an_older_version_starts_anew() -> None:
    """Its event does not say that the answers are kept."""
    run = then(working(TOOL, LOST), CUT_OFF)
    assert calls_of(then(run, RunResumed(by="ann", action="retry", step="a#1"))).forgets


def test_a_retry_names_the_calls_to_make_again() -> None:
    play = doubtful()
    request = ResumeRequest("pat", None, "retry", None, repeats=("charge",))
    play.write(*decide_resume(play.definition, play.run, NO_ONE, request))
    assert [*calls_of(play.run).repeats] == ["charge"]


def test_a_decision_that_is_none_about_the_calls_leaves_them_alone() -> None:
    run = then(working(TOOL, LOST), CUT_OFF)
    skipped = RunResumed(by="ann", action="skip", step="a#1")
    assert calls_of(then(run, skipped)) == calls_of(run)


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (
            ResumeRequest("pat", None, "continue", None, answers={"m9": 1}),
            "'m9' is not in doubt in that step; calls in doubt: m1.t1.",
        ),
        (ResumeRequest("pat", None, "retry", None, answers={"m1.t1": 1}), "only valid with --continue"),
        (ResumeRequest("pat", None, "continue", None, repeats=("m1",)), "only valid with --retry"),
        (ResumeRequest("pat", None, "skip", None, fresh=True), "only valid with --retry"),
        (ResumeRequest("pat", None, "continue", None, answers={"m1.t1": {1, 2}}), "the answer of call"),
    ],
)
def test_answers_and_repeats_that_fit_no_decision_are_refused(request_: ResumeRequest, told: str) -> None:
    play = doubtful()
    with pytest.raises(InvalidInput) as refused:
        decide_resume(play.definition, play.run, NO_ONE, request_)
    assert told in str(refused.value)


def test_a_failed_attempt_asks_everything_again_unless_a_tool_has_acted() -> None:
    """Without an action the conversation begins anew; with one it continues, and knows the failure."""
    answered = replace(PAID, call="m1", type="model", thread="t2")
    fresh = calls_of(working(MODEL, answered, FAILED, started(attempt=2)))
    assert (fresh.generation, fresh.thread, fresh.failure) == (1, "", "")
    acted = calls_of(working(MODEL, answered, TOOL, PAID, FAILED, started(attempt=2)))
    assert (acted.generation, acted.thread, acted.failure) == (1, "t2", "busy")
    kept = calls_of(working(MODEL, answered, replace(FAILED, keeps_calls=True), started(attempt=2)))
    assert (kept.generation, kept.thread) == (0, "t2")


def test_a_step_that_was_asked_nothing_has_no_calls_to_remember() -> None:
    opened: OpenStep = working(FAILED, started(attempt=2)).open_steps["a#1"]
    assert opened.calls is None


def test_calls_that_neither_reserve_nor_speak_have_no_rows() -> None:
    run = working()
    assert call_rows(run, (MODEL, replace(PAID, call="m1", type="model"))) == ()
    assert call_rows(run, (LOST,)) == ()


def test_a_run_that_was_running_where_it_came_from_stops_or_is_in_doubt_here() -> None:
    for events, reason in (((MODEL,), "restart"), ((TOOL,), "in_doubt")):
        stops = [
            e for e in decide_arrival(working(*events), "w2", now_us=60) if isinstance(e, RunInterrupted)
        ]
        assert [stop.reason for stop in stops] == [reason]
        assert ("; step a#1 was cut off" in stops[0].detail) == (reason == "in_doubt")
    paused = then(held(), RunPaused(reason="operator"))
    assert decide_arrival(paused, "w2", now_us=60) == ()


def test_a_resume_from_a_finished_step_that_is_not_repeatable_says_so() -> None:
    play = Play("a [type=tool, repeatable=false]; b [type=tool]; start -> a -> b -> exit")
    assert repeat_notice(play.definition, play.run, "a") == ""
    play.succeed()
    assert repeat_notice(play.definition, play.run, "a").startswith(
        "a has finished before and is not repeatable"
    )
    assert (
        repeat_notice(play.definition, play.run, "b") == repeat_notice(play.definition, play.run, None) == ""
    )


def test_a_decision_about_one_of_several_stopped_steps_must_name_it() -> None:
    fan = "fan [shape=component]; join [shape=tripleoctagon]; a [type=tool, repeatable=false]"
    play = Play(
        f"{fan}; b [type=tool, repeatable=false]; start -> fan -> a -> join; fan -> b -> join -> exit"
    )
    request = ResumeRequest("pat", None, "retry", None)
    with pytest.raises(Refused, match="has several stopped steps") as refused:
        decide_resume(play.definition, play.run, DEAD, request)
    assert refused.value.code == "several_stopped"
