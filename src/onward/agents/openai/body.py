"""A request as the JSON body of a chat completion. Pure; the same request gives the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from onward.agents.model.request import (
    AssistantMessage,
    Format,
    JsonFormat,
    Message,
    ModelRequest,
    SchemaFormat,
    Text,
    Tool,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from onward.agents.wire.bounds import without


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What the server understands."""

    ceiling: str = "max_tokens"
    sends_effort: bool = False
    stream_usage: bool = True
    refused: frozenset[str] = frozenset()
    """Keywords of schemas that it refuses."""


def encode_body(request: ModelRequest, model: str, dialect: Dialect) -> bytes:
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


def _messages(request: ModelRequest) -> Iterator[dict[str, Any]]:
    if request.system:
        yield {"role": "system", "content": request.system}
    for message in request.messages:
        yield from _message(message)


def _message(message: Message) -> Iterator[dict[str, Any]]:
    match message:
        case UserMessage(parts):
            yield {"role": "user", "content": "\n\n".join(part.text for part in parts)}
        case ToolMessage(results):
            for result in results:
                yield {"role": "tool", "tool_call_id": result.call_id, "content": result.text}
        case AssistantMessage():
            yield _assistant(message)


def _assistant(message: AssistantMessage) -> dict[str, Any]:
    """Without its reasoning: this format does not take it back."""
    text = "".join(part.text for part in message.parts if isinstance(part, Text))
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    told: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else "")}
    if calls:
        told["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    return told


def _tool(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _format(wanted: Format, dialect: Dialect) -> dict[str, Any]:
    match wanted:
        case JsonFormat():
            return {"type": "json_object"}
        case SchemaFormat(name, schema):
            return {
                "type": "json_schema",
                "json_schema": {"name": name, "schema": without(schema, dialect.refused), "strict": True},
            }
