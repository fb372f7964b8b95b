"""A request in the words of pydantic-ai. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.messages import ModelRequest as TheirRequest
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from onward.agents.model.request import (
    AssistantMessage,
    Message,
    ModelRequest,
    Reasoning,
    SchemaFormat,
    Text,
    ToolCall,
    ToolMessage,
)
from onward.agents.others.sealing import unsealed
from onward.agents.wire.arguments import arguments_object
from onward.agents.wire.limits import TimeLimits
from onward.errors import InvalidInput


class Question(NamedTuple):
    """What the library is asked."""

    messages: list[ModelMessage]
    settings: ModelSettings
    parameters: ModelRequestParameters


def question(
    request: ModelRequest, model: Model, *, limits: TimeLimits, idempotency_key: str | None
) -> Question:
    """The request; InvalidInput for what this model's client cannot be told."""
    try:
        msgspec.json.encode(request)  # each client would say in its own way what is wrong with it
    except UnicodeEncodeError:
        raise InvalidInput("the request holds half a character (a lone surrogate)") from None
    return Question(
        _messages(request), _settings(request, model, limits, idempotency_key), _parameters(request, model)
    )


def _settings(
    request: ModelRequest, model: Model, limits: TimeLimits, idempotency_key: str | None
) -> ModelSettings:
    without = model.unsupported_settings  # the library warns of those at every request
    settings = ModelSettings()
    if "max_retries" not in without:
        settings["max_retries"] = 0
    if "timeout" not in without:
        settings["timeout"] = max(limits.connect_s + limits.first_byte_s, limits.between_s)
    if idempotency_key is not None and "extra_headers" not in without:
        settings["extra_headers"] = {"Idempotency-Key": quote(idempotency_key, safe="/#:")}
    if request.max_tokens is not None:
        settings["max_tokens"] = request.max_tokens
    if request.temperature is not None:
        settings["temperature"] = request.temperature
    if request.effort is not None:
        settings["thinking"] = request.effort.value
    if request.tool_choice is not None and request.tools:
        settings["tool_choice"] = request.tool_choice.value
    if request.stop and "stop_sequences" in without:
        raise InvalidInput("it takes no stop sequences")
    if request.stop:
        settings["stop_sequences"] = [*request.stop]
    return settings


def _parameters(request: ModelRequest, model: Model) -> ModelRequestParameters:
    tools = [
        ToolDefinition(
            name=tool.name,
            description=tool.description or None,
            parameters_json_schema=tool.parameters or {"type": "object", "properties": {}},
        )
        for tool in request.tools
    ]
    if request.format is None:
        return ModelRequestParameters(function_tools=tools)
    is_schema = isinstance(request.format, SchemaFormat)
    wanted = (
        OutputObjectDefinition(json_schema=request.format.schema, name=request.format.name)
        if isinstance(request.format, SchemaFormat)
        else OutputObjectDefinition(json_schema={"type": "object"})
    )
    # Some providers refuse a schema beside tools, and some know none: there the prompt has it.
    is_native = is_schema and not tools and bool(model.profile.get("supports_json_schema_output"))
    return ModelRequestParameters(
        function_tools=tools, output_mode="native" if is_native else "prompted", output_object=wanted
    )


def _messages(request: ModelRequest) -> list[ModelMessage]:
    """The conversation. What is not the model's in a row is one message: some providers want them in turn."""
    names = {
        part.id: part.name for one in request.messages for part in one.parts if isinstance(part, ToolCall)
    }
    found: list[ModelMessage] = []
    said: list[ModelRequestPart] = [SystemPromptPart(request.system)] if request.system else []
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            answered = [*_answered(message, request.model)]
            if not answered:
                continue
            found += [TheirRequest(said)] if said else []
            found.append(ModelResponse(answered))
            said = []
        else:
            said += _said(message, names)
    return [*found, TheirRequest(said)] if said else found


def _said(message: Message, names: dict[str, str]) -> Sequence[ModelRequestPart]:
    if not isinstance(message, ToolMessage):
        return [UserPromptPart("\n\n".join(part.text for part in message.parts if isinstance(part, Text)))]
    return [
        ToolReturnPart(
            names.get(part.call_id, "tool"),
            part.text,
            part.call_id,
            outcome="failed" if part.is_error else "success",
        )
        for part in message.parts
    ]


def _answered(message: AssistantMessage, maker: str) -> Iterator[ModelResponsePart]:
    """What the model said; of its thoughts only those that this one signed, as with our own formats."""
    for part in message.parts:
        kept = unsealed(maker, part.signature) if isinstance(part, Reasoning | ToolCall) else None
        match part:
            case Text(text):
                if text:
                    yield TextPart(text)
            case Reasoning(text):
                if kept is not None:
                    yield ThinkingPart(text, **kept)
            case ToolCall(id, name, arguments):
                given: dict[str, Any] = msgspec.json.decode(bytes(arguments_object(arguments)))
                kept = {key: value for key, value in (kept or {}).items() if key != "signature"}
                yield ToolCallPart(name, given, id, **kept)
