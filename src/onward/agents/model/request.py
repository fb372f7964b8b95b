"""What is asked of a model: a request with its whole conversation, as values to be stored and hashed."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

OUTPUT_TOKENS = 8_192
"""The ceiling of an answer whose request has none, where one must be named: to a format, or to reserve it."""


class Effort(StrEnum):
    """How long a model that reasons should do so; other models are not told."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Closed, and encoded without what is default, so that a new field does not change old hashes."""


class Text(_Value, frozen=True, tag="text"):
    """Text that was written or is to be read."""

    text: str


class Reasoning(_Value, frozen=True, tag="reasoning"):
    """What a model thought before it answered. `signature`: the provider's proof that the text is its own.

    Whoever asks that provider again must send both back as they came. The text may be empty.
    """

    text: str
    signature: str = ""


class ToolCall(_Value, frozen=True, tag="tool_call"):
    """A model's wish to use a tool. `arguments` is JSON text as the model wrote it, and may be invalid.

    `signature` is the provider's, as that of Reasoning is.
    """

    id: str
    name: str
    arguments: str = "{}"
    signature: str = ""


class ToolResult(_Value, frozen=True, tag="tool_result"):
    """What came of the tool call with this id."""

    call_id: str
    text: str
    is_error: bool = False


class UserMessage(_Value, frozen=True, tag="user", tag_field="role"):
    """What a person or a step says to the model."""

    parts: tuple[Text, ...]


class Session(_Value, frozen=True):
    """The session of a program that works as an agent, after an answer, with what it counts in all so far."""

    program: str
    id: str
    input: int = 0
    output: int = 0
    cached: int = 0
    reasoning: int = 0


class AssistantMessage(_Value, frozen=True, tag="assistant", tag_field="role"):
    """What the model answered, in the order in which it came; a program's answer names its session."""

    parts: tuple[Text | Reasoning | ToolCall, ...]
    session: Session | None = None


class ToolMessage(_Value, frozen=True, tag="tool", tag_field="role"):
    """The results of the tool calls of the message before; all of them, since a model must see each."""

    parts: tuple[ToolResult, ...]


Message = UserMessage | AssistantMessage | ToolMessage


class Tool(_Value, frozen=True):
    """A tool that the model may wish to use; `parameters` is the JSON Schema of its arguments."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}


class JsonFormat(_Value, frozen=True, tag="json"):
    """The answer must be a JSON object."""


class SchemaFormat(_Value, frozen=True, tag="schema"):
    """The answer must be JSON of this JSON Schema."""

    name: str
    schema: dict[str, Any]


Format = JsonFormat | SchemaFormat


class ToolChoice(StrEnum):
    """Whether the answer may use tools."""

    REQUIRED = "required"
    NONE = "none"


class ModelRequest(_Value, frozen=True, kw_only=True):
    """One request. `model` is `provider:model`; None and empty values leave the choice to the provider."""

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    max_tokens: int | None = None
    """The ceiling of the answer, reasoning included."""
    temperature: float | None = None
    effort: Effort | None = None
    stop: tuple[str, ...] = ()
    format: Format | None = None
    """None: any text."""
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    """None: as the model likes."""


def user(text: str) -> UserMessage:
    """A user's message of one text."""
    return UserMessage((Text(text),))
