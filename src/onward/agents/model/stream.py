"""What a model sends back, in pieces, and the whole answer that the pieces make."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from enum import StrEnum

import msgspec

from onward.agents.model.request import AssistantMessage, Reasoning, Text, ToolCall

NAME_CHARACTERS_MAX = 64
ODD_IN_NAMES = re.compile("[^A-Za-z0-9_-]")
"""What providers do not take in the name of a tool."""
# Escapes of characters that need none in JSON: what is printable in ASCII, but the quote and the backslash.
_NEEDLESS = re.compile(
    r"(?<!\\)((?:\\\\)*)\\u00(2[013-9a-fA-F]|[346][0-9a-fA-F]|5[0-9abdefABDEF]|7[0-9a-eA-E])"
)


class Usage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """The model tokens of one request, as the provider counted them.

    `cached_input` and `cache_write` are part of `input`, and `reasoning` is part of `output`. Of
    `cache_write`, `cache_write_1h` was written to be kept for an hour, which costs more.
    """

    input: int = 0
    output: int = 0
    cached_input: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    reasoning: int = 0
    is_estimated: bool = False
    """Whether the provider did not say, and these are our own upper estimates."""

    @property
    def total(self) -> int:
        """All tokens that limits count."""
        return self.input + self.output


class FinishReason(StrEnum):
    """Why a model stopped writing."""

    STOP = "stop"
    LENGTH = "length"
    """The ceiling was reached: the answer is cut short."""
    TOOL_CALLS = "tool_calls"
    REFUSAL = "refusal"
    """The model or its provider declined to answer, wholly or from some point on."""
    OTHER = "other"


class TextDelta(msgspec.Struct, frozen=True, tag="text"):
    """More text of the answer."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, tag="reasoning", omit_defaults=True):
    """More text of the model's reasoning. A signature ends a part of it, and its text may be empty."""

    text: str
    signature: str = ""


class ToolCallDelta(msgspec.Struct, frozen=True, tag="tool_call_delta"):
    """More of a tool call, to be shown; the whole ToolCall follows. `index` counts the calls from 0."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class Finished(msgspec.Struct, frozen=True, tag="finished", kw_only=True):
    """The last piece: the answer is whole. `model` is as the provider names it, often with a date."""

    usage: Usage
    finish_reason: FinishReason
    model: str
    request_id: str = ""


Streamed = TextDelta | ReasoningDelta | ToolCallDelta | ToolCall | Finished
"""Deltas in any order, then every ToolCall, then one Finished, and nothing after it."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer."""

    message: AssistantMessage
    finished: Finished

    @property
    def text(self) -> str:
        """Its text, without reasoning and tool calls."""
        return "".join(part.text for part in self.message.parts if isinstance(part, Text))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tools that the model wishes to use."""
        return tuple(part for part in self.message.parts if isinstance(part, ToolCall))


class Collecting:
    """Puts the pieces of one answer together."""

    def __init__(self) -> None:
        self._parts: list[Text | Reasoning | ToolCall] = []
        self._run: list[str] = []
        self._is_reasoning = False
        self._ids: set[str] = set()
        self.finished: Finished | None = None

    def add(self, piece: Streamed) -> Streamed:
        """Take the next piece; the same as it is kept."""
        match piece:
            case TextDelta(text):
                self._append(text, is_reasoning=False)
            case ReasoningDelta(text, signature):
                if text:
                    self._append(text, is_reasoning=True)
                if signature:
                    self._sign(signature)
            case ToolCall():
                self._close()
                piece = self._plain(piece)
                self._parts.append(piece)
            case Finished():
                self._close()
                self.finished = piece
            case ToolCallDelta():
                pass  # the whole call follows
        return piece

    def message(self) -> AssistantMessage:
        """What has come so far."""
        self._close()
        return AssistantMessage(tuple(self._parts))

    def _append(self, text: str, *, is_reasoning: bool) -> None:
        if is_reasoning != self._is_reasoning:
            self._close()
            self._is_reasoning = is_reasoning
        self._run.append(text)

    def _sign(self, signature: str) -> None:
        """End the reasoning that has come since the last part, which may be none, with its signature."""
        if not self._is_reasoning:
            self._close()
        self._parts.append(Reasoning("".join(self._run), signature))
        self._run = []

    def _plain(self, call: ToolCall) -> ToolCall:
        """The call as every provider takes it back, with an id of its own, and as secrets are found in it."""
        id, number = call.id or "call", 1
        while id in self._ids:
            number += 1
            id = f"{call.id or 'call'}_{number}"
        self._ids.add(id)
        name = ODD_IN_NAMES.sub("_", call.name)[:NAME_CHARACTERS_MAX] or "unnamed"
        arguments = _NEEDLESS.sub(lambda found: found[1] + chr(int(found[2], 16)), call.arguments)
        return msgspec.structs.replace(call, id=id, name=name, arguments=arguments)

    def _close(self) -> None:
        if self._run:
            text = "".join(self._run)
            self._parts.append(Reasoning(text) if self._is_reasoning else Text(text))
            self._run = []


async def collect(pieces: AsyncIterator[Streamed]) -> Answer:
    """The whole answer; raises ModelFailed as the stream does."""
    collecting = Collecting()
    async for piece in pieces:
        collecting.add(piece)
    assert collecting.finished is not None, "a stream ends with Finished, or raises"
    return Answer(message=collecting.message(), finished=collecting.finished)
