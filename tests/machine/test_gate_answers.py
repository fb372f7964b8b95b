"""Human gates: every type of question, verdicts that any gate understands, deadlines and reminders."""

from __future__ import annotations

import pytest

from onward.errors import InvalidInput, Refused
from onward.machine.decide.requests import HolderView, decide_claim, next_deadline, next_reminder, overdue
from onward.machine.plan.action import Sleep, Stop, Wait
from onward.machine.plan.results import finish
from onward.model.events import (
    BranchFinished,
    Event,
    RunClaimed,
    RunForked,
    RunPaused,
    RunWaiting,
    StepFinished,
)
from onward.model.gate import Answer, Choice, GateDecided, GateOpened
from onward.model.result import Result
from onward.model.run import Gate, RunStatus
from tests.machine.play import NO_ONE, Play

SECOND = 1_000_000
AHEAD = "b [type=tool]; c [type=tool]; b -> exit; c -> exit; start -> g; "
APPROVE_REJECT = 'g -> b [label="[A] Approve"]; g -> c [label="[R] Reject"]'


def ask(attrs: str = "", edges: str = APPROVE_REJECT, context: dict[str, str] | None = None) -> Play:
    return Play(f'{AHEAD} g [shape=hexagon, label="Ship it?", {attrs}]; {edges}', context)


def opened(play: Play) -> GateOpened:
    return next(event for event in play.events if isinstance(event, GateOpened))


def offers(play: Play) -> list[tuple[str, str, str]]:
    return [(choice.key, choice.label, choice.to) for choice in opened(play).choices]


def decided(events: tuple[Event, ...]) -> GateDecided:
    [event] = events
    assert isinstance(event, GateDecided)
    return event


# -- what is asked -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attrs", "text"),
    [
        ("", "Ship it?"),
        ("prompt=Really", "Really"),
        ('prompt=Really, human.question="All of it?"', "All of it?"),
    ],
)
def test_the_question_is_the_gates_question_or_prompt_or_label(attrs: str, text: str) -> None:
    """D41: the label, unless something more to the point is written. P12."""
    assert opened(ask(attrs)).text == text


def test_a_question_is_stored_with_all_that_answering_it_needs() -> None:
    """D54: type, default, deadline, rule, reminder and metadata, so that nobody needs the pipeline for it."""
    play = ask(
        'human.type=MULTIPLE_CHOICE, human.default_choice=c, human.timeout=2s, human.remind="500ms", '
        "human.metadata.team=ops, human.metadata.level=3"
    )
    event = opened(play)
    assert (event.type, event.default, event.on_timeout) == ("multiple_choice", "R", "default")
    assert (event.deadline_us, event.remind_us) == (play.now_us + 2 * SECOND, SECOND // 2)
    assert event.metadata == {"team": "ops", "level": "3"}
    gate = play.run.gates["g#1"]
    for name in ("type", "default", "deadline_us", "on_timeout", "remind_us", "metadata"):
        assert getattr(gate, name) == getattr(event, name)


def test_the_timeout_of_the_node_is_the_gates_too() -> None:
    assert opened(ask("timeout=3s")).deadline_us == 4 * SECOND
    assert opened(ask("timeout=3s, human.timeout=1s")).deadline_us == 2 * SECOND


# -- types of questions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        (APPROVE_REJECT, [("A", "[A] Approve", "b"), ("R", "[R] Reject", "c")]),
        ("g -> c [label=No]; g -> b [label=Yes]", [("Y", "Yes", "b"), ("N", "No", "c")]),
        ("g -> b [label=Ok]; g -> c [label=Rework]", [("O", "Ok", "b"), ("N", "Rework", "c")]),
        ("g -> b; g -> c [label=cancel]", [("Y", "Yes", "b"), ("C", "cancel", "c")]),
        ("g -> b; b -> c", [("Y", "Yes", "b"), ("N", "No", "")]),
        ('g -> b [label="[N] Yes"]; b -> c', [("N", "[N] Yes", "b"), ("2", "No", "")]),
    ],
)
def test_a_yes_no_question_offers_yes_and_no_by_what_its_edges_say(
    edges: str, expected: list[tuple[str, str, str]]
) -> None:
    """D54: of two edges the one without a word is the other answer; without an edge, no is a rejection."""
    assert offers(ask("human.type=yes_no", edges)) == expected


def test_a_confirmation_is_confirmed_or_cancelled() -> None:
    """D54."""
    play = ask("human.type=CONFIRMATION", "g -> b; b -> c")
    assert offers(play) == [("Y", "Confirm", "b"), ("N", "Cancel", "")]
    play.answer("confirm")
    play.claim()
    assert play.started.node == "b"


@pytest.mark.parametrize(("said", "node"), [("yes", "b"), ("y", "b"), ("OK", "b"), ("no", "c"), ("n", "c")])
def test_words_for_yes_and_no_are_understood_whatever_the_edges_are_called(said: str, node: str) -> None:
    """P12: for a yes/no question, and for choices. D41."""
    for kind in ("yes_no", "multiple_choice"):
        play = ask(f"human.type={kind}")
        play.answer(said)
        play.claim()
        assert play.started.node == node


def test_any_words_answer_a_question_for_words() -> None:
    """D54: they are kept, and go on by the only edge."""
    play = ask("human.type=freeform", "g -> b; b -> c")
    play.answer("Dear all, no.")
    play.claim()
    assert play.started.node == "b"
    assert play.run.context["human.gate.text"] == "Dear all, no."


def test_words_go_on_as_edges_are_chosen() -> None:
    """D54: with several edges, by their conditions, which see the words."""
    edges = 'g -> b [condition="context.human.gate.text=deploy"]; g -> c'
    for said, node in (("deploy", "b"), ("B", "c"), ("anything", "c")):
        play = ask("human.type=freeform", edges)
        assert decided(play.answer(said)).choice == Choice(key="", label="", to="")
        play.claim()
        assert (play.started.node, play.run.context["human.gate.selected"]) == (node, "")


def test_an_approval_needs_no_words() -> None:
    for edges, node in (("g -> b; b -> c", "b"), (APPROVE_REJECT, "b"), ("g -> b; g -> c [weight=1]", "c")):
        play = ask("human.type=freeform", edges)
        play.answer(Answer.approve())
        play.claim()
        assert play.started.node == node


def test_words_can_come_beside_a_choice_where_words_are_asked_for() -> None:
    play = ask("human.type=freeform")
    play.answer("R", text="not like this")
    play.claim()
    assert (play.started.node, play.run.context["human.gate.text"]) == ("c", "not like this")


@pytest.mark.parametrize("said", [Answer(), Answer("  "), Answer(text=" ")])
def test_no_words_are_no_answer_to_a_question_for_words(said: Answer) -> None:
    with pytest.raises(InvalidInput, match="gate g#1 asks for text; write some"):
        ask("human.type=freeform").answer(said)


def test_the_words_of_one_answer_are_not_taken_for_those_of_the_next() -> None:
    play = Play('g [shape=hexagon]; start -> g; g -> g [label="Again"]; g -> exit [label="Done"]')
    play.answer("again", text="the title is wrong")
    play.claim()
    assert play.run.context["human.gate.text"] == "the title is wrong"
    play.answer("done")
    play.claim()
    assert play.run.context["human.gate.text"] == ""


def test_a_question_that_cannot_be_asked_fails_the_run_and_says_why() -> None:
    """A transform can make what the checker never saw."""
    play = ask("", context={})
    graph = play.definition.graph
    broken = graph.nodes["g"].with_attrs({"human.type": "essay"})
    play = Play(type(play.definition)(type(graph)(nodes={**graph.nodes, "g": broken}, edges=graph.edges)))
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "pipeline_error")
    assert "one of multiple_choice, yes_no, confirmation, freeform" in play.run.detail


# -- approve and reject --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edges", "to"),
    [
        (APPROVE_REJECT, ("b", "c")),
        ("g -> c [label=No]; g -> b [label=Yes]", ("b", "c")),
        ("g -> b [label=OK]; g -> c [label=Deny]", ("b", "c")),
        ("g -> b [label=Go]; b -> c", ("b", "")),
    ],
)
def test_any_gate_can_be_approved_and_rejected(edges: str, to: tuple[str, str]) -> None:
    """A button need not know what the edges are called."""
    said = (Answer.approve(), Answer.reject())
    assert tuple(decided(ask("", edges).answer(answer)).choice.to for answer in said) == to


def test_an_approval_that_no_choice_stands_for_is_refused_with_what_is_offered() -> None:
    with pytest.raises(
        InvalidInput, match=r"no choice that approves .*; choose one of: R \(Red\), B \(Blue\)"
    ):
        ask("", "g -> b [label=Red]; g -> c [label=Blue]").answer(Answer.approve())
    with pytest.raises(InvalidInput, match="no choice that approves"):
        ask("", "g -> b [label=No]; b -> c").answer(Answer.approve())
    with pytest.raises(InvalidInput, match="no choice that approves"):
        ask("", 'g -> b [label="[1] Yes"]; g -> c [label="[2] Yes"]').answer(Answer.approve())


def test_a_rejection_that_no_edge_takes_fails_the_run_for_good() -> None:
    """Design §3: `failed/rejected`; the words are in the log and in the reason."""
    play = ask("", "g -> b [label=Red]; g -> c [label=Blue]")
    event = decided(play.answer(Answer.reject("not in this colour")))
    assert (event.rejected, event.expired, event.text) == (True, False, "not in this colour")
    play.claim()
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "rejected")
    assert play.run.detail == "pat rejected g#1: not in this colour"
    assert (play.run.stopped_step, play.run.wake_at_us) == ("g#1", None)
    with pytest.raises(Refused, match="a gate was rejected"):
        play.resume(NO_ONE)
    assert play.refolded() == play.run


def test_a_word_for_no_that_is_not_offered_does_not_end_the_run() -> None:
    """Only a verdict does: a slip of the tongue must not."""
    with pytest.raises(InvalidInput, match="has no choice 'no'"):
        ask("", "g -> b [label=Red]; g -> c [label=Blue]").answer("no")


def test_a_no_that_is_offered_ends_the_run() -> None:
    play = ask("human.type=yes_no", "g -> b; b -> c")
    play.answer("no", text="too early")
    play.claim()
    assert (play.run.reason, play.run.detail) == ("rejected", "pat rejected g#1: too early")


@pytest.mark.parametrize(
    ("attrs", "edges"),
    [
        ("", 'g -> b [label=Red]; g -> c [label=Blue, condition="outcome=fail"]'),
        ("retry_target=c", "g -> b [label=Red]; b -> c"),
        ("fallback_retry_target=c", "g -> b [label=Red]; b -> c"),
    ],
)
def test_a_rejection_follows_the_way_that_is_there_for_failures(attrs: str, edges: str) -> None:
    play = ask(attrs, edges)
    play.answer(Answer.reject("again"))
    play.claim()
    assert (play.started.node, play.run.context["human.gate.text"]) == ("c", "again")
    assert play.run.context["outcome"] == "fail"


@pytest.mark.parametrize("condition", ["context.k=1", "outcome!=retry", "context.outcome!=retry"])
def test_a_rejection_never_passes_for_an_approval(condition: str) -> None:
    """An edge that a success could take as well is not about the answer."""
    play = ask("", f'g -> b [label=Red, condition="{condition}"]; g -> c [label=Blue]', {"k": "1"})
    play.answer(Answer.reject())
    play.claim()
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "rejected")


def test_a_rejection_waits_for_a_pause_to_end() -> None:
    """Every stop honours a pending pause."""
    play = ask("", "g -> b [label=Red]; g -> c [label=Blue]")
    play.answer(Answer.reject())
    play.write(RunClaimed(token=play.run.token + 1, worker="second"))
    play.pause()
    assert play.go() == Stop((RunPaused(reason="operator", detail="asked by pat"),))
    play.resume(NO_ONE)
    assert play.run.reason == "rejected"


PARALLEL = """
  fan [shape=component]; join [shape=tripleoctagon]; x [type=tool]
  ask [shape=hexagon, label="Go?" {attrs}]; no [shape=hexagon, label="Sure?"]
  start -> fan; fan -> ask; fan -> no; fan -> x
  ask -> join [label=Red]; no -> join [label="Sure"]; x -> join; join -> exit
"""


def test_a_rejection_in_a_branch_fails_that_branch_alone() -> None:
    play = Play(PARALLEL.format(attrs=""))
    assert isinstance(play.action, Wait)
    play.answer(Answer.reject("no"), gate="fan#1.ask/ask#1")
    play.go()
    [ended] = [event for event in play.events if isinstance(event, BranchFinished)]
    assert (ended.branch, ended.status) == ("fan#1.ask", "fail")
    assert ended.reason == "pat rejected fan#1.ask/ask#1: no"
    assert play.run.status is RunStatus.RUNNING
    assert [name for name, gate in play.run.gates.items() if gate.decided is None] == ["fan#1.no/no#1"]


def test_the_same_verdict_again_is_nothing_and_the_opposite_is_refused() -> None:
    """I22, K13."""
    play = ask()
    play.answer(Answer.approve("fine"))
    assert play.answer("A", text="fine") == ()
    with pytest.raises(Refused) as refused:
        play.answer(Answer.reject())
    assert (refused.value.code, refused.value.details) == ("gate_decided", {"choice": "A", "by": "pat"})


def test_a_skipped_question_is_not_answered() -> None:
    with pytest.raises(InvalidInput, match="g#1 stays open"):
        ask().answer(Answer.skip())


# -- deadlines -----------------------------------------------------------------------------------------


def test_a_run_that_waits_can_be_claimed_when_the_deadline_of_its_gate_has_come() -> None:
    """Design §3: the wake time comes with the stop, and the rule decides with the claim. H6."""
    play = ask("human.timeout=2s, human.default_choice=c")
    assert play.last == RunWaiting(wake_at_us=3 * SECOND)
    assert play.run.wake_at_us == 3 * SECOND
    with pytest.raises(Refused, match="waits for an answer at g#1"):
        decide_claim(play.run, NO_ONE)
    play.now_us = 3 * SECOND
    late, claim = decide_claim(play.run, HolderView(None, False, "second", play.now_us))
    assert isinstance(late, GateDecided)
    assert (late.by, late.expired, late.rejected, late.choice.to) == ("deadline", True, False, "c")
    play.write(late, claim)
    play.go()
    assert play.started.node == "c"
    assert play.refolded() == play.run


@pytest.mark.parametrize("named", ["c", "R", "[R] Reject", "reject", "no"])
def test_a_default_choice_is_named_by_target_key_or_label(named: str) -> None:
    play = ask(f'human.timeout=2s, human.default_choice="{named}"')
    play.now_us = 9 * SECOND
    play.resume(NO_ONE)
    assert play.started.node == "c"


def test_a_deadline_can_reject() -> None:
    """By the edge for it, or as a failed run that says that nobody answered."""
    play = ask("human.timeout=2s, human.on_timeout=reject")
    play.now_us = 3 * SECOND
    play.claim()
    assert play.started.node == "c"
    play = ask("human.timeout=2s, human.on_timeout=reject", "g -> b [label=Red]; g -> c [label=Blue]")
    play.now_us = 3 * SECOND
    play.claim()
    assert (play.run.status, play.run.reason) == (RunStatus.FAILED, "rejected")
    assert play.run.detail == "g#1 was not answered in time, which rejects it"


@pytest.mark.parametrize("attrs", ["human.timeout=2s", "human.timeout=2s, human.on_timeout=none"])
def test_a_deadline_without_a_rule_leaves_the_gate_open(attrs: str) -> None:
    play = ask(attrs)
    assert play.run.gates["g#1"].deadline_us == 3 * SECOND
    assert play.run.wake_at_us is None
    play.now_us = 9 * SECOND
    with pytest.raises(Refused, match="waits for an answer"):
        play.resume(NO_ONE)
    play.answer("A")
    play.claim()
    assert play.started.node == "b"


def test_a_resume_after_the_deadline_goes_on_by_its_rule() -> None:
    play = ask("human.timeout=2s, human.default_choice=b")
    with pytest.raises(Refused, match="waits for an answer"):
        play.resume(NO_ONE)
    play.now_us = 3 * SECOND
    play.resume(NO_ONE)
    assert play.started.node == "b"
    kinds = [event.kind for event in play.events][-5:]
    assert kinds == ["RunWaiting", "GateDecided", "RunClaimed", "StepFinished", "StepStarted"]


def test_a_resume_after_the_deadline_can_go_elsewhere_or_give_up() -> None:
    play = ask("human.timeout=2s, human.default_choice=b")
    play.now_us = 3 * SECOND
    play.resume(NO_ONE, from_node="c")
    assert (play.started.node, play.run.gates) == ("c", {})
    play = ask("human.timeout=2s, human.default_choice=b")
    play.now_us = 3 * SECOND
    play.resume(NO_ONE, action="abort")
    assert play.run.status is RunStatus.CANCELLED


def test_an_answer_that_comes_too_late_is_refused_even_if_nobody_applied_the_rule() -> None:
    """What a run does must not depend on whether somebody was awake at its deadline."""
    play = ask("human.timeout=2s, human.on_timeout=reject")
    play.now_us = 3 * SECOND - 1
    assert play.run.gates["g#1"].deadline_us == play.now_us + 1
    play.now_us += 1
    with pytest.raises(
        Refused, match=r"`onward resume r` continues as the gate says \(it takes '\[R\] Reject'\)"
    ) as refused:
        play.answer("A")
    assert refused.value.code == "gate_expired"
    assert play.run.gates["g#1"].decided is None


def test_an_answer_to_a_gate_that_its_deadline_rejected_is_refused() -> None:
    play = ask("human.timeout=2s, human.on_timeout=reject", "g -> b [label=Red]; g -> c [label=Blue]")
    play.now_us = 3 * SECOND
    with pytest.raises(Refused, match=r"continues as the gate says \(it is rejected\)"):
        play.answer("R")


def test_an_answer_before_the_deadline_counts_after_it() -> None:
    play = ask("human.timeout=2s, human.on_timeout=reject")
    play.now_us = 3 * SECOND - 1
    play.answer("A")
    play.now_us = 9 * SECOND
    play.claim()
    assert play.started.node == "b"


def test_a_paused_run_meets_its_deadline_when_it_goes_on() -> None:
    play = ask("human.timeout=2s, human.default_choice=b")
    play.pause(NO_ONE)
    assert play.run.wake_at_us is None
    play.now_us = 9 * SECOND
    play.resume(NO_ONE)
    assert play.started.node == "b"


TIMED = PARALLEL.replace('label="Sure?"', 'label="Sure?", human.timeout=9s, human.default_choice=join')


def test_the_first_deadline_of_several_gates_wakes_the_run() -> None:
    play = Play(TIMED.format(attrs=", human.timeout=2s, human.on_timeout=reject"))
    assert play.action == Wait(starts=play.action.starts, until_us=3 * SECOND)  # type: ignore[union-attr]
    assert next_deadline(play.run) == 3 * SECOND
    play.now_us = 3 * SECOND
    play.go()
    ended = [event.branch for event in play.events if isinstance(event, BranchFinished)]
    assert ended == ["fan#1.ask"]
    assert play.action == Wait(until_us=10 * SECOND)
    play.now_us = 10 * SECOND
    play.go()
    ended = [event.branch for event in play.events if isinstance(event, BranchFinished)]
    assert ended == ["fan#1.ask", "fan#1.no"]


def test_a_branch_that_waits_for_a_retry_does_not_hide_the_deadline_of_another() -> None:
    body = TIMED.replace("x [type=tool]", "x [type=tool, max_retries=1, retry_policy=patient]")
    play = Play(body.format(attrs=", human.timeout=1s, human.default_choice=join"))
    failed = finish(
        play.definition, play.run, "fan#1.x/x#1", Result.retry("busy"), now_us=play.now_us, jitter=0.5
    )
    # The retry itself comes a second later.
    assert play.go(failed) == Sleep(2 * SECOND, "fan#1.x/x#1")


def test_a_fork_asks_its_open_questions_anew() -> None:
    """Whoever replays an old run has as much time to answer as there was then."""
    play = Play(TIMED.format(attrs=""))
    play.now_us = 500 * SECOND
    play.write(RunForked(parent="p", parent_seq=1, parent_hash="", by="pat"))
    gate = play.run.gates["fan#1.no/no#1"]
    assert (gate.opened_at_us, gate.deadline_us) == (500 * SECOND, 509 * SECOND)
    assert overdue(play.run, play.now_us) == ()


def test_a_decided_gate_keeps_its_answer_in_a_fork() -> None:
    play = Play(TIMED.format(attrs=""))
    play.answer("Sure", gate="fan#1.no/no#1")
    before = play.run.gates["fan#1.no/no#1"]
    play.write(RunForked(parent="p", parent_seq=1, parent_hash="", by="pat"))
    assert play.run.gates["fan#1.no/no#1"] == before


# -- reminders -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("now", "expected"), [(0, 15), (5, 15), (14, 15), (15, 25), (16, 25), (1000, 1005)])
def test_an_open_gate_is_announced_again_every_so_often(now: int, expected: int) -> None:
    gate = Gate(gate="g#1", node="g", text="?", choices=(), opened_at_us=5, remind_us=10)
    assert next_reminder(gate, now) == expected


def test_a_gate_that_is_decided_or_says_nothing_of_it_is_not_announced_again() -> None:
    gate = Gate(gate="g#1", node="g", text="?", choices=(), opened_at_us=5)
    assert next_reminder(gate, 0) is None
    yes = Choice(key="Y", label="Yes", to="b")
    done = Gate(gate="g#1", node="g", text="?", choices=(), opened_at_us=5, remind_us=10, decided=yes)
    assert next_reminder(done, 0) is None


def test_what_a_gate_decided_is_on_the_finished_step() -> None:
    """C7: the suggested target decides, the label is recorded."""
    play = ask()
    play.answer(Answer.approve())
    play.claim()
    finished = next(e for e in play.events if isinstance(e, StepFinished) and e.node == "g")
    assert finished.outcome.suggested_next_ids == ("b",)
    assert finished.context == {"human.gate.selected": "A", "human.gate.label": "[A] Approve"}
