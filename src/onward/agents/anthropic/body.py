"""A request as the JSON body of a message. Pure; the same request gives the same bytes."""

from __future__ import annotations

from typing import Any

import msgspec

from onward.agents.model.request import (
    OUTPUT_TOKENS,
    AssistantMessage,
    JsonFormat,
    Message,
    ModelRequest,
    Reasoning,
    SchemaFormat,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMessage,
    UserMessage,
)
from onward.agents.wire.arguments import arguments_object
from onward.agents.wire.bounds import BOUNDS, without
from onward.agents.wire.signature import unseal

ONLY_JSON = "Answer with one JSON object and nothing else."
"""This format has no switch for JSON without a schema."""
REDACTED = "redacted"
THOUGHTS = ("thinking", "redacted_thinking")
TOOL_CHOICES = {ToolChoice.REQUIRED: "any", ToolChoice.NONE: "none"}
CACHE = {"type": "ephemeral"}


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What the model understands."""

    maker: str
    """`provider:model`, whose signatures the model takes back."""
    sends_effort: bool = False
    thinks: bool = False
    """Whether it decides by itself how long it thinks, if it is told to."""
    thinks_anyway: bool = False
    """Whether it thinks without being told, and keeps to itself what it thinks."""
    caches: bool = True


def encode_body(request: ModelRequest, model: str, dialect: Dialect) -> bytes:
    """The body; `model` is the name without the provider's."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": request.max_tokens or OUTPUT_TOKENS,
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


def _system(request: ModelRequest) -> str:
    wanted = ONLY_JSON if isinstance(request.format, JsonFormat) else ""
    return "\n\n".join(text for text in (request.system, wanted) if text)


def _output_config(request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if request.effort is not None and dialect.sends_effort:
        config["effort"] = request.effort.value
    if isinstance(request.format, SchemaFormat):
        config["format"] = {"type": "json_schema", "schema": without(request.format.schema, BOUNDS)}
    return config


def _messages(request: ModelRequest, dialect: Dialect) -> list[dict[str, Any]]:
    """The turns, each role's together: the results of tools and what a person adds are one turn."""
    turns: list[dict[str, Any]] = []
    for message in request.messages:
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        blocks = _blocks(message, dialect.maker)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    return turns


def _blocks(message: Message, maker: str) -> list[dict[str, Any]]:
    match message:
        case UserMessage(parts):
            return [{"type": "text", "text": part.text} for part in parts]
        case ToolMessage(results):
            return [
                {"type": "tool_result", "tool_use_id": result.call_id, "content": result.text}
                | ({"is_error": True} if result.is_error else {})
                for result in results
            ]
        case AssistantMessage(said):
            blocks = [block for part in said if (block := _block(part, maker)) is not None]
            while blocks and blocks[-1]["type"] in THOUGHTS:
                blocks.pop()  # a turn that ends with a thought is refused
            return blocks


def _block(part: Text | Reasoning | ToolCall, maker: str) -> dict[str, Any] | None:
    """A part of an answer; None for what cannot be sent back: empty text, and reasoning without a proof."""
    match part:
        case Text(text):
            return {"type": "text", "text": text} if text else None
        case ToolCall(id, name, arguments):
            return {"type": "tool_use", "id": id, "name": name, "input": arguments_object(arguments)}
        case Reasoning(text, signature):
            proof = unseal(maker, signature)
            if proof is None:
                return None
            kind, data = proof
            if kind == REDACTED:
                return {"type": "redacted_thinking", "data": data}
            return {"type": "thinking", "thinking": text, "signature": data}


def _tool(tool: Tool) -> dict[str, Any]:
    schema = tool.parameters or {"type": "object"}
    return {"name": tool.name, "description": tool.description, "input_schema": schema}
