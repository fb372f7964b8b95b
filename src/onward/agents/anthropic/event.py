"""The events that a message streams, as far as we read them. Unknown fields and events are passed over."""

from __future__ import annotations

from typing import Any

import msgspec

from onward.agents.model.stream import FinishReason, Usage
from onward.agents.wire.counting import count

EMPTY = msgspec.Raw(b"")


class Block(msgspec.Struct):
    """A content block: text, thinking, redacted_thinking or tool_use; others are passed over."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = EMPTY


class Delta(msgspec.Struct):
    """What is new in a block, or why the message ends."""

    type: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class CacheWrites(msgspec.Struct, gc=False):
    """What was written into the cache, by how long it is kept."""

    ephemeral_5m_input_tokens: int | None = None
    ephemeral_1h_input_tokens: int | None = None


class OutputDetails(msgspec.Struct, gc=False):
    """Of which kinds the output was."""

    thinking_tokens: int | None = None


class Counted(msgspec.Struct):
    """Tokens as the server counted them so far. What its cache gave and took comes on top of the input."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: CacheWrites | None = None
    output_tokens_details: OutputDetails | None = None

    def updated(self, later: Counted) -> Counted:
        """With what a later event counts; what it leaves out stays."""
        told = {name: value for name, value in msgspec.structs.asdict(later).items() if value is not None}
        return msgspec.structs.replace(self, **told)

    def usage(self) -> Usage:
        """The same in our words, where the input is all of it."""
        kept, made = self.cache_creation, self.output_tokens_details
        long = count(kept.ephemeral_1h_input_tokens if kept else 0)
        short = count(kept.ephemeral_5m_input_tokens if kept else 0)
        read, written = (
            count(self.cache_read_input_tokens),
            max(count(self.cache_creation_input_tokens), long + short),
        )
        output = count(self.output_tokens)
        return Usage(
            input=count(count(self.input_tokens) + read + written),
            output=output,
            cached_input=read,
            cache_write=written,
            cache_write_1h=long,
            reasoning=min(count(made.thinking_tokens if made else 0), output),
        )


class Message(msgspec.Struct):
    """The message that begins; of a server that does not stream, all of it."""

    model: str | None = None
    usage: Counted | None = None
    content: list[Block] | None = None
    stop_reason: str | None = None


class Event(Message):
    """One event of the stream, or a whole message."""

    type: str = ""
    index: int | None = None
    message: Message | None = None
    content_block: Block | None = None
    delta: Delta | None = None
    error: Any = None


_decode = msgspec.json.Decoder(Event).decode
_EVENTS = ("message_start", "content_block_start", "content_block_delta", "message_delta", "message")
_BLOCKS = ("text", "thinking", "redacted_thinking", "tool_use")
_DELTAS = ("text_delta", "thinking_delta", "signature_delta", "input_json_delta", None)


def decode_event(data: bytes) -> Event | None:
    """The event; None if it is one of later days, whose fields may mean something else."""
    try:
        return _decode(data)
    except msgspec.ValidationError:
        if _is_known(msgspec.json.decode(data)):
            raise
        return None


def _is_known(found: Any) -> bool:
    """Whether all that is in an event should have the shape that we know."""
    if not isinstance(found, dict) or not isinstance(found.get("type"), str):
        return True
    block, delta = found.get("content_block"), found.get("delta")
    return (
        found["type"] in _EVENTS
        and (not isinstance(block, dict) or block.get("type") in _BLOCKS)
        and (not isinstance(delta, dict) or delta.get("type") in _DELTAS)
    )


FINISHES: dict[str, FinishReason] = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "tool_use": FinishReason.TOOL_CALLS,
    "refusal": FinishReason.REFUSAL,
}
