"""Tools for models whose server knows none: they are told in the prompt, and wishes come as JSON.

    {"tool": "weather", "arguments": {"city": "Paris"}}        or        {"answer": "It rains."}

The server holds the answer to a schema of these two forms. Whoever asks sees an answer like any other: text,
or tool calls. The text comes at once, since it is known only when the JSON is whole. What an answer says that
reached its ceiling before that is read as far as it came, as with models that know tools.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from onward.agents.model.request import (
    AssistantMessage,
    Message,
    ModelRequest,
    SchemaFormat,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolMessage,
    UserMessage,
)
from onward.agents.model.stream import Finished, FinishReason, ReasoningDelta, Streamed, TextDelta

TOOL, ARGUMENTS, ANSWER = "tool", "arguments", "answer"
USE = f'To use a tool, write {{"{TOOL}": its name, "{ARGUMENTS}": an object}}.'
FINISH = f'To finish, write {{"{ANSWER}": your answer}}.'
_CUT_CALL = re.compile(rf'\s*\{{\s*"{TOOL}"\s*:\s*"([^"\\]+)"\s*,\s*"{ARGUMENTS}"\s*:\s*(\S.*)', re.DOTALL)
_CUT_TEXT = re.compile(rf'\s*\{{\s*"{ANSWER}"\s*:\s*"((?:[^"\\]|\\[^u]|\\u[0-9a-fA-F]{{4}})*)')


def told_in_prompt(request: ModelRequest) -> ModelRequest:
    """The same request without tools: they are in its system text, and the format of the answer has them."""
    tools = () if request.tool_choice is ToolChoice.NONE else request.tools
    ways = [USE] if tools else []
    ways += [] if request.tool_choice is ToolChoice.REQUIRED else [FINISH]
    told = [f"Tool {tool.name}: {tool.description} Arguments: {_arguments(tool)}" for tool in tools]
    system = "\n".join(filter(None, (request.system, *told, "Answer with JSON.", *ways)))
    return replace(
        request,
        system=system,
        messages=_plain(request.messages),
        tools=(),
        tool_choice=None,
        format=SchemaFormat("wish", _schema(request, tools)),
    )


async def with_tool_calls(
    pieces: AsyncGenerator[Streamed, None], request: ModelRequest
) -> AsyncGenerator[Streamed, None]:
    """The answer to a request whose tools were told in the prompt, as if its model knew tools."""
    texts: list[str] = []
    async with aclosing(pieces) as coming:
        async for piece in coming:
            if isinstance(piece, TextDelta):
                texts.append(piece.text)
            elif isinstance(piece, ReasoningDelta):
                yield piece
            elif isinstance(piece, Finished):
                text, number = "".join(texts), len(request.messages)
                is_cut = piece.finish_reason is FinishReason.LENGTH
                found = _read(text, number) or (_read_cut(text, number) if is_cut else TextDelta(text))
                yield found
                is_call = isinstance(found, ToolCall) and not is_cut
                yield replace(piece, finish_reason=FinishReason.TOOL_CALLS) if is_call else piece


def _schema(request: ModelRequest, tools: Sequence[Tool]) -> dict[str, Any]:
    forms = [
        _form({TOOL: {"const": tool.name}, ARGUMENTS: tool.parameters or {"type": "object"}})
        for tool in tools
    ]
    if request.tool_choice is not ToolChoice.REQUIRED or not tools:
        is_structured = isinstance(request.format, SchemaFormat)
        forms.append(_form({ANSWER: request.format.schema if is_structured else {"type": "string"}}))  # type: ignore[union-attr]
    return forms[0] if len(forms) == 1 else {"anyOf": forms}


def _arguments(tool: Tool) -> str:
    """What a tool takes: in words, which a small model follows sooner; its schema if words do not suffice."""
    properties = tool.parameters.get("properties", {})
    if not properties or not all(_is_plain(one) for one in properties.values()):
        return json.dumps(tool.parameters)
    required = tool.parameters.get("required", ())
    told = [
        f"{name} ({one['type']}{'' if name in required else ', optional'}): {one.get('description', '')}"
        for name, one in properties.items()
    ]
    return " ".join(told)


def _is_plain(schema: Any) -> bool:
    """Whether the schema of an argument is a simple type with a description. The server knows its bounds."""
    known = {"type", "description", "minimum", "maximum", "minLength", "maxLength"}
    is_plain = isinstance(schema, dict) and schema.keys() <= known
    return is_plain and schema.get("type") in ("string", "integer", "number", "boolean")


def _form(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


def _plain(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation in words: what tools were asked and what they answered is text."""
    names = {part.id: part.name for one in messages for part in one.parts if isinstance(part, ToolCall)}
    return tuple(_in_words(one, names) for one in messages)


def _in_words(message: Message, names: dict[str, str]) -> Message:
    if isinstance(message, ToolMessage):
        results = [f"Result of {names.get(part.call_id, TOOL)}: {part.text}" for part in message.parts]
        return UserMessage((Text("\n\n".join(results)),))
    if not isinstance(message, AssistantMessage):
        return message
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    if not calls:
        return message
    said = "\n".join(json.dumps({TOOL: call.name, ARGUMENTS: _object(call.arguments)}) for call in calls)
    return AssistantMessage((Text(said),))


def _object(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _read(text: str, number: int) -> ToolCall | TextDelta | None:
    """A tool call, or the text of the answer; None if it is not JSON. Other JSON is shown as it came."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return TextDelta(text)
    if isinstance(said.get(TOOL), str):
        return _call(number, said[TOOL], json.dumps(said.get(ARGUMENTS, {})))
    answer = said.get(ANSWER, said)
    return TextDelta(answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False))


def _read_cut(text: str, number: int) -> ToolCall | TextDelta:
    """What an answer says that reached its ceiling: the rest of a text can be asked for."""
    if found := _CUT_CALL.match(text):
        return _call(number, found[1], found[2])
    try:
        found = _CUT_TEXT.match(text)
        said = json.loads(f'"{found[1]}"', strict=False) if found else text
    except ValueError:
        return TextDelta(text)
    return TextDelta(said.encode("utf-8", "ignore").decode())  # its last character may be half of one


def _call(number: int, name: str, arguments: str) -> ToolCall:
    return ToolCall(f"call_{number}", name, arguments)
