"""Replies about messages, and about chats with their runs and messages."""

from __future__ import annotations

from typing import TypedDict

from onward.replies.runs import BannerShown, GateOfRun, Instant, RunState


class ChatRunShown(RunState):
    """A run of a chat: what its message requested, and which of its planned agents are not finished."""

    intent: str | None
    scope: str | None
    user_message: str | None
    planned_agents: list[str]
    agents_left: list[str]


class MessageSent(TypedDict):
    """The outcome of a message. It is stored in every case.

    `outcome` is started, resumed, steered, answered, queued, gate, asked, limit or refused; `notice` says
    more in words. `run` is the run that it started, resumed or spoke to; `behind` the one that it waits for.
    `is_being_read`: that is one in which a model reads it.
    """

    chat: str
    message: str
    outcome: str
    notice: str
    is_repeat: bool
    run: ChatRunShown | None
    behind: str | None
    is_being_read: bool


class MessageWaiting(TypedDict):
    """A message that nothing was done about yet, and the run that it waits for."""

    message: str
    text: str
    said_by: str
    wish: str
    behind: str | None
    said_at: Instant


class ChatListed(TypedDict):
    """A chat as lists show it, with its newest run."""

    chat: str
    project: str | None
    created_at: Instant
    position: int
    run: str | None
    status: str | None
    reason: str
    waiting: int


class ChatList(TypedDict):
    """Chats, newest first; `cursor` gets the next page, if there may be one."""

    chats: list[ChatListed]
    cursor: str | None


class ChatPage(TypedDict):
    """A chat: whether one of its runs is under way, which one a message would resume, its newest runs, what
    was said last, and what waits.

    `banner` is that of its newest run that is not dismissed, and `gate` the first question of that run.
    """

    chat: str
    project: str | None
    created_at: Instant
    running: bool
    interrupted_run: str | None
    runs: list[ChatRunShown]
    messages: list[MessageShown]
    waiting: list[MessageWaiting]
    banner: BannerShown | None
    gate: GateOfRun | None


class PartShown(TypedDict):
    """A piece of a message's content: text, reasoning, tool_call or tool_result."""

    kind: str
    text: str


class MessagePiece(TypedDict):
    """A piece of a message, at its position in the chat.

    `kind` is start, text, reasoning, tool_call, tool_result, end, or reset: then `parts` is the whole
    message, and replaces what came of it before. `state` is that of the message, with an end or a reset.
    `number` is the try of its call.
    """

    position: int
    message: str
    kind: str
    text: str
    parts: list[PartShown]
    state: str | None
    chat: str
    run: str
    step: str
    call: str
    number: int
    role: str
    model: str


class MessageShown(TypedDict):
    """A message as far as it is written. `text` is its text alone, `parts` is everything."""

    id: str
    chat: str
    run: str
    step: str
    call: str
    number: int
    role: str
    state: str
    model: str
    begun_at: str
    changed_at: str
    ended_at: str | None
    first_position: int
    last_position: int | None
    text: str
    parts: list[PartShown]
