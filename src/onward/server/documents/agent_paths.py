"""Document 000's paths: a message starts or resumes the pipeline of a chat; a status describes its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onward.errors import ChatNotFound, InvalidInput, Refused
from onward.model.ids import EXACT, node_of, place_of
from onward.operations.http import ADMIN, APPROVER, OPERATOR, VIEWER
from onward.operations.requests import (
    AnswerGate,
    DrawRun,
    GetRun,
    ListLimits,
    PauseRun,
    SendMessage,
    ShowChat,
    ShowRun,
    ShowStep,
)
from onward.server.api import decide, key_of, known_parameters, look
from onward.server.documents import agents
from onward.server.documents.paths import Given, Nothing, body_of, reply
from onward.server.place import Place, has_role
from onward.server.problems import Problem, problem_reply

if TYPE_CHECKING:
    from starlette.responses import Response

    from onward.operations.protocol import Operations
    from onward.replies.chats import ChatPage, ChatRunShown, MessageSent
    from onward.replies.documents import AgentsStatus, AgentsStopped, CheckpointResolved
    from onward.replies.runs import GateShown, RunState
    from onward.replies.steps import RunPage
    from onward.server.context import Context
    from onward.server.place import Asked

RUNS_SHOWN = 10
CONTINUE = "continue"
"""What a message says that only asks for a resume."""
AGENT = "codergen"
"""The kind of a node that is an agent."""
UNDER_WAY = ("queued", "running", "waiting")


class Message(Given, frozen=True, kw_only=True):
    """A user's message in a chat, and whether it resumes the stopped run or starts over."""

    chat_id: str
    message: str | None = None
    resume: bool = False
    fresh: bool = False
    project: str | None = None
    pipeline: str | None = None


class OfChat(Given, frozen=True, kw_only=True):
    """A chat."""

    chat_id: str


class Selection(Given, frozen=True, kw_only=True):
    """The option that was selected at a checkpoint, by its place."""

    chat_id: str
    checkpoint_id: str
    selected_index: int


def places(context: Context) -> list[Place]:
    """Document 000's paths."""
    return [
        Place("POST", "/agents/run", OPERATOR, say, is_new=True),
        Place("POST", "/messages/send", OPERATOR, say, is_new=True),
        Place("GET", "/agents/status", VIEWER, show_status),
        Place("POST", "/agents/stop", OPERATOR, stop),
        Place("POST", "/agents/checkpoint", APPROVER, select, is_new=True),
        Place("GET", "/settings", VIEWER, show_settings),
        Place("PUT", "/settings/limits", ADMIN, change_limits),
        Place("DELETE", "/settings/limits", ADMIN, reset_limits),
    ]


# -- messages --------------------------------------------------------------------------------------------
async def say(asked: Asked) -> Response:
    """Store a message, and start, resume or steer what it asks for."""
    given = await body_of(asked, Message)
    request = SendMessage(
        chat=given.chat_id,
        text=await _text(asked, given),
        by=asked.by,
        key=key_of(asked),
        fresh=given.fresh,
        resume=given.resume,
        project=given.project,
        pipeline=given.pipeline,
        may_answer=has_role(asked.who, APPROVER),
    )
    sent: MessageSent = await decide(asked, "chats.send_message", request, subject=given.chat_id)
    kind = agents.REFUSED.get(sent["outcome"])
    return reply(agents.message_taken(sent)) if kind is None else _refused(asked, sent, kind)


async def _text(asked: Asked, given: Message) -> str:
    """What is said. A wish alone says it in its own words: to start anew is to say again what was said."""
    if given.message is not None:
        return given.message
    if given.fresh:
        run = await _interrupted(asked, given.chat_id)
        if run is not None and run["user_message"]:
            return run["user_message"]
    if given.resume:
        return CONTINUE
    raise InvalidInput("`message` is missing, and there is no stopped run whose message could be repeated.")


async def _interrupted(asked: Asked, chat: str) -> ChatRunShown | None:
    page = await find_chat(asked, chat)
    if page is None:
        return None
    return next((run for run in page["runs"] if run["id"] == page["interrupted_run"]), None)


def _refused(asked: Asked, sent: MessageSent, kind: str) -> Response:
    """A message that is stored, and that no run was started or resumed for."""
    code = "limit_exceeded" if sent["outcome"] == "limit" else "refused"
    about = {"errorType": kind, "chatId": sent["chat"], "messageId": sent["message"]}
    return problem_reply(Problem(409, code, sent["notice"], beside=about), asked.id)


# -- how a chat stands -----------------------------------------------------------------------------------
async def show_status(asked: Asked) -> Response:
    """The state of a chat; in an unknown chat nothing is running."""
    chat = known_parameters(asked, ("chatId",)).get("chatId")
    if not chat:
        raise InvalidInput("`chatId` is missing; it names the chat.")
    return reply(await asked.context.reader.read(lambda operations: _status(operations, chat)))


async def _status(operations: Operations, chat: str) -> AgentsStatus:
    try:
        page = await operations.chats.show_chat(ShowChat(chat=chat, runs=RUNS_SHOWN, messages=1))
    except ChatNotFound:
        return agents.NOTHING
    interrupted = await _stopped_run(operations, page)
    if not page["runs"]:
        return agents.agents_status(page, (), interrupted)
    newest = page["runs"][0]
    shown = await operations.look.show_run(ShowRun(run=EXACT + newest["id"]))
    names = newest["planned_agents"] or await agent_nodes(operations, newest["id"])
    return agents.agents_status(page, await _works(operations, shown, names), interrupted)


async def _stopped_run(operations: Operations, page: ChatPage) -> RunState | ChatRunShown | None:
    """The run that a message would resume, also if newer ones have ended since."""
    wanted = page["interrupted_run"]
    if wanted is None:
        return None
    known = next((run for run in page["runs"] if run["id"] == wanted), None)
    return known or await operations.look.get_run(GetRun(run=EXACT + wanted))


async def agent_nodes(operations: Operations, run: str) -> list[str]:
    """The nodes of a run's pipeline that are agents."""
    drawn = await operations.look.draw_run(DrawRun(run=EXACT + run))
    return [node["id"] for node in drawn["nodes"] if node["kind"] == AGENT]


async def _works(operations: Operations, run: RunPage, names: list[str]) -> list[agents.AgentWork]:
    """What the agents of a run were asked, and what they answered."""
    found: list[agents.AgentWork] = []
    for step in run["steps"]:
        if node_of(place_of(step["step"])) in names:
            shown = await operations.look.show_step(ShowStep(run=EXACT + run["id"], step=step["step"]))
            found.append(agents.AgentWork(step, shown["prompt"], shown["response"]))
    return found


async def find_chat(asked: Asked, chat: str) -> ChatPage | None:
    """A chat with its newest runs; None if it has no messages."""
    try:
        page: ChatPage = await look(
            asked, "chats.show_chat", ShowChat(chat=chat, runs=RUNS_SHOWN, messages=1)
        )
    except ChatNotFound:
        return None
    return page


# -- stopping, and checkpoints ---------------------------------------------------------------------------
async def stop(asked: Asked) -> Response:
    """Pause what runs in a chat, now; it can be resumed."""
    given = await body_of(asked, OfChat)
    page = await find_chat(asked, given.chat_id)
    runs = [] if page is None else [run for run in page["runs"] if run["status"] in UNDER_WAY]
    if not runs:
        raise Refused("invalid_state", f"nothing is running in chat {given.chat_id}.")
    run = runs[0]["id"]
    request = PauseRun(run=EXACT + run, after="now", by=asked.by, key=key_of(asked))
    await decide(asked, "decide.pause_run", request, subject=run)
    stopped: AgentsStopped = {"status": "stopped", "chatId": given.chat_id, "pipelineRunId": run}
    return reply(stopped)


GONE = ("gate_decided", "no_open_gate", "gate_expired")
"""Why a checkpoint that was open a moment ago takes no answer."""


async def select(asked: Asked) -> Response:
    """Answer a checkpoint with one of its options."""
    given = await body_of(asked, Selection)
    run, gate = await _checkpoint(asked, given)
    request = AnswerGate(
        run=EXACT + run,
        gate=gate["gate"],
        choice=agents.choice_at(gate, given.selected_index),
        content_hash=gate["content_hash"],  # the index means nothing for another question
        by=asked.by,
        key=key_of(asked),
    )
    try:
        await decide(asked, "decide.answer_gate", request, subject=f"{run} {gate['gate']}")
    except Refused as refusal:
        if refusal.code in GONE:
            raise _no_checkpoint(given) from refusal
        raise
    resolved: CheckpointResolved = {"status": "resolved"}
    return reply(resolved)


async def _checkpoint(asked: Asked, given: Selection) -> tuple[str, GateShown]:
    page = await find_chat(asked, given.chat_id)
    for run in () if page is None else page["runs"]:
        for gate in agents.open_gates(run):
            if gate["gate"] == given.checkpoint_id:
                return run["id"], gate
    raise _no_checkpoint(given)


def _no_checkpoint(given: Selection) -> Problem:
    return Problem(
        404,
        "checkpoint_not_found",
        f"checkpoint {given.checkpoint_id[:100]} of chat {given.chat_id[:100]} is unknown or resolved.",
    )


# -- limits ----------------------------------------------------------------------------------------------
async def show_settings(asked: Asked) -> Response:
    """The limits that count for every chat, run, day and project, and their defaults."""
    known_parameters(asked, ())
    listed = await look(asked, "limits.list_limits", ListLimits())
    return reply(agents.settings_shown(listed))


async def change_limits(asked: Asked) -> Response:
    """Set some of the limits. All are checked before the first is set."""
    given = await body_of(asked, agents.LimitsWanted)
    for change in agents.limit_changes(given, by=asked.by):
        await decide(asked, "limits.set_limit", change, subject="settings")
    return await show_settings(asked)


async def reset_limits(asked: Asked) -> Response:
    """Restore the limits of a new database."""
    await body_of(asked, Nothing)
    for reset in agents.limit_resets(by=asked.by):
        await decide(asked, "limits.reset_limits", reset, subject="settings")
    return await show_settings(asked)
