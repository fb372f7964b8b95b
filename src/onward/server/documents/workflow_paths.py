"""Document 004's paths: workflows are listed, shown, resumed, approved, rejected and cancelled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onward.errors import InvalidInput, Refused, RunNotFound
from onward.model.gate import Verdict
from onward.operations.http import APPROVER, LIMIT, LIMIT_MAX, OPERATOR, VIEWER
from onward.operations.requests import AnswerGate, CancelRun, GetRun, ListRuns, ResumeRun
from onward.server.api import decide, exact_run, key_of, known_parameters, look
from onward.server.documents.paths import Given, Nothing, body_of, is_asking, reply
from onward.server.documents.workflows import not_failed, workflow_state
from onward.server.place import Place
from onward.server.problems import Problem

if TYPE_CHECKING:
    from starlette.responses import Response

    from onward.operations.protocol import Operations
    from onward.replies.documents import WorkflowList, WorkflowState
    from onward.replies.runs import RunState
    from onward.server.context import Context
    from onward.server.place import Asked


OF_THE_REQUEST = ("stale_head", "key_reused")
"""Refusals that say nothing of how a workflow stands."""


class Approval(Given, frozen=True, kw_only=True):
    """A yes; `gate` says which question is meant, if there are several."""

    gate: str | None = None
    feedback: str = ""


class Rejection(Given, frozen=True, kw_only=True):
    """A no, and why."""

    feedback: str
    gate: str | None = None


class Cancellation(Given, frozen=True, kw_only=True):
    """That a workflow is given up, and why."""

    reason: str = ""


def places(context: Context) -> list[Place]:
    """Document 004's paths."""
    one = "/api/workflows/{id}"
    return [
        Place("GET", "/api/workflows", VIEWER, list_workflows),
        Place("GET", one, VIEWER, show),
        Place("POST", f"{one}/resume", OPERATOR, resume, is_new=True),
        Place("POST", f"{one}/approve", APPROVER, approve, is_new=True),
        Place("POST", f"{one}/reject", APPROVER, reject, is_new=True),
        Place("POST", f"{one}/cancel", OPERATOR, cancel),
    ]


async def list_workflows(asked: Asked) -> Response:
    """Workflows, newest first."""
    given = known_parameters(asked, ("cursor", "limit", "pipeline"))
    limit = given.get("limit", str(LIMIT))
    if not (limit.isascii() and limit.isdecimal() and len(limit) <= 3 and 1 <= int(limit) <= LIMIT_MAX):
        raise InvalidInput(f"limit is not a whole number from 1 to {LIMIT_MAX}.")
    request = ListRuns(cursor=given.get("cursor"), pipeline=given.get("pipeline"), limit=int(limit))

    async def read(operations: Operations) -> WorkflowList:
        page = await operations.lists.list_runs(request)
        states = [workflow_state(run, is_asking=await is_asking(operations, run)) for run in page["runs"]]
        return {"workflows": states, "cursor": page["cursor"]}

    return reply(await asked.context.reader.read(read))


async def show(asked: Asked) -> Response:
    """A workflow as it stands."""
    known_parameters(asked, ())
    return reply(_state(await _workflow(asked)))


async def resume(asked: Asked) -> Response:
    """Let a failed workflow continue after its last checkpoint."""
    await body_of(asked, Nothing)
    id = asked.path["id"]
    request = ResumeRun(run=_exact(id), by=asked.by, key=key_of(asked), only_stopped=True)
    try:
        run = await _decided(asked, "decide.resume_run", request)
    except Refused as refusal:
        why = None if refusal.code in OF_THE_REQUEST else _why_not(await _workflow(asked))
        if why is None:
            raise
        raise Refused("invalid_state", why, details=refusal.details) from refusal
    return reply(_state(run))


async def approve(asked: Asked) -> Response:
    """Answer what a workflow asks with yes; a worker continues it."""
    given = await body_of(asked, Approval)
    return await _answer(asked, Verdict.APPROVE, given.gate, given.feedback)


async def reject(asked: Asked) -> Response:
    """Answer what a workflow asks with no."""
    given = await body_of(asked, Rejection)
    if not given.feedback.strip():
        raise InvalidInput("`feedback` is missing; give the reason of the rejection.")
    return await _answer(asked, Verdict.REJECT, given.gate, given.feedback)


async def _answer(asked: Asked, verdict: Verdict, gate: str | None, text: str) -> Response:
    request = AnswerGate(
        run=_exact(asked.path["id"]), gate=gate, verdict=verdict, text=text, by=asked.by, key=key_of(asked)
    )
    return reply(_state(await _decided(asked, "decide.answer_gate", request)))


async def cancel(asked: Asked) -> Response:
    """Give a workflow up for good."""
    given = await body_of(asked, Cancellation)
    request = CancelRun(run=_exact(asked.path["id"]), reason=given.reason, by=asked.by, key=key_of(asked))
    return reply(_state(await _decided(asked, "decide.cancel_run", request)))


async def _decided(asked: Asked, asks: str, request: ResumeRun | AnswerGate | CancelRun) -> RunState:
    try:
        run: RunState = await decide(asked, asks, request, subject=asked.path["id"])
    except RunNotFound as missing:
        raise _unknown() from missing
    return run


async def _workflow(asked: Asked) -> RunState:
    try:
        run: RunState = await look(asked, "look.get_run", GetRun(run=_exact(asked.path["id"])))
    except RunNotFound as missing:
        raise _unknown() from missing
    return run


def _exact(id: str) -> str:
    try:
        return exact_run(id)
    except RunNotFound as missing:
        raise _unknown() from missing


def _unknown() -> Problem:
    return Problem(404, "run_not_found", "Workflow not found")


def _state(run: RunState) -> WorkflowState:
    return workflow_state(run, is_asking=_is_asking(run))


def _why_not(run: RunState) -> str | None:
    return not_failed(run, is_asking=_is_asking(run))


def _is_asking(run: RunState) -> bool:
    return any(gate["decided"] is None for gate in run["gates"])
