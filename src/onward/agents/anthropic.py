"""Anthropic's messages as a wire format. Pure.

In this order: the format; how models differ that speak it; a request as a JSON body (the same request gives
the same bytes); the events that are streamed, as far as we read them (unknown fields and events are passed
over); and one answer, read event by event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from onward.agents import model as llm
from onward.agents.providers import Provider
from onward.agents.refusal import NO_JSON
from onward.agents.wire import (
    ABSENT,
    BOUNDS,
    ComingCall,
    Count,
    ErrorInAnswer,
    Gathered,
    UsageUnreadable,
    arguments_object,
    count,
    details,
    has_come,
    seal,
    unseal,
    without,
)

API_VERSION = "2023-06-01"


class AnthropicFormat:
    """How one provider that speaks Anthropic's messages is asked."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def address(self, model: str) -> str:
        """As the port says; people write the base_url with and without its version."""
        base = self._provider.base_url
        return f"{base}/messages" if base.endswith("/v1") else f"{base}/v1/messages"

    def headers(self, key: str) -> Mapping[str, str]:
        """As the port says."""
        return {"anthropic-version": API_VERSION} | ({"x-api-key": key} if key else {})

    def body(self, request: llm.ModelRequest, model: str) -> bytes:
        """As the port says."""
        provider = self._provider
        dialect = AnthropicDialect(
            maker=f"{provider.name}:{model}",
            sends_effort=takes_effort(model) if provider.reasoning is None else provider.reasoning,
            thinks=thinks_adaptively(model) and provider.reasoning is not False,
            thinks_anyway=thinks_anyway(model) and provider.reasoning is not False,
            caches=provider.prompt_cache,
        )
        return encode_body(request, model, dialect)

    def answer(self, model: str) -> AnthropicAnswer:
        """As the port says."""
        return AnthropicAnswer(f"{self._provider.name}:{model}")


_NAME = re.compile(
    r"claude-(?P<family>[a-z]+)(?:-(?P<major>\d{1,2})(?:[-.](?P<minor>\d{1,2})(?!\d))?)?(?!\d)"
)
_EFFORT_SINCE = {"opus": (4, 5), "sonnet": (4, 6), "haiku": (5, 0), "fable": (0, 0), "mythos": (0, 0)}
_ADAPTIVE_SINCE = _EFFORT_SINCE | {"opus": (4, 6)}
_ALWAYS_SINCE = {"opus": (5, 0), "haiku": (5, 5), "fable": (0, 0), "mythos": (0, 0)}


def takes_effort(model: str) -> bool:
    """Whether a model of this name takes `output_config.effort`; others refuse the whole request for it."""
    return _is_since(model, _EFFORT_SINCE)


def thinks_adaptively(model: str) -> bool:
    """Whether a model of this name decides by itself how long it thinks, if it is told to think."""
    return _is_since(model, _ADAPTIVE_SINCE)


def thinks_anyway(model: str) -> bool:
    """Whether a model of this name thinks without being told to."""
    return _is_since(model, _ALWAYS_SINCE)


def _is_since(model: str, since: dict[str, tuple[int, int]]) -> bool:
    found = _NAME.search(model.lower())
    if found is None or found["family"] not in since:
        return False
    return (int(found["major"] or 0), int(found["minor"] or 0)) >= since[found["family"]]


ONLY_JSON = "Answer with one JSON object and nothing else."
"""This format has no switch for JSON without a schema."""
REDACTED = "redacted"
THOUGHTS = ("thinking", "redacted_thinking")
TOOL_CHOICES = {llm.ToolChoice.REQUIRED: "any", llm.ToolChoice.NONE: "none"}
CACHE = {"type": "ephemeral"}


class AnthropicDialect(msgspec.Struct, frozen=True, kw_only=True):
    """What the model understands."""

    maker: str
    """`provider:model`, whose signatures the model takes back."""
    sends_effort: bool = False
    thinks: bool = False
    """Whether it decides by itself how long it thinks, if it is told to."""
    thinks_anyway: bool = False
    """Whether it thinks without being told, and keeps to itself what it thinks."""
    caches: bool = True


def encode_body(request: llm.ModelRequest, model: str, dialect: AnthropicDialect) -> bytes:
    """The body; `model` is the name without the provider's."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": request.max_tokens or llm.OUTPUT_TOKENS,
        "messages": _messages(request, dialect),
        "stream": True,
    }
    if system := _system(request):
        body["system"] = [{"type": "text", "text": system}]
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.stop:
        body["stop_sequences"] = list(request.stop)
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if request.tool_choice is not None:
            body["tool_choice"] = {"type": TOOL_CHOICES[request.tool_choice]}
    if config := _output_config(request, dialect):
        body["output_config"] = config
    is_told = dialect.thinks_anyway or (dialect.thinks and request.effort is not None)
    if is_told and request.temperature is None:  # a model that thinks takes no temperature
        body["thinking"] = {"type": "adaptive", "display": "summarized"}
    if dialect.caches and (request.tools or len(request.messages) > 1):
        _mark(body)
    return msgspec.json.encode(body)


def _mark(body: dict[str, Any]) -> None:
    """Have the beginning kept, and the conversation so far; only of one that goes on, since it costs more."""
    if "system" in body:
        body["system"][-1]["cache_control"] = CACHE
    body["messages"][-1]["content"][-1]["cache_control"] = CACHE


def _system(request: llm.ModelRequest) -> str:
    wanted = ONLY_JSON if isinstance(request.format, llm.JsonFormat) else ""
    return "\n\n".join(text for text in (request.system, wanted) if text)


def _output_config(request: llm.ModelRequest, dialect: AnthropicDialect) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if request.effort is not None and dialect.sends_effort:
        config["effort"] = request.effort.value
    if isinstance(request.format, llm.SchemaFormat):
        config["format"] = {"type": "json_schema", "schema": without(request.format.schema, BOUNDS)}
    return config


def _messages(request: llm.ModelRequest, dialect: AnthropicDialect) -> list[dict[str, Any]]:
    """The turns, each role's together: the results of tools and what a person adds are one turn."""
    turns: list[dict[str, Any]] = []
    for message in request.messages:
        role = "assistant" if isinstance(message, llm.AssistantMessage) else "user"
        blocks = _blocks(message, dialect.maker)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(message: llm.Message, maker: str) -> list[dict[str, Any]]:
    match message:
        case llm.UserMessage(parts):
            return [{"type": "text", "text": part.text} for part in parts]
        case llm.ToolMessage(results):
            return [
                {"type": "tool_result", "tool_use_id": result.call_id, "content": result.text}
                | ({"is_error": True} if result.is_error else {})
                for result in results
            ]
        case llm.AssistantMessage(said):
            blocks = [block for part in said if (block := _block(part, maker)) is not None]
            while blocks and blocks[-1]["type"] in THOUGHTS:
                blocks.pop()  # a turn that ends with a thought is refused
            return blocks


def _block(part: llm.Text | llm.Reasoning | llm.ToolCall, maker: str) -> dict[str, Any] | None:
    """A part of an answer; None for what cannot be sent back: empty text, and reasoning without a proof."""
    match part:
        case llm.Text(text):
            return {"type": "text", "text": text} if text else None
        case llm.ToolCall(id, name, arguments):
            return {"type": "tool_use", "id": id, "name": name, "input": arguments_object(arguments)}
        case llm.Reasoning(text, signature):
            proof = unseal(maker, signature)
            if proof is None:
                return None
            kind, data = proof
            if kind == REDACTED:
                return {"type": "redacted_thinking", "data": data}
            return {"type": "thinking", "thinking": text, "signature": data}


def _tool(tool: llm.Tool) -> dict[str, Any]:
    schema = tool.parameters or {"type": "object"}
    return {"name": tool.name, "description": tool.description, "input_schema": schema}


EMPTY = msgspec.Raw(b"")


class ContentBlock(msgspec.Struct):
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

    ephemeral_5m_input_tokens: Count = None
    ephemeral_1h_input_tokens: Count = None


class OutputDetails(msgspec.Struct, gc=False):
    """Of which kinds the output was."""

    thinking_tokens: Count = None


class AnthropicCounts(msgspec.Struct):
    """Tokens as the server counted them so far. What its cache gave and took comes on top of the input."""

    input_tokens: Count = None
    output_tokens: Count = None
    cache_read_input_tokens: Count = None
    cache_creation_input_tokens: Count = None
    cache_creation: CacheWrites | list[Any] | None = None
    output_tokens_details: OutputDetails | list[Any] | None = None

    def updated(self, later: AnthropicCounts) -> AnthropicCounts:
        """With what a later event counts; what it leaves out stays."""
        told = {name: value for name, value in msgspec.structs.asdict(later).items() if value is not None}
        return msgspec.structs.replace(self, **told)

    def usage(self) -> llm.TokenUsage:
        """The same in our words, where the input is all of it."""
        kept, made = details(self.cache_creation), details(self.output_tokens_details)
        long = count(kept.ephemeral_1h_input_tokens if kept else 0)
        short = count(kept.ephemeral_5m_input_tokens if kept else 0)
        read, written = (
            count(self.cache_read_input_tokens),
            max(count(self.cache_creation_input_tokens), long + short),
        )
        output = count(self.output_tokens)
        return llm.TokenUsage(
            input=count(self.input_tokens) + read + written,
            output=output,
            cached_input=read,
            cache_write=written,
            cache_write_1h=long,
            reasoning=min(count(made.thinking_tokens if made else 0), output),
        )


class LateMessageEvent(msgspec.Struct):
    """What may follow a whole answer. Tokens are read on their own: no answer is given up for them."""

    usage: msgspec.Raw = ABSENT
    type: str = ""


class StartedMessage(msgspec.Struct):
    """The message that begins; of a server that does not stream, all of it."""

    model: str | None = None
    usage: msgspec.Raw = ABSENT
    content: list[ContentBlock] | None = None
    stop_reason: str | None = None


class MessageEvent(StartedMessage):
    """One event of the stream, or a whole message."""

    type: str = ""
    index: int | None = None
    message: StartedMessage | None = None
    content_block: ContentBlock | None = None
    delta: Delta | None = None
    error: Any = None


_decode = msgspec.json.Decoder(MessageEvent).decode
decode_late_event = msgspec.json.Decoder(LateMessageEvent).decode
decode_counts = msgspec.json.Decoder(AnthropicCounts).decode
_EVENTS = ("message_start", "content_block_start", "content_block_delta", "message_delta", "message")
_BLOCKS = ("text", "thinking", "redacted_thinking", "tool_use")
_DELTAS = ("text_delta", "thinking_delta", "signature_delta", "input_json_delta", None)


def decode_event(data: bytes) -> MessageEvent | None:
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


FINISHES: dict[str, llm.FinishReason] = {
    "end_turn": llm.FinishReason.STOP,
    "stop_sequence": llm.FinishReason.STOP,
    "max_tokens": llm.FinishReason.LENGTH,
    "model_context_window_exceeded": llm.FinishReason.LENGTH,
    "tool_use": llm.FinishReason.TOOL_CALLS,
    "refusal": llm.FinishReason.REFUSAL,
}


class AnthropicAnswer(Gathered):
    """What has come of an answer, and whether it is whole: it has a reason to end, and its blocks have ended.

    Tokens are counted in parts, the first before the answer; if one of them cannot be read, nobody knows.
    """

    def __init__(self, maker: str) -> None:
        super().__init__()
        self._maker = maker
        self._counted: AnthropicCounts | None = AnthropicCounts()
        self._tools: dict[int | None, ComingCall] = {}
        self._open: set[int | None] = set()

    def read(self, event: bytes) -> Iterator[llm.Streamed]:
        """As the format's port says."""
        found = decode_event(event)
        if found is None:
            return
        match found.type:
            case "message_start":
                self._about(found.message or found)
            case "content_block_start" if found.content_block is not None:
                self._open.add(found.index)
                yield from self._block(found.index, found.content_block)
            case "content_block_delta" if found.delta is not None:
                yield from self._delta(found.index, found.delta)
            case "content_block_stop":
                self._open.discard(found.index)
                self.is_whole = self.finish is not None and not self._open
            case "message_delta":
                self._end(found)
            case "message_stop":
                self.is_whole = self.is_done = True
            case "message":
                yield from self._whole(found)
            case "error":
                raise ErrorInAnswer(found.error or {})
            case _:
                pass  # a ping, or an event of later days

    def read_late(self, event: bytes) -> None:
        """As the format's port says."""
        found = decode_late_event(event)
        if found.type == "message_stop":
            self.is_done = True
        elif found.type == "message_delta":
            self._count_part(found.usage)

    def _count_part(self, part: msgspec.Raw, *, is_last: bool = True) -> None:
        """Take a part of what was counted; what it leaves out stays."""
        if not has_come(part):
            return
        try:
            self._counted = self._counted and self._counted.updated(decode_counts(part))
        except NO_JSON:
            self._counted = None
        if is_last:
            self.count_usage(self._sum)

    def _sum(self) -> llm.TokenUsage:
        if self._counted is None:
            raise UsageUnreadable
        return self._counted.usage()

    def _about(self, message: StartedMessage) -> None:
        """Who answers, and what has been counted before the answer, which is not what it costs."""
        if message.model:
            self.model = message.model
        self._count_part(message.usage, is_last=False)

    def _end(self, event: MessageEvent) -> None:
        self._count_part(event.usage)
        if event.delta is not None and event.delta.stop_reason:
            self._stop(event.delta.stop_reason)

    def _stop(self, reason: str) -> None:
        self.finish = FINISHES.get(reason, llm.FinishReason.OTHER)
        self.is_whole = not self._open

    def _whole(self, message: MessageEvent) -> Iterator[llm.Streamed]:
        """The answer of a server that does not stream."""
        self._about(message)
        for index, block in enumerate(message.content or ()):
            yield from self._block(index, block)
        if has_come(message.usage):
            self.count_usage(self._sum)
        if message.stop_reason:
            self._stop(message.stop_reason)

    def _block(self, index: int | None, block: ContentBlock) -> Iterator[llm.Streamed]:
        match block.type:
            case "text" if block.text:
                yield self.add_text(block.text)
            case "thinking" if block.thinking or block.signature:
                yield self._thought(block.thinking or "", block.signature or "")
            case "redacted_thinking" if block.data:
                yield self.add_reasoning("", seal(self._maker, block.data, kind=REDACTED))
            case "tool_use":
                call = self._tools[index] = self.begin_call()
                given = bytes(block.input).decode()
                arguments = "" if given in ("{}", "null") else given
                yield self.add_to_call(call, id=block.id or "", name=block.name or "", arguments=arguments)
            case _:
                pass  # it begins empty, or is of a kind that nobody asked for

    def _delta(self, index: int | None, delta: Delta) -> Iterator[llm.Streamed]:
        match delta.type:
            case "text_delta" if delta.text:
                yield self.add_text(delta.text)
            case "thinking_delta" if delta.thinking:
                yield self.add_reasoning(delta.thinking)
            case "signature_delta" if delta.signature:
                yield self._thought("", delta.signature)
            case "input_json_delta" if delta.partial_json and index in self._tools:
                yield self.add_to_call(self._tools[index], arguments=delta.partial_json)
            case _:
                pass  # a citation, or a delta of later days

    def _thought(self, text: str, signature: str) -> llm.Streamed:
        return self.add_reasoning(text, seal(self._maker, signature))
