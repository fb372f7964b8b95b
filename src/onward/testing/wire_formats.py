"""A scripted reply as the bytes of three providers' stream formats, as a server sends them.

`ServerWire` is what the endpoint needs of a format, and what all of them share stands beside it. The replies
have fields and events that nobody knows, so that a client which trips over them is found. The address that a
request went to says which format it is in (`wire_of`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from onward.agents.model import FinishReason, ReasoningDelta, Streamed, TextDelta, TokenUsage, ToolCallDelta
from onward.testing.script import Played, ScriptedReply, ScriptPrompt

PAGE = b"<html><head><title>It works!</title></head><body>...</body></html>"
MALFORMED = b'data: {"choices": [{"delta": {"conte\n\n'
MESSAGES = {
    401: "Incorrect API key provided.",
    429: "Rate limit reached.",
    500: "The server had an error.",
    503: "The engine is overloaded.",
    529: "The engine is overloaded.",
}
"""What an error says, in every format."""
OTHER_MESSAGE = "This cannot be done."


class ServerWire(Protocol):
    """One format, as a server speaks it."""

    key_header: str

    def prompt(self, path: str, found: Any) -> ScriptPrompt:
        """What a request asks for; KeyError, TypeError or AttributeError if it is of another shape."""
        ...

    def events(self, act: Played, reply: ScriptedReply, prompt: ScriptPrompt) -> Iterator[bytes]:
        """The beginning, then the bytes of each piece, then what ends the answer."""
        ...

    def whole(self, act: Played, reply: ScriptedReply, prompt: ScriptPrompt) -> bytes:
        """The answer as one JSON document."""
        ...

    def error(self, status: int) -> dict[str, Any]:
        """The body of an error with this status."""
        ...


def error_body(reply: ScriptedReply, wire: ServerWire) -> bytes:
    """The body of an error: the script's, or one as the format has it."""
    return reply.body.encode() if reply.body is not None else msgspec.json.encode(wire.error(reply.status))


def error_headers(reply: ScriptedReply) -> dict[str, str]:
    """The headers of an error, in lower case."""
    given = {"content-type": reply.content_type}
    return given | ({"retry-after": reply.retry_after} if reply.retry_after else {})


def joined(act: Played, kind: type[TextDelta] | type[ReasoningDelta]) -> str:
    """All text of one kind."""
    return "".join(piece.text for piece in act.pieces if isinstance(piece, kind))


def event(data: dict[str, Any], name: str = "") -> bytes:
    """One server-sent event."""
    named = f"event: {name}\n".encode() if name else b""
    return named + b"data: " + msgspec.json.encode(data) + b"\n\n"


_OPENAI_ERRORS: dict[int, dict[str, str]] = {
    401: {"code": "invalid_api_key"},
    429: {"code": "rate_limit_exceeded"},
    500: {"type": "server_error"},
    503: {"type": "service_unavailable_error"},
}


class OpenAIWire:
    """OpenAI's chat completions."""

    key_header = "authorization"

    def prompt(self, path: str, found: Any) -> ScriptPrompt:
        """As the protocol says."""
        texts = [message.get("content") or "" for message in found["messages"]]
        most = found.get("max_completion_tokens", found.get("max_tokens"))
        return ScriptPrompt(
            model=found["model"],
            said=texts[-1],
            earlier="\n\n".join(texts[:-1]),
            characters=sum(map(len, texts)),
            max_tokens=most,
            prefix=texts[-1] if found["messages"][-1]["role"] == "assistant" else "",
        )

    def events(self, act: Played, reply: ScriptedReply, prompt: ScriptPrompt) -> Iterator[bytes]:
        """As the protocol says."""
        yield _openai_event(prompt, [_choice({"role": "assistant", "content": ""})])
        for piece in act.pieces:
            yield _openai_event(prompt, [_choice(_delta(piece, is_refusal=bool(reply.refusal)))])
        yield _openai_event(prompt, [_choice({}, _openai_finish(act.finish_reason))])
        if reply.counts:
            yield _openai_event(prompt, [], usage=_openai_usage(act.usage))
        if reply.has_done:
            yield b"data: [DONE]\n\n"

    def whole(self, act: Played, reply: ScriptedReply, prompt: ScriptPrompt) -> bytes:
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
        choice = {"index": 0, "message": message, "finish_reason": _openai_finish(act.finish_reason)}
        found: dict[str, Any] = {"object": "chat.completion", "model": prompt.model, "choices": [choice]}
        return msgspec.json.encode(found | ({"usage": _openai_usage(act.usage)} if reply.counts else {}))

    def error(self, status: int) -> dict[str, Any]:
        """As the protocol says."""
        return {"error": {"message": MESSAGES.get(status, OTHER_MESSAGE), **_OPENAI_ERRORS.get(status, {})}}


def _openai_event(prompt: ScriptPrompt, choices: list[dict[str, Any]], **more: Any) -> bytes:
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


def _openai_finish(finish: FinishReason) -> str:
    return "content_filter" if finish is FinishReason.REFUSAL else finish.value


def _openai_usage(usage: TokenUsage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached_input},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


_ANTHROPIC_ERRORS = {
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
_ANTHROPIC_FINISHES = {
    FinishReason.STOP: "end_turn",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.TOOL_CALLS: "tool_use",
    FinishReason.REFUSAL: "refusal",
    FinishReason.OTHER: "pause_turn",
}


class AnthropicWire:
    """Anthropic's messages."""

    key_header = "x-api-key"

    def prompt(self, path: str, found: Any) -> ScriptPrompt:
        """As the protocol says."""
        texts = ["\n\n".join(_anthropic_texts(turn["content"])) for turn in found["messages"]]
        system = "".join(block["text"] for block in found.get("system", ()))
        return ScriptPrompt(
            model=found["model"],
            said=texts[-1],
            earlier="\n\n".join(texts[:-1]),
            characters=len(system) + sum(map(len, texts)),
            max_tokens=found["max_tokens"],
            prefix=texts[-1] if found["messages"][-1]["role"] == "assistant" else "",
        )

    def events(self, act: Played, reply: ScriptedReply, prompt: ScriptPrompt) -> Iterator[bytes]:
        """As the protocol says."""
        usage: dict[str, Any] = (
            {"usage": _anthropic_usage(act.usage) | {"output_tokens": 1}} if reply.counts else {}
        )
        begun = _message(prompt, []) | usage
        yield event({"type": "message_start", "message": begun}, "message_start") + event(
            {"type": "ping"}, "ping"
        )
        blocks = _Blocks()
        for piece in act.pieces:
            yield b"".join(event(told, told["type"]) for told in blocks.of(piece))
        ended = {"type": "message_delta", "delta": {"stop_reason": _ANTHROPIC_FINISHES[act.finish_reason]}}
        last = ended | ({"usage": _anthropic_usage(act.usage)} if reply.counts else {})
        yield b"".join(event(told, told["type"]) for told in (*blocks.ended(), {"type": "news"}, last))
        if reply.has_done:
            yield event({"type": "message_stop"}, "message_stop")

    def whole(self, act: Played, reply: ScriptedReply, prompt: ScriptPrompt) -> bytes:
        """As the protocol says."""
        content: list[dict[str, Any]] = []
        if thought := joined(act, ReasoningDelta):
            content.append({"type": "thinking", "thinking": thought, "signature": ""})
        if text := joined(act, TextDelta):
            content.append({"type": "text", "text": text, "citations": None})
        for call in act.tool_calls:
            given = msgspec.Raw(call.arguments.encode())
            content.append({"type": "tool_use", "id": call.id, "name": call.name, "input": given})
        told = _message(prompt, content) | {"stop_reason": _ANTHROPIC_FINISHES[act.finish_reason]}
        return msgspec.json.encode(told | ({"usage": _anthropic_usage(act.usage)} if reply.counts else {}))

    def error(self, status: int) -> dict[str, Any]:
        """As the protocol says."""
        error = {
            "type": _ANTHROPIC_ERRORS.get(status, "api_error"),
            "message": MESSAGES.get(status, OTHER_MESSAGE),
        }
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


def _message(prompt: ScriptPrompt, content: list[dict[str, Any]]) -> dict[str, Any]:
    told = {"id": "msg_1", "type": "message", "role": "assistant", "model": prompt.model, "container": None}
    return told | {"content": content, "stop_reason": None, "stop_sequence": None}


def _anthropic_texts(content: Any) -> Iterator[str]:
    for block in content:
        if block["type"] in ("text", "tool_result"):
            yield block.get("text") or block.get("content") or ""


def _anthropic_usage(usage: TokenUsage) -> dict[str, Any]:
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


_GOOGLE_ERRORS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_GOOGLE_FINISHES = {
    FinishReason.STOP: "STOP",
    FinishReason.LENGTH: "MAX_TOKENS",
    FinishReason.TOOL_CALLS: "STOP",
    FinishReason.REFUSAL: "SAFETY",
    FinishReason.OTHER: "MALFORMED_FUNCTION_CALL",
}


class GoogleWire:
    """Google's generateContent. Tool calls come whole, each in one piece."""

    key_header = "x-goog-api-key"

    def prompt(self, path: str, found: Any) -> ScriptPrompt:
        """As the protocol says."""
        texts = ["\n\n".join(_google_texts(turn["parts"])) for turn in found["contents"]]
        system = "".join(part["text"] for part in found.get("systemInstruction", {}).get("parts", ()))
        return ScriptPrompt(
            model=path.rpartition("/")[2].partition(":")[0],
            said=texts[-1],
            earlier="\n\n".join(texts[:-1]),
            characters=len(system) + sum(map(len, texts)),
            max_tokens=found.get("generationConfig", {}).get("maxOutputTokens"),
            prefix=texts[-1] if found["contents"][-1]["role"] == "model" else "",
        )

    def events(self, act: Played, reply: ScriptedReply, prompt: ScriptPrompt) -> Iterator[bytes]:
        """As the protocol says."""
        yield b": nothing is said before the first piece\n\n"
        for part in _parts(act):
            yield event(_chunk(prompt, [part]))
        yield event(_end(act, reply, prompt, []))

    def whole(self, act: Played, reply: ScriptedReply, prompt: ScriptPrompt) -> bytes:
        """As the protocol says: a list of chunks, as without `alt=sse`."""
        thought, text = joined(act, ReasoningDelta), joined(act, TextDelta)
        parts: list[dict[str, Any]] = [{"text": thought, "thought": True}] if thought else []
        parts += [{"text": text}] if text else []
        calls = [part for part in _parts(act) if "functionCall" in part]
        return msgspec.json.encode([_chunk(prompt, parts), _end(act, reply, prompt, calls)])

    def error(self, status: int) -> dict[str, Any]:
        """As the protocol says."""
        message, word = MESSAGES.get(status, OTHER_MESSAGE), _GOOGLE_ERRORS.get(status, "UNKNOWN")
        return {"error": {"code": status, "message": message, "status": word, "details": []}}


def _parts(act: Played) -> Iterator[dict[str, Any]]:
    for piece in act.pieces:
        match piece:
            case TextDelta(text):
                yield {"text": text}
            case ReasoningDelta(text):
                yield {"text": text, "thought": True}
            case _:
                pass  # calls come whole
    for call in act.tool_calls:
        given = msgspec.Raw(call.arguments.encode())
        yield {"functionCall": {"id": call.id, "name": call.name, "args": given}}


def _chunk(prompt: ScriptPrompt, parts: list[dict[str, Any]]) -> dict[str, Any]:
    candidate = {"content": {"parts": parts, "role": "model"}, "index": 0, "avgLogprobs": -0.1}
    return {"candidates": [candidate], "modelVersion": prompt.model, "responseId": "resp_1"}


def _end(
    act: Played, reply: ScriptedReply, prompt: ScriptPrompt, parts: list[dict[str, Any]]
) -> dict[str, Any]:
    told = _chunk(prompt, parts)
    told["candidates"][0]["finishReason"] = _GOOGLE_FINISHES[act.finish_reason]
    return told | ({"usageMetadata": _google_usage(act.usage)} if reply.counts else {})


def _google_texts(parts: Any) -> Iterator[str]:
    for part in parts:
        if "text" in part:
            yield part["text"]
        elif "functionResponse" in part:
            yield "".join(part["functionResponse"]["response"].values())


def _google_usage(usage: TokenUsage) -> dict[str, Any]:
    return {
        "promptTokenCount": usage.input,
        "cachedContentTokenCount": usage.cached_input,
        "candidatesTokenCount": usage.output - usage.reasoning,
        "thoughtsTokenCount": usage.reasoning,
        "totalTokenCount": usage.total,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.input}],
    }


PATHS: tuple[tuple[re.Pattern[str], ServerWire], ...] = (
    (re.compile(r"/v1/chat/completions"), OpenAIWire()),
    (re.compile(r"/v1/messages"), AnthropicWire()),
    (re.compile(r"/v1(?:beta)?/models/[^/]+:streamGenerateContent\?alt=sse"), GoogleWire()),
)


def wire_of(path: str) -> ServerWire | None:
    """The format of a request to this path; None if there is nothing."""
    return next((wire for pattern, wire in PATHS if pattern.fullmatch(path)), None)
