"""Google's generateContent as a wire format. Pure.

In this order: the format; how models differ that speak it; a request as a JSON body (the same request gives
the same bytes); the objects that are streamed, as far as we read them (unknown fields are passed over); and
one answer, read chunk by chunk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from onward.agents import model as llm
from onward.agents.providers import Provider
from onward.agents.wire import (
    ABSENT,
    Count,
    ErrorInAnswer,
    Gathered,
    arguments_object,
    count,
    has_come,
    seal,
    unseal,
)

_VERSIONED = re.compile(r"/v1(?:alpha|beta)?$")
_COLLECTIONS = ("models", "tunedModels")


class GoogleFormat:
    """How one provider that speaks Google's generateContent is asked."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def address(self, model: str) -> str:
        """As the port says; people write the base_url with and without its version."""
        base = self._provider.base_url
        versioned = base if _VERSIONED.search(base) else f"{base}/v1beta"
        first, _, rest = model.partition("/")
        collection, name = (first, rest) if rest and first in _COLLECTIONS else ("models", model)
        return f"{versioned}/{collection}/{quote(name, safe='')}:streamGenerateContent?alt=sse"

    def headers(self, key: str) -> Mapping[str, str]:
        """As the port says; never in the address, which others log."""
        return {"x-goog-api-key": key} if key else {}

    def body(self, request: llm.ModelRequest, model: str) -> bytes:
        """As the port says."""
        told = self._provider.reasoning
        has_budget, has_level = takes_budget(model), takes_level(model)
        dialect = GoogleDialect(
            maker=f"{self._provider.name}:{model}",
            takes_level=told is not False and not has_budget and (has_level or told is True),
            takes_budget=told is not False and has_budget,
            wants_signatures=has_level,
        )
        return encode_body(request, dialect)

    def answer(self, model: str) -> GoogleAnswer:
        """As the port says."""
        return GoogleAnswer(f"{self._provider.name}:{model}")


_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")


def gemini_version(model: str) -> tuple[int, int] | None:
    """The version of a Gemini model; None for other models."""
    found = _VERSION.search(model.lower())
    return None if found is None else (int(found[1]), int(found[2] or 0))


def takes_level(model: str) -> bool:
    """Whether a model of this name takes `thinkingLevel`, and wants its signatures back."""
    found = gemini_version(model)
    return found is not None and found >= (3, 0)


def takes_budget(model: str) -> bool:
    """Whether a model of this name takes `thinkingBudget`."""
    return gemini_version(model) == (2, 5)


BUDGETS = {llm.Effort.LOW: 1_024, llm.Effort.MEDIUM: 8_192, llm.Effort.HIGH: 24_576}
"""The tokens that Google's own endpoint for OpenAI's format gives to each effort."""
UNSIGNED = "skip_thought_signature_validator"
"""What stands for the signature of a call that another model made."""
_OUR_ID = re.compile(r"call_\d+")
"""The id of a call that came without one."""

TOOL_CHOICES = {llm.ToolChoice.REQUIRED: "ANY", llm.ToolChoice.NONE: "NONE"}


class GoogleDialect(msgspec.Struct, frozen=True, kw_only=True):
    """What the model understands."""

    maker: str
    """`provider:model`, whose signatures the model takes back."""
    takes_level: bool = False
    takes_budget: bool = False
    wants_signatures: bool = False


def encode_body(request: llm.ModelRequest, dialect: GoogleDialect) -> bytes:
    """The body; the model is in the address."""
    body: dict[str, Any] = {"contents": _Contents(dialect).of(request.messages)}
    if request.system:
        body["systemInstruction"] = {"parts": [{"text": request.system}]}
    if request.tools:
        body["tools"] = [{"functionDeclarations": [_tool(tool) for tool in request.tools]}]
        if request.tool_choice is not None:
            mode = {"mode": TOOL_CHOICES[request.tool_choice]}
            body["toolConfig"] = {"functionCallingConfig": mode}
    if config := _config(request, dialect):
        body["generationConfig"] = config
    return msgspec.json.encode(body)


def _config(request: llm.ModelRequest, dialect: GoogleDialect) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if request.max_tokens is not None:
        config["maxOutputTokens"] = request.max_tokens
    if request.temperature is not None:
        config["temperature"] = request.temperature
    if request.stop:
        config["stopSequences"] = list(request.stop)
    if request.format is not None:
        config |= _format(request.format)
    if request.effort is not None and dialect.takes_level:
        config["thinkingConfig"] = {"thinkingLevel": request.effort.value, "includeThoughts": True}
    elif request.effort is not None and dialect.takes_budget:
        config["thinkingConfig"] = {"thinkingBudget": BUDGETS[request.effort], "includeThoughts": True}
    return config


def _format(wanted: llm.Format) -> dict[str, Any]:
    match wanted:
        case llm.JsonFormat():
            return {"responseMimeType": "application/json"}
        case llm.SchemaFormat(_, schema):
            return {"responseMimeType": "application/json", "responseJsonSchema": schema}


class _Contents:
    """The turns of a conversation. A result names its function, which only the call before it says."""

    def __init__(self, dialect: GoogleDialect) -> None:
        self._dialect = dialect
        self._names: dict[str, str] = {}

    def of(self, messages: tuple[llm.Message, ...]) -> list[dict[str, Any]]:
        """The turns, each role's together."""
        turns: list[dict[str, Any]] = []
        for message in messages:
            role = "model" if isinstance(message, llm.AssistantMessage) else "user"
            parts = self._parts(message)
            if turns and turns[-1]["role"] == role:
                turns[-1]["parts"] += parts
            elif parts:
                turns.append({"role": role, "parts": parts})
        return turns

    def _parts(self, message: llm.Message) -> list[dict[str, Any]]:
        match message:
            case llm.UserMessage(parts):
                return [{"text": part.text} for part in parts]
            case llm.ToolMessage(results):
                return [self._result(result) for result in results]
            case llm.AssistantMessage(said):
                return self._said(said)

    def _said(self, parts: tuple[llm.Text | llm.Reasoning | llm.ToolCall, ...]) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []
        has_call = False
        for part in parts:
            match part:
                case llm.Text(text) if text:
                    told.append({"text": text})
                case llm.Reasoning(text, signature):
                    if proof := unseal(self._dialect.maker, signature):
                        thought = {"text": text, "thought": True} if text else {"text": ""}
                        told.append(thought | {"thoughtSignature": proof[1]})
                case llm.ToolCall():
                    told.append(self._call(part, is_first=not has_call))
                    has_call = True
        return told

    def _call(self, call: llm.ToolCall, *, is_first: bool) -> dict[str, Any]:
        self._names[call.id] = call.name
        function = _id(call.id) | {"name": call.name, "args": arguments_object(call.arguments)}
        told: dict[str, Any] = {"functionCall": function}
        if proof := unseal(self._dialect.maker, call.signature):
            told["thoughtSignature"] = proof[1]
        elif is_first and self._dialect.wants_signatures:
            told["thoughtSignature"] = UNSIGNED
        return told

    def _result(self, result: llm.ToolResult) -> dict[str, Any]:
        name = self._names.get(result.call_id, result.call_id)
        response = {"error" if result.is_error else "output": result.text}
        return {"functionResponse": _id(result.call_id) | {"name": name, "response": response}}


def _id(call_id: str) -> dict[str, Any]:
    return {} if _OUR_ID.fullmatch(call_id) else {"id": call_id}


def _tool(tool: llm.Tool) -> dict[str, Any]:
    told: dict[str, Any] = {"name": tool.name, "description": tool.description}
    return told | ({"parametersJsonSchema": tool.parameters} if tool.parameters else {})


EMPTY = msgspec.Raw(b"{}")


class FunctionCall(msgspec.Struct):
    """A tool call, which comes whole; a few models give it no id."""

    name: str | None = None
    id: str | None = None
    args: msgspec.Raw = EMPTY


class CandidatePart(msgspec.Struct, rename="camel"):
    """A part of the answer: text, a thought, or a call; a signature may stand beside each, or alone."""

    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: FunctionCall | None = None


class Content(msgspec.Struct):
    """What is new."""

    parts: list[CandidatePart] | None = None


class GoogleCandidate(msgspec.Struct, rename="camel"):
    """One of the answers; we ask for one."""

    index: int | None = 0
    content: Content | None = None
    finish_reason: str | None = None


class GoogleCounts(msgspec.Struct, rename="camel", gc=False):
    """Tokens as the server counted them so far. Thoughts and what tools gave come on top."""

    prompt_token_count: Count = None
    cached_content_token_count: Count = None
    tool_use_prompt_token_count: Count = None
    candidates_token_count: Count = None
    thoughts_token_count: Count = None

    def usage(self) -> llm.TokenUsage:
        """The same in our words, where thoughts are output."""
        given = count(self.prompt_token_count) + count(self.tool_use_prompt_token_count)
        thought = count(self.thoughts_token_count)
        return llm.TokenUsage(
            input=given,
            output=count(self.candidates_token_count) + thought,
            cached_input=min(count(self.cached_content_token_count), given),
            reasoning=thought,
        )


class Feedback(msgspec.Struct, rename="camel"):
    """Why there is no answer at all."""

    block_reason: str | None = None


class LateGoogleChunk(msgspec.Struct, rename="camel"):
    """What may follow a whole answer. Tokens are read on their own: no answer is given up for them."""

    usage_metadata: msgspec.Raw = ABSENT


class GoogleChunk(LateGoogleChunk, rename="camel"):
    """One event of the stream."""

    candidates: list[GoogleCandidate] | None = None
    prompt_feedback: Feedback | None = None
    model_version: str | None = None
    response_id: str | None = None
    error: Any = None


decode_chunks = msgspec.json.Decoder(GoogleChunk | list[GoogleChunk]).decode
"""A server that is not asked for events sends all of them as one list."""
decode_late_chunk = msgspec.json.Decoder(LateGoogleChunk).decode
decode_counts = msgspec.json.Decoder(GoogleCounts).decode

FINISHES: dict[str, llm.FinishReason] = {
    "STOP": llm.FinishReason.STOP,
    "MAX_TOKENS": llm.FinishReason.LENGTH,
    **dict.fromkeys(
        ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "IMAGE_SAFETY"),
        llm.FinishReason.REFUSAL,
    ),
}
"""Others, such as MALFORMED_FUNCTION_CALL, are no reason that anything can be done about."""


UNKNOWN = "FINISH_REASON_UNSPECIFIED"


class GoogleAnswer(Gathered):
    """What has come of an answer, and whether it is whole. Nothing marks the end of this format's stream."""

    def __init__(self, maker: str) -> None:
        super().__init__()
        self._maker = maker
        self._counted = ABSENT

    def read(self, event: bytes) -> Iterator[llm.Streamed]:
        """As the format's port says."""
        found = decode_chunks(event)
        for chunk in found if isinstance(found, list) else [found]:
            yield from self._chunk(chunk)

    def read_late(self, event: bytes) -> None:
        """As the format's port says."""
        self._tokens(decode_late_chunk(event))

    def _tokens(self, chunk: LateGoogleChunk) -> None:
        """Until the answer is whole, what is counted is a part."""
        if has_come(chunk.usage_metadata):
            self._counted = chunk.usage_metadata.copy()
        if self.is_whole and has_come(self._counted):
            self.count_usage(lambda: decode_counts(self._counted).usage())

    def _chunk(self, chunk: GoogleChunk) -> Iterator[llm.Streamed]:
        if chunk.error is not None:
            raise ErrorInAnswer(chunk.error)
        self.model = chunk.model_version or self.model
        self.request_id = chunk.response_id or self.request_id
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
            self.is_refused = self.is_whole = True
        for candidate in chunk.candidates or ():
            if not candidate.index:  # others are answers that nobody asked for
                yield from self._candidate(candidate)
        self._tokens(chunk)

    def _candidate(self, candidate: GoogleCandidate) -> Iterator[llm.Streamed]:
        parts = candidate.content.parts if candidate.content is not None else None
        for part in parts or ():
            yield from self._part(part)
        if candidate.finish_reason and candidate.finish_reason != UNKNOWN:
            self.finish = FINISHES.get(candidate.finish_reason, llm.FinishReason.OTHER)
            self.is_whole = True

    def _part(self, part: CandidatePart) -> Iterator[llm.Streamed]:
        signature = seal(self._maker, part.thought_signature or "")
        if part.function_call is not None:
            yield self._call(part.function_call, signature)
        elif part.thought:
            if part.text or signature:
                yield self.add_reasoning(part.text or "", signature)
        else:
            if part.text:
                yield self.add_text(part.text)
            if signature:
                yield self.add_reasoning("", signature)

    def _call(self, function: FunctionCall, signature: str) -> llm.Streamed:
        call = self.begin_call()
        call.signature = signature
        arguments = bytes(function.args).decode()
        return self.add_to_call(
            call,
            id=function.id or "",
            name=function.name or "",
            arguments="" if arguments == "null" else arguments,
        )
