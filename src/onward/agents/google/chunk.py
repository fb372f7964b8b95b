"""The objects that generateContent streams, as far as we read them. Unknown fields are passed over."""

from __future__ import annotations

from typing import Any

import msgspec

from onward.agents.model.stream import FinishReason, Usage
from onward.agents.wire.counting import count

EMPTY = msgspec.Raw(b"{}")


class FunctionCall(msgspec.Struct):
    """A tool call, which comes whole; a few models give it no id."""

    name: str | None = None
    id: str | None = None
    args: msgspec.Raw = EMPTY


class Part(msgspec.Struct, rename="camel"):
    """A part of the answer: text, a thought, or a call; a signature may stand beside each, or alone."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None


class Content(msgspec.Struct):
    """What is new."""

    parts: list[Part] | None = None


class Candidate(msgspec.Struct, rename="camel"):
    """One of the answers; we ask for one."""

    index: int | None = 0
    content: Content | None = None
    finish_reason: str | None = None


class Counted(msgspec.Struct, rename="camel", gc=False):
    """Tokens as the server counted them so far. Thoughts and what tools gave come on top."""

    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None

    def usage(self) -> Usage:
        """The same in our words, where thoughts are output."""
        given = count(count(self.prompt_token_count) + count(self.tool_use_prompt_token_count))
        thought = count(self.thoughts_token_count)
        return Usage(
            input=given,
            output=count(count(self.candidates_token_count) + thought),
            cached_input=min(count(self.cached_content_token_count), given),
            reasoning=thought,
        )


class Feedback(msgspec.Struct, rename="camel"):
    """Why there is no answer at all."""

    block_reason: str | None = None


class Chunk(msgspec.Struct, rename="camel"):
    """One event of the stream."""

    candidates: list[Candidate] | None = None
    usage_metadata: Counted | None = None
    prompt_feedback: Feedback | None = None
    model_version: str | None = None
    response_id: str | None = None
    error: Any = None


decode_chunks = msgspec.json.Decoder(Chunk | list[Chunk]).decode
"""A server that is not asked for events sends all of them as one list."""

FINISHES: dict[str, FinishReason] = {
    "STOP": FinishReason.STOP,
    "MAX_TOKENS": FinishReason.LENGTH,
    **dict.fromkeys(
        ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "IMAGE_SAFETY"),
        FinishReason.REFUSAL,
    ),
}
"""Others, such as MALFORMED_FUNCTION_CALL, are no reason that anything can be done about."""
