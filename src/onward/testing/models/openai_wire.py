"""A scripted reply as the bytes of OpenAI's stream format."""

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

_WORDS: dict[int, dict[str, str]] = {
    401: {"code": "invalid_api_key"},
    429: {"code": "rate_limit_exceeded"},
    500: {"type": "server_error"},
    503: {"type": "service_unavailable_error"},
}


class OpenAIWire:
    """OpenAI's chat completions."""

    key_header = "authorization"

    def prompt(self, path: str, found: Any) -> Prompt:
        """As the protocol says."""
        texts = [message.get("content") or "" for message in found["messages"]]
        most = found.get("max_completion_tokens", found.get("max_tokens"))
        return Prompt(
            model=found["model"],
            said=texts[-1],
            characters=sum(map(len, texts)),
            max_tokens=most,
            prefix=texts[-1] if found["messages"][-1]["role"] == "assistant" else "",
        )

    def events(self, act: Played, reply: Reply, prompt: Prompt) -> Iterator[bytes]:
        """As the protocol says."""
        yield _event(prompt, [_choice({"role": "assistant", "content": ""})])
        for piece in act.pieces:
            yield _event(prompt, [_choice(_delta(piece, is_refusal=bool(reply.refusal)))])
        yield _event(prompt, [_choice({}, _word(act.finish_reason))])
        if reply.counts:
            yield _event(prompt, [], usage=_usage(act.usage))
        if reply.has_done:
            yield b"data: [DONE]\n\n"

    def whole(self, act: Played, reply: Reply, prompt: Prompt) -> bytes:
        """As the protocol says."""
        message: dict[str, Any] = {"role": "assistant", "content": joined(act, TextDelta)}
        if thought := joined(act, ReasoningDelta):
            message["reasoning_content"] = thought
        if act.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in act.tool_calls
            ]
        choice = {"index": 0, "message": message, "finish_reason": _word(act.finish_reason)}
        found: dict[str, Any] = {"object": "chat.completion", "model": prompt.model, "choices": [choice]}
        return msgspec.json.encode(found | ({"usage": _usage(act.usage)} if reply.counts else {}))

    def error(self, status: int) -> dict[str, Any]:
        """As the protocol says."""
        return {"error": {"message": MESSAGES.get(status, OTHER_MESSAGE), **_WORDS.get(status, {})}}


def _event(prompt: Prompt, choices: list[dict[str, Any]], **more: Any) -> bytes:
    told = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": prompt.model}
    return event({**told, "choices": choices, **more})


def _choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _delta(piece: Streamed, *, is_refusal: bool) -> dict[str, Any]:
    match piece:
        case TextDelta(text):
            return {"refusal" if is_refusal else "content": text}
        case ReasoningDelta(text):
            return {"reasoning_content": text}
        case ToolCallDelta(index, id, name, arguments):
            call: dict[str, Any] = {"index": index, "function": {"arguments": arguments}}
            if id:
                call |= {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            return {"tool_calls": [call]}
        case _:
            raise AssertionError(f"{piece!r} is no delta")


def _word(finish: FinishReason) -> str:
    return "content_filter" if finish is FinishReason.REFUSAL else finish.value


def _usage(usage: TokenUsage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached_input},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
