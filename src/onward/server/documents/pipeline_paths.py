"""Document 003's paths, which are its dialect's, and document 002's progress of a run."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from onward.operations.http import APPROVER, OPERATOR, PREFIX, VIEWER
from onward.operations.requests import (
    AnswerGate,
    CancelRun,
    DrawRun,
    GetRun,
    ListCheckpoints,
    ReadEvents,
    ShowRun,
    SubmitRun,
)
from onward.server.api import decide, exact_run, key_of, known_parameters, look
from onward.server.documents.dialect import pipeline_state, questions
from onward.server.documents.generation import generation_checkpoints
from onward.server.documents.paths import Given, Nothing, body_of, reply
from onward.server.feeds.room import after_of, stream_run
from onward.server.picture import picture_reply
from onward.server.place import STREAM, Place
from onward.server.problems import Problem

if TYPE_CHECKING:
    from onward.operations.protocol import Operations
    from onward.replies.documents import PipelineEvents, PipelineStarted
    from onward.replies.runs import RunState, Submitted
    from onward.replies.steps import Checkpoint, Drawing, EventShown
    from onward.server.context import Context
    from onward.server.place import Asked

EVENTS_MAX = 1_000
"""How many events a page has at least, where there are more."""


class NewPipeline(Given, frozen=True, kw_only=True):
    """What to start: the name of a registered pipeline. Its source cannot be sent."""

    pipeline: str | None = None
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    dot: str | None = None


class QuestionAnswer(Given, frozen=True, kw_only=True):
    """An answer: one of the options by its key or label, or text."""

    choice: str = ""
    text: str = ""


class NamedAnswer(QuestionAnswer, frozen=True, kw_only=True):
    """An answer to the question that it names, or to the only one."""

    question: str | None = None


def places(context: Context) -> list[Place]:
    """The paths of documents 002 and 003."""
    one = "/pipelines/{id}"
    return [
        Place("GET", f"{PREFIX}/runs/{{run}}/progress", VIEWER, progress),
        Place("POST", "/pipelines", OPERATOR, start, is_new=True),
        Place("GET", one, VIEWER, show),
        Place("GET", f"{one}/events", VIEWER, events),
        Place(STREAM, f"{one}/events", VIEWER, stream_events),
        Place("GET", f"{one}/graph", VIEWER, graph),
        Place("GET", f"{one}/questions", VIEWER, show_questions),
        Place("GET", f"{one}/checkpoint", VIEWER, checkpoint),
        Place("GET", f"{one}/context", VIEWER, show_context),
        Place("POST", f"{one}/cancel", OPERATOR, cancel),
        Place("POST", f"{one}/answer", APPROVER, answer, is_new=True),
        Place("POST", f"{one}/questions/{{question}}/answer", APPROVER, answer_named, is_new=True),
    ]


async def progress(asked: Asked) -> Response:
    """How far the open steps of a run have come with their calls."""
    known_parameters(asked, ())
    page = await look(asked, "look.show_run", ShowRun(run=exact_run(asked.path["run"])))
    return reply(generation_checkpoints(page))


async def start(asked: Asked) -> Response:
    """Start a registered pipeline."""
    given = await body_of(asked, NewPipeline)
    if given.dot is not None and not asked.context.settings.inline:
        raise Problem(
            403,
            "not_over_http",
            "dot cannot be sent over HTTP.",
            advice="Register the pipeline, and name it as `pipeline`.",
            details={"fields": ["dot"]},
        )
    request = SubmitRun(
        source=given.dot or "",
        pipeline=given.pipeline,
        inputs=given.inputs,
        on_owner_loss="interrupt",
        by=asked.by,
        key=key_of(asked),
    )
    made: Submitted = await decide(asked, "start.submit_run", request, subject=given.pipeline or "")
    started: PipelineStarted = {"id": made["run"]["id"]}
    response = reply(started, 201)
    response.headers["Location"] = f"/pipelines/{started['id']}"
    return response


async def show(asked: Asked) -> Response:
    """A pipeline's run as it stands."""
    return reply(pipeline_state(await _run(asked)))


async def events(asked: Asked) -> Response:
    """A page of what happened, under the names of the dialect; `cursor` is where the next one begins."""
    request = ReadEvents(run=exact_run(asked.path["id"]), after=after_of(asked), dialect=True)

    async def read(operations: Operations) -> PipelineEvents:
        found: list[EventShown] = []
        async with contextlib.aclosing(operations.look.read_events(request)) as shown:
            async for event in shown:
                # An event of the log may have several names: a page ends after the last of them.
                if len(found) >= EVENTS_MAX and event["seq"] != found[-1]["seq"]:
                    return {"events": found, "cursor": found[-1]["seq"]}
                found.append(event)
        return {"events": found, "cursor": None}

    return reply(await asked.context.reader.read(read))


async def stream_events(asked: Asked) -> Response:
    """The same as it happens; 204 where nothing more can come."""
    return await stream_run(asked, asked.path["id"], dialect=True)


async def graph(asked: Asked) -> Response:
    """The graph with the run in it, as SVG."""
    known_parameters(asked, ())
    drawn: Drawing = await look(asked, "look.draw_run", DrawRun(run=exact_run(asked.path["id"])))
    return picture_reply(drawn)


async def show_questions(asked: Asked) -> Response:
    """What the pipeline waits to be told."""
    return reply({"questions": questions(await _run(asked))})


async def checkpoint(asked: Asked) -> Response:
    """The last checkpoint."""
    known_parameters(asked, ())
    request = ListCheckpoints(run=exact_run(asked.path["id"]))

    async def read(operations: Operations) -> Checkpoint | None:
        found: Checkpoint | None = None
        async for one in operations.look.list_checkpoints(request):
            found = one
        return found

    return reply(await asked.context.reader.read(read))


async def show_context(asked: Asked) -> Response:
    """The values that the run carries from step to step."""
    return reply({"context": (await _run(asked))["context"]})


async def cancel(asked: Asked) -> Response:
    """Cancel the run for good."""
    await body_of(asked, Nothing)
    request = CancelRun(run=exact_run(asked.path["id"]), by=asked.by, key=key_of(asked))
    run: RunState = await decide(asked, "decide.cancel_run", request, subject=asked.path["id"])
    return reply(pipeline_state(run))


async def answer(asked: Asked) -> Response:
    """Answer a question that the body names, or the only one."""
    given = await body_of(asked, NamedAnswer)
    return await _answer(asked, given.question, given)


async def answer_named(asked: Asked) -> Response:
    """Answer the question in the path."""
    return await _answer(asked, asked.path["question"], await body_of(asked, QuestionAnswer))


async def _answer(asked: Asked, question: str | None, given: QuestionAnswer) -> Response:
    request = AnswerGate(
        run=exact_run(asked.path["id"]),
        gate=question,
        choice=given.choice,
        text=given.text,
        by=asked.by,
        key=key_of(asked),
    )
    run: RunState = await decide(asked, "decide.answer_gate", request, subject=asked.path["id"])
    return reply(pipeline_state(run))


async def _run(asked: Asked) -> RunState:
    known_parameters(asked, ())
    run: RunState = await look(asked, "look.get_run", GetRun(run=exact_run(asked.path["id"])))
    return run
