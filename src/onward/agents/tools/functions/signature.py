"""What a function's signature says: the schema of its arguments, and how they become Python values."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from onward.agents.tools.functions.inlining import inlined
from onward.agents.tools.port import ToolRefused, ToolUse
from onward.errors import InvalidInput
from onward.handlers.isolate.messages import IsolatedStep
from onward.handlers.port import StepContext

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Signature(msgspec.Struct, frozen=True):
    """The parameters of a function that a model fills in, and those that get the step and the use."""

    schema: dict[str, Any]
    arguments: type[msgspec.Struct]
    ours: Mapping[str, type]

    def convert(self, use: ToolUse) -> dict[str, Any]:
        """The keywords to call the function with; ToolRefused says which argument does not fit."""
        try:
            converted = msgspec.convert(use.arguments, self.arguments)
        except msgspec.ValidationError as error:
            raise ToolRefused(f"the arguments do not fit: {error}") from None
        found = {name: getattr(converted, name) for name in self.arguments.__struct_fields__}
        words = {name: value for name, value in found.items() if value is not msgspec.UNSET}
        return words | {name: use if kind is ToolUse else use.step for name, kind in self.ours.items()}


def read_signature(function: Callable[..., Any], where: str) -> Signature:
    """The signature of a function; InvalidInput names the parameter that a model cannot be told of."""
    hints = _hints(function, where)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    defaults: dict[str, Any] = {}
    ours: dict[str, type] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in _NAMED:
            raise InvalidInput(f"{where}: the parameter {parameter} has no name of its own; name each one.")
        if name not in hints:
            raise InvalidInput(
                f"{where}: the parameter {name!r} has no type; write one, such as {name}: str, "
                f"or {name}: StepContext for the step."
            )
        if hints[name] in (StepContext, IsolatedStep, ToolUse):
            ours[name] = hints[name]
            continue
        kind = _described(hints[name])
        _check_type(name, kind, where)
        if parameter.default is inspect.Parameter.empty:
            fields.append((name, kind))
        else:
            defaults[name] = parameter.default
            fields.append((name, Union[kind, msgspec.UnsetType], msgspec.UNSET))  # noqa: UP007 - not a type
    arguments = _struct(fields, where)
    return Signature(_schema(arguments, defaults), arguments, ours)


def _hints(function: Callable[..., Any], where: str) -> dict[str, Any]:
    try:
        named = function if inspect.isroutine(function) else type(function).__call__
        return get_type_hints(named, include_extras=True)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise InvalidInput(
            f"{where}: the types of its parameters{_culprit(function)} cannot be read ({error}); "
            "use types that are known at the top level of its module."
        ) from None


def _culprit(function: Callable[..., Any]) -> str:
    """The parameter whose type cannot be read."""
    for name, written in getattr(function, "__annotations__", {}).items():
        alone = types.SimpleNamespace(__annotations__={name: written})
        try:
            get_type_hints(alone, getattr(function, "__globals__", {}))
        except Exception:
            return f", {name!r} first,"
    return ""


def _described(kind: Any) -> Any:
    """The type, with a text beside it as the description: `Annotated[str, "where it is"]`."""
    if get_origin(kind) is not Annotated:
        return kind
    inner, *notes = get_args(kind)
    for note in notes:
        text = note if isinstance(note, str) else None
        if isinstance(note, msgspec.Meta) or text is not None:
            inner = Annotated[inner, msgspec.Meta(description=text) if text is not None else note]
    return inner


def _check_type(name: str, kind: Any, where: str) -> None:
    try:
        msgspec.json.schema(kind)
    except (TypeError, ValueError) as error:
        why = str(error).strip().splitlines()[-1]
        raise InvalidInput(
            f"{where}: a model cannot be told what the parameter {name!r} takes ({why}); use texts, numbers, "
            "lists, dicts, Literal, enums, dataclasses, TypedDict or msgspec.Struct."
        ) from None


def _struct(fields: list[Any], where: str) -> type[msgspec.Struct]:
    try:
        return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{where}: its parameters cannot be described ({error}).") from None


def _schema(arguments: type[msgspec.Struct], defaults: Mapping[str, Any]) -> dict[str, Any]:
    schema = inlined(arguments)
    for name, default in defaults.items():
        try:
            plain = msgspec.to_builtins(default)
        except (TypeError, ValueError):
            continue  # a default that no model could give
        if plain is not None:
            schema["properties"][name] = {**schema["properties"][name], "default": plain}
    return schema
