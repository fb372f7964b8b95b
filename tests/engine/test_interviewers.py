"""Whoever answers: automatically, by a function, from a list, or on the record; and through the app."""

from __future__ import annotations

import pytest

from onward import (
    Answer,
    AutoApprove,
    CallbackInterviewer,
    Gate,
    Onward,
    QueueInterviewer,
    RecordingInterviewer,
    Run,
)
from onward.engine.control.requests import Informed, Interviewer, Said
from onward.errors import InvalidInput
from onward.model.gate import Choice, Verdict
from onward.model.run import RunStatus
from onward.store.memory.adapter import MemoryDatabase
from tests.machine.play import created

CHOICES = (Choice(key="R", label="Red", to="r"), Choice(key="B", label="Blue", to="b"))
RUN = created()
ASK = """digraph ask {
  start [shape=Mdiamond]; exit [shape=Msquare]
  ask [shape=hexagon, label="Which?" ATTRS]; why [shape=hexagon, label="Why?", human.type=freeform]
  start -> ask; ask -> why [label=Yes]; ask -> exit [label=No]; why -> exit
}"""


def gate(kind: str = "multiple_choice") -> Gate:
    return Gate(gate="g#1", node="g", text="?", choices=CHOICES, opened_at_us=0, type=kind)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("multiple_choice", Answer("R")),
        ("yes_no", Answer.approve()),
        ("confirmation", Answer.approve()),
        ("freeform", Answer(text="auto-approved")),
    ],
)
async def test_auto_approve_says_yes_to_everything(kind: str, expected: Answer) -> None:
    """D55: the first choice, yes, or words that say who spoke."""
    assert await AutoApprove().ask(RUN, gate(kind)) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("R", Answer("R")),
        (True, Answer(verdict=Verdict.APPROVE)),
        (False, Answer(verdict=Verdict.REJECT)),
        (None, Answer(skipped=True)),
        (Answer("B", "why not"), Answer("B", "why not")),
    ],
)
async def test_a_function_answers_sync_or_async(said: Said, expected: Answer) -> None:
    """D53, D57."""

    async def later(run: Run, gate: Gate) -> Said:
        return said

    assert await CallbackInterviewer("fn", lambda run, gate: said).ask(RUN, gate()) == expected
    assert await CallbackInterviewer("fn", later).ask(RUN, gate()) == expected


async def test_a_queue_answers_in_order_and_then_skips() -> None:
    """D58."""
    queue = QueueInterviewer(["R", False])
    assert [await queue.ask(RUN, gate()) for _ in range(3)] == [Answer("R"), Answer.reject(), Answer.skip()]
    assert queue.name == "queue"


async def test_a_recording_keeps_every_question_with_its_answer() -> None:
    """D58."""
    queue = QueueInterviewer(["R"], name="desk")
    record = RecordingInterviewer(queue)
    assert [await record.ask(RUN, gate()), await record.ask(RUN, gate("yes_no"))] == [
        Answer("R"),
        Answer.skip(),
    ]
    assert record.name == "desk"
    assert record.recorded == [(gate(), Answer("R")), (gate("yes_no"), Answer.skip())]
    replayed = QueueInterviewer([answer for _, answer in record.recorded])
    assert await replayed.ask(RUN, gate()) == Answer("R")


async def test_a_recording_passes_on_what_is_told() -> None:
    class Listening(QueueInterviewer):
        told: str = ""

        async def inform(self, message: str, stage: str) -> None:
            self.told = f"{stage}: {message}"

    listening = Listening([])
    await RecordingInterviewer(listening).inform("still open", "ask")
    assert listening.told == "ask: still open"
    await RecordingInterviewer(QueueInterviewer([])).inform("nobody listens", "ask")
    assert not isinstance(QueueInterviewer([]), Informed)


async def test_interviewers_are_registered_with_the_app() -> None:
    """D53: a function by decoration, an interviewer as it is."""
    app = Onward(MemoryDatabase().connect())

    @app.interviewer("boss")
    def boss(run: Run, gate: Gate) -> Said:
        return Answer.approve() if gate.node == "ask" else "because"

    queue = app.interviewer("queue")(QueueInterviewer(["No"]))
    assert isinstance(queue, QueueInterviewer)
    with pytest.raises(InvalidInput, match="needs a name"):
        app.interviewer("")
    async with app:
        pipeline = await app.pipeline(ASK.replace("ATTRS", ""))
        run = await app.run(pipeline, answers="boss")
        assert (run.status, run.context["human.gate.text"]) == (RunStatus.COMPLETED, "because")
        run = await app.run(pipeline, answers="queue")
        assert (run.status, run.context["human.gate.selected"]) == (RunStatus.COMPLETED, "N")
        run = await app.run(pipeline, answers=AutoApprove())
        assert run.context["human.gate.text"] == "auto-approved"


async def test_the_app_approves_and_rejects() -> None:
    async with Onward(MemoryDatabase().connect()) as app:
        pipeline = await app.pipeline(ASK.replace("ATTRS", ""))
        first, second = await app.run(pipeline), await app.run(pipeline)
        assert (await app.reject(first.id, "no need")).context["human.gate.text"] == "no need"
        asked = await app.approve(second.id, by="ann")
        assert list(asked.gates) == ["why#1"]
        done = await app.answer(second.id, Answer(text="so that"))
        assert (done.status, done.context["human.gate.text"]) == (RunStatus.COMPLETED, "so that")


def test_what_is_offered_for_import_is_an_interviewer() -> None:
    everyone: list[Interviewer] = [
        AutoApprove(),
        QueueInterviewer([]),
        CallbackInterviewer("fn", lambda run, gate: None),
        RecordingInterviewer(AutoApprove()),
    ]
    assert [one.name for one in everyone] == ["auto", "queue", "fn", "auto"]
