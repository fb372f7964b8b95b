"""Replies about messages: pieces as they come, and whole messages."""

from __future__ import annotations

from typing import TypedDict


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
    """A message with what it says so far. `text` is its text alone, `parts` is everything."""

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
