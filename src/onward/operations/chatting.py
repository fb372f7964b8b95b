"""Replies about chats: what became of a message, and a chat with its runs and messages."""

from __future__ import annotations

from typing import TypedDict

from onward.operations.instant import Instant
from onward.operations.replies import RunState
from onward.operations.said import MessageShown


class ChatRunShown(RunState):
    """A run of a chat: what its message asked for, and which of its planned agents have yet to finish."""

    intent: str | None
    scope: str | None
    user_message: str | None
    planned_agents: list[str]
    agents_left: list[str]


class MessageSent(TypedDict):
    """What became of a message. It is stored, whatever `outcome` is.

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
    was said last, and what waits."""

    chat: str
    project: str | None
    created_at: Instant
    running: bool
    interrupted_run: str | None
    runs: list[ChatRunShown]
    messages: list[MessageShown]
    waiting: list[MessageWaiting]
