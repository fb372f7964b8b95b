"""A scripted reply as the bytes of OpenAI's stream format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from onward.agents.model.stream import (
    FinishReason,
    ReasoningDelta,
    Streamed,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from onward.testing.models.script import Played, Prompt, Reply

ERRORS: dict[int, dict[str, str]] = {
    401: {"message": "Incorrect API key provided.", "code": "invalid_api_key"},
    429: {"message": "Rate limit reached.", "code": "rate_limit_exceeded"},
    500: {"message": "The server had an error.", "type": "server_error"},
    503: {"message": "The engine is overloaded.", "type": "service_unavailable_error"},
}
STREAM_ERROR = {"error": {"message": "The server had an error.", "type": "server_error"}}
PAGE = b"<html><head><title>It works!</title></head><body>...</body></html>"
MALFORMED = b'data: {"choices": [{"delta": {"conte\n\n'


def error_body(reply: Reply) -> bytes:
    """The body of an error."""
    if reply.body is not None:
        return reply.body.encode()
    return msgspec.json.encode({"error": ERRORS.get(reply.status, {"message": "This cannot be done."})})


def error_headers(reply: Reply) -> dict[str, str]:
    """The headers of an error, in lower case."""
    given = {"content-type": reply.content_type}
    return given | ({"retry-after": reply.retry_after} if reply.retry_after else {})


def events(act: Played, reply: Reply, prompt: Prompt) -> Iterator[bytes]:
    """The events of a whole answer, one by one."""
    yield _event(prompt, [_choice({"role": "assistant", "content": ""})])
    for piece in act.pieces:
        yield _event(prompt, [_choice(_delta(piece, is_refusal=bool(reply.refusal)))])
    yield _event(prompt, [_choice({}, _word(act.finish_reason))])
    if reply.counts:
        yield _event(prompt, [], usage=_usage(act.usage))
    if reply.has_done:
        yield b"data: [DONE]\n\n"


def whole(act: Played, reply: Reply, prompt: Prompt) -> bytes:
    """The answer as one JSON object."""
    message: dict[str, Any] = {"role": "assistant", "content": _joined(act, TextDelta)}
    if thought := _joined(act, ReasoningDelta):
        message["reasoning_content"] = thought
    if act.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in act.tool_calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": _word(act.finish_reason)}
    found: dict[str, Any] = {"object": "chat.completion", "model": prompt.model, "choices": [choice]}
    return msgspec.json.encode(found | ({"usage": _usage(act.usage)} if reply.counts else {}))


def _joined(act: Played, kind: type[TextDelta] | type[ReasoningDelta]) -> str:
    return "".join(piece.text for piece in act.pieces if isinstance(piece, kind))


def _event(prompt: Prompt, choices: list[dict[str, Any]], **more: Any) -> bytes:
    told = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": prompt.model}
    return b"data: " + msgspec.json.encode({**told, "choices": choices, **more}) + b"\n\n"


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


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached_input},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
