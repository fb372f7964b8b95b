"""What a message does to the runs of its chat, as a table: the runs, the message, what follows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from onward.chats.decide import (
    Action,
    AnswerAtGate,
    AskFirst,
    AwaitRun,
    ChatRun,
    Nothing,
    ResumeStopped,
    SeenMessage,
    ShowGate,
    StartAnew,
    StartRun,
    Steer,
    Supersede,
    decide,
)
from onward.model.chat import Wish
from onward.model.gate import Choice
from onward.model.run import Gate, RunStatus

CONTINUE = SeenMessage("continue?")
FRESH, RESUME = SeenMessage("start over", Wish.FRESH), SeenMessage("go on", Wish.RESUME)
QUEUED_BEFORE = SeenMessage("and a footer", has_waited=True)
GATE = Gate(
    gate="design#1",
    node="design",
    text="Which direction?",
    choices=(Choice(key="B", label="[B] Bold", to="a"), Choice(key="C", label="[C] Calm", to="b")),
    opened_at_us=0,
)
TWIN = Gate(gate="other#1", node="other", text="And here?", choices=GATE.choices, opened_at_us=0)
WORDS = Gate(gate="why#1", node="why", text="Why?", choices=(), opened_at_us=0, type="freeform")

INTERRUPTED = ChatRun("r1", RunStatus.INTERRUPTED, 9)
PAUSED = ChatRun("r1", RunStatus.PAUSED, 9)
FAILED = ChatRun("r1", RunStatus.FAILED, 9)
RUNNING = ChatRun("r1", RunStatus.RUNNING, 9)
STEERED = ChatRun("r1", RunStatus.RUNNING, 9, while_running="steer")
LEAVING = replace(RUNNING, is_leaving=True)
QUEUED = ChatRun("r1", RunStatus.QUEUED, 9)
WAITING = ChatRun("r1", RunStatus.WAITING, 9, gates=(GATE,))
ASKING = ChatRun("r1", RunStatus.WAITING, 9, gates=(WORDS,))
OLDER = ChatRun("r0", RunStatus.INTERRUPTED, 5)
ASKS = replace(INTERRUPTED, on_message="ask")
NEVER = replace(INTERRUPTED, on_message="never")
GONE = replace(STEERED, is_leaving=True)
TWO_GATES = replace(WAITING, gates=(GATE, TWIN))
BESIDE, BESIDE_WORDS = replace(RUNNING, gates=(GATE,)), replace(RUNNING, gates=(WORDS,))
ANEW = replace(CONTINUE, instead_of="r1")
FRESH_LATER = replace(FRESH, has_waited=True)
DISMISSED = replace(INTERRUPTED, is_dismissed=True)
WITHOUT_RESEARCH = replace(INTERRUPTED, missing=("research",))

TABLE: list[tuple[str, list[ChatRun], SeenMessage, Action]] = [
    ("a chat without runs starts one", [], CONTINUE, StartRun()),
    ("an interrupted run is resumed", [INTERRUPTED], CONTINUE, ResumeStopped(INTERRUPTED)),
    ("a run that a user stopped is resumed, too", [PAUSED], CONTINUE, ResumeStopped(PAUSED)),
    ("the most recent of several is resumed", [INTERRUPTED, OLDER], CONTINUE, ResumeStopped(INTERRUPTED)),
    ("a failed run does not hide an interrupted one", [FAILED, OLDER], CONTINUE, ResumeStopped(OLDER)),
    ("a failed run is not resumed by itself", [FAILED], CONTINUE, StartRun()),
    ("a failed run is resumed if that is said", [FAILED], RESUME, ResumeStopped(FAILED)),
    ("a run that cannot be resumed is not", [replace(FAILED, recoverable=False)], RESUME, StartRun()),
    ("a dismissed run is not resumed", [DISMISSED], CONTINUE, StartRun()),
    ("a dismissed run is not resumed by the flag either", [DISMISSED], RESUME, StartRun()),
    ("behind a dismissed run an older one is found", [DISMISSED, OLDER], CONTINUE, ResumeStopped(OLDER)),
    ("with nothing to resume, resume starts", [], RESUME, StartRun()),
    ("fresh cancels what was interrupted", [INTERRUPTED], FRESH, Supersede(INTERRUPTED)),
    ("fresh cancels what is under way", [RUNNING], FRESH, Supersede(RUNNING)),
    ("fresh cancels what waits", [WAITING], FRESH, Supersede(WAITING)),
    ("fresh cancels one after the other", [INTERRUPTED, OLDER], FRESH, Supersede(INTERRUPTED)),
    ("fresh waits for a run that is asked to leave", [LEAVING], FRESH, AwaitRun(LEAVING)),
    ("fresh that has waited cancels no run of an older message", [QUEUED], FRESH_LATER, AwaitRun(QUEUED)),
    ("fresh that has waited starts", [], FRESH_LATER, StartRun()),
    ("fresh leaves dismissed runs alone", [DISMISSED], FRESH, StartRun()),
    ("fresh leaves failed runs alone", [FAILED], FRESH, StartRun()),
    ("asking first asks", [ASKS], CONTINUE, AskFirst(ASKS)),
    ("the flag answers that question", [ASKS], RESUME, ResumeStopped(ASKS)),
    ("never starts", [NEVER], CONTINUE, StartRun()),
    ("the flag is stronger than never", [NEVER], RESUME, ResumeStopped(NEVER)),
    ("a missing required step starts over", [WITHOUT_RESEARCH], CONTINUE, StartAnew(WITHOUT_RESEARCH)),
    ("also with the flag", [WITHOUT_RESEARCH], RESUME, StartAnew(WITHOUT_RESEARCH)),
    ("what is started anew is cancelled first", [INTERRUPTED], ANEW, Supersede(INTERRUPTED)),
    ("and then nothing is in the way", [OLDER], ANEW, StartRun()),
    ("but another run is", [RUNNING], replace(CONTINUE, instead_of="r0"), AwaitRun(RUNNING)),
    ("a run under way is not joined by a second", [RUNNING], CONTINUE, AwaitRun(RUNNING)),
    ("nor is one that is queued", [QUEUED], CONTINUE, AwaitRun(QUEUED)),
    ("nor by the resume of an older one", [RUNNING, OLDER], CONTINUE, AwaitRun(RUNNING)),
    ("it is steered if its pipeline says so", [STEERED], CONTINUE, Steer(STEERED)),
    ("but not if it is leaving", [GONE], CONTINUE, AwaitRun(GONE)),
    ("resume twice is resume once", [RUNNING], RESUME, Nothing(RUNNING)),
    ("a gate is the reply", [WAITING], CONTINUE, ShowGate(WAITING)),
    ("a gate is the reply to resume, too", [WAITING], RESUME, ShowGate(WAITING)),
    ("the label of a choice answers", [WAITING], SeenMessage("calm"), AnswerAtGate(WAITING, GATE)),
    (
        "whoever may not answer is shown the question",
        [WAITING],
        SeenMessage("calm", may_answer=False),
        ShowGate(WAITING),
    ),
    ("the key of a choice answers", [WAITING], SeenMessage(" b "), AnswerAtGate(WAITING, GATE)),
    ("any words answer a gate for words", [ASKING], SeenMessage("because"), AnswerAtGate(ASKING, WORDS)),
    ("of two gates none is guessed", [TWO_GATES], SeenMessage("calm"), ShowGate(TWO_GATES)),
    ("a gate beside work is answered", [BESIDE], SeenMessage("Bold"), AnswerAtGate(BESIDE, GATE)),
    ("but never by any words", [BESIDE_WORDS], CONTINUE, AwaitRun(BESIDE_WORDS)),
    ("a message that waited starts its run", [], QUEUED_BEFORE, StartRun()),
    ("a message that waited resumes nothing: it was said before", [OLDER], QUEUED_BEFORE, StartRun()),
    ("a message that waited waits for the next run", [RUNNING], QUEUED_BEFORE, AwaitRun(RUNNING)),
    ("a message that waited keeps its turn where others steer", [STEERED], QUEUED_BEFORE, AwaitRun(STEERED)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("runs", "said", "action"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_what_a_message_does(runs: list[ChatRun], said: SeenMessage, action: Action) -> None:
    """S0-18, S0-27, S0-28, S0-41, S0-42, B0-1, B0-2, B0-3, B0-13, B0-15: the table above says which."""
    assert decide(runs, said) == action


@pytest.mark.parametrize("status", RunStatus)
@pytest.mark.parametrize("wish", Wish)
def test_no_message_starts_a_run_beside_one_that_continues_by_itself(status: RunStatus, wish: Wish) -> None:
    run = ChatRun("r1", status, 3)
    if run.is_going:
        assert not isinstance(decide([run], SeenMessage("more", wish)), StartRun | StartAnew | ResumeStopped)


def test_the_names_in_the_table_say_different_things() -> None:
    assert len({row[0] for row in TABLE}) == len(TABLE)
