"""A scripted reply as the bytes of Anthropic's stream format, with fields and events that nobody knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from onward.agents.model import (
    FinishReason,
    ReasoningDelta,
    Streamed,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
)
from onward.testing.models.script import Played, Prompt, Reply
from onward.testing.models.wire import MESSAGES, OTHER_MESSAGE, event, joined

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}
_WORDS = {
    FinishReason.STOP: "end_turn",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.TOOL_CALLS: "tool_use",
    FinishReason.REFUSAL: "refusal",
    FinishReason.OTHER: "pause_turn",
}


class AnthropicWire:
    """Anthropic's messages."""

    key_header = "x-api-key"

    def prompt(self, path: str, found: Any) -> Prompt:
        """As the protocol says."""
        texts = ["\n\n".join(_texts(turn["content"])) for turn in found["messages"]]
        system = "".join(block["text"] for block in found.get("system", ()))
        return Prompt(
            model=found["model"],
            said=texts[-1],
            characters=len(system) + sum(map(len, texts)),
            max_tokens=found["max_tokens"],
            prefix=texts[-1] if found["messages"][-1]["role"] == "assistant" else "",
        )

    def events(self, act: Played, reply: Reply, prompt: Prompt) -> Iterator[bytes]:
        """As the protocol says."""
        usage: dict[str, Any] = {"usage": _usage(act.usage) | {"output_tokens": 1}} if reply.counts else {}
        begun = _message(prompt, []) | usage
        yield event({"type": "message_start", "message": begun}, "message_start") + event(
            {"type": "ping"}, "ping"
        )
        blocks = _Blocks()
        for piece in act.pieces:
            yield b"".join(event(told, told["type"]) for told in blocks.of(piece))
        ended = {"type": "message_delta", "delta": {"stop_reason": _WORDS[act.finish_reason]}}
        last = ended | ({"usage": _usage(act.usage)} if reply.counts else {})
        yield b"".join(event(told, told["type"]) for told in (*blocks.ended(), {"type": "news"}, last))
        if reply.has_done:
            yield event({"type": "message_stop"}, "message_stop")

    def whole(self, act: Played, reply: Reply, prompt: Prompt) -> bytes:
        """As the protocol says."""
        content: list[dict[str, Any]] = []
        if thought := joined(act, ReasoningDelta):
            content.append({"type": "thinking", "thinking": thought, "signature": ""})
        if text := joined(act, TextDelta):
            content.append({"type": "text", "text": text, "citations": None})
        for call in act.tool_calls:
            given = msgspec.Raw(call.arguments.encode())
            content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": given})
        told = _message(prompt, content) | {"stop_reason": _WORDS[act.finish_reason]}
        return msgspec.json.encode(told | ({"usage": _usage(act.usage)} if reply.counts else {}))

    def error(self, status: int) -> dict[str, Any]:
        """As the protocol says."""
        error = {"type": _TYPES.get(status, "api_error"), "message": MESSAGES.get(status, OTHER_MESSAGE)}
        return {"type": "error", "error": error, "request_id": "req_inside"}


class _Blocks:
    """Puts pieces into content blocks, each with its beginning and its end."""

    def __init__(self) -> None:
        self._kind = ""
        self._index = -1

    def of(self, piece: Streamed) -> Iterator[dict[str, Any]]:
        match piece:
            case TextDelta(text):
                yield from self._more("text", {"text": ""}, {"type": "text_delta", "text": text})
            case ReasoningDelta(text):
                start = {"thinking": "", "signature": ""}
                yield from self._more("thinking", start, {"type": "thinking_delta", "thinking": text})
            case ToolCallDelta(index, id, name, "") if id:
                yield from self._begin(f"tool_use {index}", {"id": id, "name": name, "input": {}})
                yield self._delta({"type": "input_json_delta", "partial_json": ""})
            case ToolCallDelta(arguments=arguments):
                yield self._delta({"type": "input_json_delta", "partial_json": arguments})
            case _:
                raise AssertionError(f"{piece!r} is no delta")

    def ended(self) -> Iterator[dict[str, Any]]:
        if self._kind:
            yield {"type": "content_block_stop", "index": self._index}

    def _more(self, kind: str, start: dict[str, Any], delta: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if kind != self._kind:
            yield from self._begin(kind, start)
        yield self._delta(delta)

    def _begin(self, kind: str, start: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield from self.ended()
        self._kind, self._index = kind, self._index + 1
        block = {"type": kind.partition(" ")[0], **start, "caller": {"type": "direct"}}
        yield {"type": "content_block_start", "index": self._index, "content_block": block}

    def _delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}


def _message(prompt: Prompt, content: list[dict[str, Any]]) -> dict[str, Any]:
    told = {"id": "msg_1", "type": "message", "role": "assistant", "model": prompt.model, "container": None}
    return told | {"content": content, "stop_reason": None, "stop_sequence": None}


def _texts(content: Any) -> Iterator[str]:
    for block in content:
        if block["type"] in ("text", "tool_result"):
            yield block.get("text") or block.get("content") or ""


def _usage(usage: TokenUsage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input - usage.cached_input - usage.cache_write,
        "cache_read_input_tokens": usage.cached_input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write - usage.cache_write_1h,
            "ephemeral_1h_input_tokens": usage.cache_write_1h,
        },
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
        "service_tier": "standard",
    }
