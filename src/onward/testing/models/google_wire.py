"""A scripted reply as the bytes of Google's stream format, with fields that nobody knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from onward.agents.model import FinishReason, ReasoningDelta, TextDelta, TokenUsage
from onward.testing.models.script import Played, Prompt, Reply
from onward.testing.models.wire import MESSAGES, OTHER_MESSAGE, event, joined

_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_WORDS = {
    FinishReason.STOP: "STOP",
    FinishReason.LENGTH: "MAX_TOKENS",
    FinishReason.TOOL_CALLS: "STOP",
    FinishReason.REFUSAL: "SAFETY",
    FinishReason.OTHER: "MALFORMED_FUNCTION_CALL",
}


class GoogleWire:
    """Google's generateContent. Tool calls come whole, each in one piece."""

    key_header = "x-goog-api-key"

    def prompt(self, path: str, found: Any) -> Prompt:
        """As the protocol says."""
        texts = ["\n\n".join(_texts(turn["parts"])) for turn in found["contents"]]
        system = "".join(part["text"] for part in found.get("systemInstruction", {}).get("parts", ()))
        return Prompt(
            model=path.rpartition("/")[2].partition(":")[0],
            said=texts[-1],
            characters=len(system) + sum(map(len, texts)),
            max_tokens=found.get("generationConfig", {}).get("maxOutputTokens"),
            prefix=texts[-1] if found["contents"][-1]["role"] == "model" else "",
        )

    def events(self, act: Played, reply: Reply, prompt: Prompt) -> Iterator[bytes]:
        """As the protocol says."""
        yield b": nothing is said before the first piece\n\n"
        for part in _parts(act):
            yield event(_chunk(prompt, [part]))
        yield event(_end(act, reply, prompt, []))

    def whole(self, act: Played, reply: Reply, prompt: Prompt) -> bytes:
        """As the protocol says: a list of chunks, as without `alt=sse`."""
        thought, text = joined(act, ReasoningDelta), joined(act, TextDelta)
        parts: list[dict[str, Any]] = [{"text": thought, "thought": True}] if thought else []
        parts += [{"text": text}] if text else []
        calls = [part for part in _parts(act) if "functionCall" in part]
        return msgspec.json.encode([_chunk(prompt, parts), _end(act, reply, prompt, calls)])

    def error(self, status: int) -> dict[str, Any]:
        """As the protocol says."""
        message, word = MESSAGES.get(status, OTHER_MESSAGE), _STATUSES.get(status, "UNKNOWN")
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


def _chunk(prompt: Prompt, parts: list[dict[str, Any]]) -> dict[str, Any]:
    candidate = {"content": {"parts": parts, "role": "model"}, "index": 0, "avgLogprobs": -0.1}
    return {"candidates": [candidate], "modelVersion": prompt.model, "responseId": "resp_1"}


def _end(act: Played, reply: Reply, prompt: Prompt, parts: list[dict[str, Any]]) -> dict[str, Any]:
    told = _chunk(prompt, parts)
    told["candidates"][0]["finishReason"] = _WORDS[act.finish_reason]
    return told | ({"usageMetadata": _usage(act.usage)} if reply.counts else {})


def _texts(parts: Any) -> Iterator[str]:
    for part in parts:
        if "text" in part:
            yield part["text"]
        elif "functionResponse" in part:
            yield "".join(part["functionResponse"]["response"].values())


def _usage(usage: TokenUsage) -> dict[str, Any]:
    return {
        "promptTokenCount": usage.input,
        "cachedContentTokenCount": usage.cached_input,
        "candidatesTokenCount": usage.output - usage.reasoning,
        "thoughtsTokenCount": usage.reasoning,
        "totalTokenCount": usage.total,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.input}],
    }
