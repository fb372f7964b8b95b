"""A request as the JSON body of generateContent. Pure; the same request gives the same bytes."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from onward.agents.model.request import (
    AssistantMessage,
    Effort,
    Format,
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
    ToolResult,
    UserMessage,
)
from onward.agents.wire.arguments import arguments_object
from onward.agents.wire.signature import unseal

BUDGETS = {Effort.LOW: 1_024, Effort.MEDIUM: 8_192, Effort.HIGH: 24_576}
"""The tokens that Google's own endpoint for OpenAI's format gives to each effort."""
UNSIGNED = "skip_thought_signature_validator"
"""What stands for the signature of a call that another model made."""
_OUR_ID = re.compile(r"call_\d+")
"""The id of a call that came without one."""

TOOL_CHOICES = {ToolChoice.REQUIRED: "ANY", ToolChoice.NONE: "NONE"}


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What the model understands."""

    maker: str
    """`provider:model`, whose signatures the model takes back."""
    takes_level: bool = False
    takes_budget: bool = False
    wants_signatures: bool = False


def encode_body(request: ModelRequest, dialect: Dialect) -> bytes:
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


def _config(request: ModelRequest, dialect: Dialect) -> dict[str, Any]:
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


def _format(wanted: Format) -> dict[str, Any]:
    match wanted:
        case JsonFormat():
            return {"responseMimeType": "application/json"}
        case SchemaFormat(_, schema):
            return {"responseMimeType": "application/json", "responseJsonSchema": schema}


class _Contents:
    """The turns of a conversation. A result names its function, which only the call before it says."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._names: dict[str, str] = {}

    def of(self, messages: tuple[Message, ...]) -> list[dict[str, Any]]:
        """The turns, each role's together."""
        turns: list[dict[str, Any]] = []
        for message in messages:
            role = "model" if isinstance(message, AssistantMessage) else "user"
            parts = self._parts(message)
            if turns and turns[-1]["role"] == role:
                turns[-1]["parts"] += parts
            elif parts:
                turns.append({"role": role, "parts": parts})
        return turns

    def _parts(self, message: Message) -> list[dict[str, Any]]:
        match message:
            case UserMessage(parts):
                return [{"text": part.text} for part in parts]
            case ToolMessage(results):
                return [self._result(result) for result in results]
            case AssistantMessage(said):
                return self._said(said)

    def _said(self, parts: tuple[Text | Reasoning | ToolCall, ...]) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []
        has_call = False
        for part in parts:
            match part:
                case Text(text) if text:
                    told.append({"text": text})
                case Reasoning(text, signature):
                    if proof := unseal(self._dialect.maker, signature):
                        thought = {"text": text, "thought": True} if text else {"text": ""}
                        told.append(thought | {"thoughtSignature": proof[1]})
                case ToolCall():
                    told.append(self._call(part, is_first=not has_call))
                    has_call = True
        return told

    def _call(self, call: ToolCall, *, is_first: bool) -> dict[str, Any]:
        self._names[call.id] = call.name
        function = _id(call.id) | {"name": call.name, "args": arguments_object(call.arguments)}
        told: dict[str, Any] = {"functionCall": function}
        if proof := unseal(self._dialect.maker, call.signature):
            told["thoughtSignature"] = proof[1]
        elif is_first and self._dialect.wants_signatures:
            told["thoughtSignature"] = UNSIGNED
        return told

    def _result(self, result: ToolResult) -> dict[str, Any]:
        name = self._names.get(result.call_id, result.call_id)
        response = {"error" if result.is_error else "output": result.text}
        return {"functionResponse": _id(result.call_id) | {"name": name, "response": response}}


def _id(call_id: str) -> dict[str, Any]:
    return {} if _OUR_ID.fullmatch(call_id) else {"id": call_id}


def _tool(tool: Tool) -> dict[str, Any]:
    told: dict[str, Any] = {"name": tool.name, "description": tool.description}
    return told | ({"parametersJsonSchema": tool.parameters} if tool.parameters else {})
