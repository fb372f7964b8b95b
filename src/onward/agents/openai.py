"""OpenAI's chat completions, which many servers speak, as a wire format. Pure.

In this order: the format; how models and servers differ that speak it; a request as a JSON body (the same
request gives the same bytes); the objects that are streamed, as far as we read them (unknown fields are
passed over); and one answer, read chunk by chunk.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from onward.agents import model as llm
from onward.agents.providers import Provider
from onward.agents.wire import (
    ABSENT,
    BOUNDS,
    LENGTHS,
    ComingCall,
    Count,
    ErrorInAnswer,
    Gathered,
    count,
    details,
    has_come,
    without,
)


class OpenAIFormat:
    """How one provider that speaks OpenAI's chat completions is asked."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def address(self, model: str) -> str:
        """As the port says."""
        return f"{self._provider.base_url}/chat/completions"

    def headers(self, key: str) -> Mapping[str, str]:
        """As the port says."""
        return {"Authorization": f"Bearer {key}"} if key else {}

    def body(self, request: llm.ModelRequest, model: str) -> bytes:
        """As the port says."""
        return encode_body(request, model, self._dialect(model))

    def answer(self, model: str) -> OpenAIAnswer:
        """As the port says."""
        return OpenAIAnswer()

    def _dialect(self, model: str) -> OpenAIDialect:
        provider = self._provider
        is_new = takes_completion_ceiling(model, provider.host)
        default = "max_completion_tokens" if is_new else "max_tokens"
        reasons = can_reason(model) if provider.reasoning is None else provider.reasoning
        return OpenAIDialect(
            ceiling=provider.ceiling or default,
            sends_effort=reasons,
            stream_usage=provider.stream_usage,
            refused=refused_in_schemas(model, provider.host),
        )


OPENAI_HOST = "api.openai.com"
_REASONS = re.compile(r"(?:o[1-9]\d*|gpt-(?:[5-9]|\d\d)|gpt-oss)(?![a-z0-9])")
_CHATS = re.compile(r"gpt-[0-9.]+-chat")
_AZURE = ".openai.azure.com"


def can_reason(model: str) -> bool:
    """Whether a model of this name takes `reasoning_effort`; others refuse the whole request for it."""
    name = model.rpartition("/")[2].lower()  # routers write the maker before the name
    return bool(_REASONS.match(name)) and not _CHATS.match(name)


def takes_completion_ceiling(model: str, host: str) -> bool:
    """Whether the ceiling is `max_completion_tokens`; older servers know only `max_tokens`."""
    return host == OPENAI_HOST or host.endswith(_AZURE) or can_reason(model)


def refused_in_schemas(model: str, host: str) -> frozenset[str]:
    """The keywords of a schema for which the whole request is refused, also through a router.

    OpenAI takes no lengths of texts; Azure and Anthropic take no bounds. Other servers get the whole schema.
    """
    name = model.rpartition("/")[2].lower()
    if host.endswith(_AZURE):
        return BOUNDS | {"pattern", "format"}
    if name.startswith("claude"):
        return BOUNDS
    is_theirs = can_reason(name) or name.startswith(("gpt-", "chatgpt-"))
    return LENGTHS if host == OPENAI_HOST or (is_theirs and "oss" not in name) else frozenset()


class OpenAIDialect(msgspec.Struct, frozen=True, kw_only=True):
    """What the server understands."""

    ceiling: str = "max_tokens"
    sends_effort: bool = False
    stream_usage: bool = True
    refused: frozenset[str] = frozenset()
    """Keywords of schemas that it refuses."""


def encode_body(request: llm.ModelRequest, model: str, dialect: OpenAIDialect) -> bytes:
    """The body; `model` is the name without the provider's."""
    body: dict[str, Any] = {"model": model, "messages": list(_messages(request)), "stream": True}
    if dialect.stream_usage:
        body["stream_options"] = {"include_usage": True}
    if request.max_tokens is not None:
        body[dialect.ceiling] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.effort is not None and dialect.sends_effort:
        body["reasoning_effort"] = request.effort.value
    if request.stop:
        body["stop"] = list(request.stop)
    if request.format is not None:
        body["response_format"] = _format(request.format, dialect)
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if request.tool_choice is not None:
            body["tool_choice"] = request.tool_choice.value
    return msgspec.json.encode(body)


def _messages(request: llm.ModelRequest) -> Iterator[dict[str, Any]]:
    if request.system:
        yield {"role": "system", "content": request.system}
    for message in request.messages:
        yield from _message(message)


def _message(message: llm.Message) -> Iterator[dict[str, Any]]:
    match message:
        case llm.UserMessage(parts):
            yield {"role": "user", "content": "\n\n".join(part.text for part in parts)}
        case llm.ToolMessage(results):
            for result in results:
                yield {"role": "tool", "tool_call_id": result.call_id, "content": result.text}
        case llm.AssistantMessage():
            yield _assistant(message)


def _assistant(message: llm.AssistantMessage) -> dict[str, Any]:
    """Without its reasoning: this format does not take it back."""
    text = "".join(part.text for part in message.parts if isinstance(part, llm.Text))
    calls = [part for part in message.parts if isinstance(part, llm.ToolCall)]
    told: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else "")}
    if calls:
        told["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    return told


def _tool(tool: llm.Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _format(wanted: llm.Format, dialect: OpenAIDialect) -> dict[str, Any]:
    match wanted:
        case llm.JsonFormat():
            return {"type": "json_object"}
        case llm.SchemaFormat(name, schema):
            return {
                "type": "json_schema",
                "json_schema": {"name": name, "schema": without(schema, dialect.refused), "strict": True},
            }


class Function(msgspec.Struct, gc=False):
    """The name of a tool and a piece of its arguments, which a few servers send as an object."""

    name: str | None = None
    arguments: Any = None


class ToolPiece(msgspec.Struct, gc=False):
    """A piece of a tool call."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class ChoiceDelta(msgspec.Struct):
    """What is new; of a whole completion, all of it. `content` may be a list of parts."""

    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    refusal: str | None = None
    tool_calls: list[ToolPiece] | None = None


class ChunkChoice(msgspec.Struct):
    """One of the answers; we ask for one."""

    index: int | None = 0
    delta: ChoiceDelta | None = None
    message: ChoiceDelta | None = None
    finish_reason: str | None = None


class PromptDetails(msgspec.Struct, gc=False):
    """Of which kinds the input was."""

    cached_tokens: Count = None
    cache_write_tokens: Count = None


class CompletionDetails(msgspec.Struct, gc=False):
    """Of which kinds the output was."""

    reasoning_tokens: Count = None


class OpenAICounts(msgspec.Struct, gc=False):
    """Tokens as the server counted them."""

    prompt_tokens: Count = None
    completion_tokens: Count = None
    prompt_tokens_details: PromptDetails | list[Any] | None = None
    completion_tokens_details: CompletionDetails | list[Any] | None = None

    def usage(self) -> llm.TokenUsage:
        """The same in our words."""
        given, made = details(self.prompt_tokens_details), details(self.completion_tokens_details)
        counted_in, counted_out = count(self.prompt_tokens), count(self.completion_tokens)
        return llm.TokenUsage(
            input=counted_in,
            output=counted_out,
            cached_input=min(count(given.cached_tokens if given else 0), counted_in),
            cache_write=min(count(given.cache_write_tokens if given else 0), counted_in),
            reasoning=min(count(made.reasoning_tokens if made else 0), counted_out),
        )


class LateOpenAIChunk(msgspec.Struct):
    """What may follow a whole answer. Tokens are read on their own: no answer is given up for them."""

    usage: msgspec.Raw = ABSENT


class OpenAIChunk(LateOpenAIChunk):
    """One event of the stream, or a whole completion."""

    model: str | None = None
    choices: list[ChunkChoice] | None = None
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


decode_chunk = msgspec.json.Decoder(OpenAIChunk).decode
decode_late_chunk = msgspec.json.Decoder(LateOpenAIChunk).decode
decode_counts = msgspec.json.Decoder(OpenAICounts).decode

FINISHES: dict[str, llm.FinishReason] = {
    "stop": llm.FinishReason.STOP,
    "eos": llm.FinishReason.STOP,
    "end_turn": llm.FinishReason.STOP,
    "length": llm.FinishReason.LENGTH,
    "max_tokens": llm.FinishReason.LENGTH,
    "tool_calls": llm.FinishReason.TOOL_CALLS,
    "function_call": llm.FinishReason.TOOL_CALLS,
    "content_filter": llm.FinishReason.REFUSAL,
    "refusal": llm.FinishReason.REFUSAL,
    "safety": llm.FinishReason.REFUSAL,
}


DONE = b"[DONE]"


class OpenAIAnswer(Gathered):
    """What has come of an answer, and whether it is whole."""

    def read(self, event: bytes) -> Iterator[llm.Streamed]:
        """As the format's port says."""
        if event.strip() == DONE:
            self.is_whole = self.is_done = True  # a few servers never say why they stopped
            return
        chunk = decode_chunk(event)
        error = chunk.failed()
        if error is not None:
            raise ErrorInAnswer(error)
        if chunk.model:
            self.model = chunk.model
        self._tokens(chunk)
        for choice in chunk.choices or ():
            if choice.index:
                continue  # an answer that nobody asked for
            new = choice.delta or choice.message
            if new is not None:
                yield from self._delta(new)
            if choice.finish_reason:
                self.finish = FINISHES.get(choice.finish_reason.lower(), llm.FinishReason.OTHER)
                self.is_whole = True

    def read_late(self, event: bytes) -> None:
        """As the format's port says."""
        if event.strip() == DONE:
            self.is_done = True
            return
        self._tokens(decode_late_chunk(event))

    def _tokens(self, chunk: LateOpenAIChunk) -> None:
        if has_come(chunk.usage):
            self.count_usage(lambda: decode_counts(chunk.usage).usage())

    def _delta(self, new: ChoiceDelta) -> Iterator[llm.Streamed]:
        thought = new.reasoning_content or new.reasoning
        if isinstance(thought, str) and thought:
            yield self.add_reasoning(thought)
        if new.content:
            yield from self._content(new.content)
        if new.refusal:
            self.is_refused = True
            yield self.add_text(new.refusal)
        for piece in new.tool_calls or ():
            yield self._tool_piece(piece)

    def _content(self, content: Any) -> Iterator[llm.Streamed]:
        if isinstance(content, str):
            yield self.add_text(content)
            return
        for part in content if isinstance(content, list) else ():
            text = part.get("text") if isinstance(part, dict) else None
            if isinstance(text, str) and text:
                yield self.add_text(text)

    def _tool_piece(self, piece: ToolPiece) -> llm.ToolCallDelta:
        name = (piece.function.name if piece.function else None) or ""
        arguments = _arguments_text(piece.function.arguments if piece.function else None)
        return self.add_to_call(self._call_of(piece), id=piece.id or "", name=name, arguments=arguments)

    def _call_of(self, piece: ToolPiece) -> ComingCall:
        """The call that a piece belongs to. Some servers leave the index out, or number every call 0."""
        last = self.calls[-1] if self.calls else None
        is_other = last is not None and bool(piece.id and last.id and piece.id != last.id)
        if piece.index is not None and not (is_other and last is not None and piece.index == last.index):
            known = [call for call in self.calls if call.index == piece.index]
            if known:
                return known[-1]
        elif last is not None and not is_other:
            return last
        return self.begin_call()


def _arguments_text(found: Any) -> str:
    if found is None:
        return ""
    return found if isinstance(found, str) else msgspec.json.encode(found).decode()
