"""The objects that a chat completion streams, as far as we read them. Unknown fields are passed over."""

from __future__ import annotations

from typing import Any

import msgspec

from onward.agents.model.stream import FinishReason, Usage
from onward.agents.wire.counting import count


class Function(msgspec.Struct, gc=False):
    """The name of a tool and a piece of its arguments, which a few servers send as an object."""

    name: str | None = None
    arguments: Any = None


class ToolPiece(msgspec.Struct, gc=False):
    """A piece of a tool call."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Delta(msgspec.Struct):
    """What is new; of a whole completion, all of it. `content` may be a list of parts."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: str | None = None
    tool_calls: list[ToolPiece] | None = None


class Choice(msgspec.Struct):
    """One of the answers; we ask for one."""

    index: int | None = 0
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None


class InputDetails(msgspec.Struct, gc=False):
    """Of which kinds the input was."""

    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class OutputDetails(msgspec.Struct, gc=False):
    """Of which kinds the output was."""

    reasoning_tokens: int | None = None


class Counted(msgspec.Struct, gc=False):
    """Tokens as the server counted them."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: InputDetails | None = None
    completion_tokens_details: OutputDetails | None = None

    def usage(self) -> Usage:
        """The same in our words."""
        given, made = self.prompt_tokens_details, self.completion_tokens_details
        counted_in, counted_out = count(self.prompt_tokens), count(self.completion_tokens)
        return Usage(
            input=counted_in,
            output=counted_out,
            cached_input=min(count(given.cached_tokens if given else 0), counted_in),
            cache_write=min(count(given.cache_write_tokens if given else 0), counted_in),
            reasoning=min(count(made.reasoning_tokens if made else 0), counted_out),
        )


class Chunk(msgspec.Struct):
    """One event of the stream, or a whole completion."""

    model: str | None = None
    choices: list[Choice] | None = None
    usage: Counted | None = None
    error: Any = None
    object: str | None = None
    message: Any = None
    """What is wrong, if the chunk itself is the error, as some servers have it."""
    code: Any = None

    def failed(self) -> Any:
        """The error that it tells; None if it tells none."""
        if self.error is None and self.object == "error":
            return {"message": self.message, "code": self.code}
        return self.error


decode_chunk = msgspec.json.Decoder(Chunk).decode

FINISHES: dict[str, FinishReason] = {
    "stop": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "content_filter": FinishReason.REFUSAL,
    "refusal": FinishReason.REFUSAL,
    "safety": FinishReason.REFUSAL,
}
