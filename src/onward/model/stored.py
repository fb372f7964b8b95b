"""What a function of a user returned, as it is stored: one rule for calls, effects and tools.

JSON stays as it is. These types become JSON, as msgspec writes them:

    Decimal, UUID, Path                    text
    datetime, date, time, timedelta        text, as ISO 8601 writes it
    Enum                                   its value
    tuple, set, frozenset                  a list; that of a set is in order
    bytes inside of something              base64
    dataclass, attrs, msgspec.Struct       an object of its fields
    pydantic model                         model_dump(mode="json")
    a subclass of str, int, float, list, dict    what it is a subclass of

Whoever called the function gets what was stored, the first time, too: so a resumed step sees the same. What
cannot be stored is refused, naming its type; nothing is pickled. A function that surely returns such a thing
is refused before it is called (`check_returns`). `as_declared` is the way back: the stored value as the type
that a function declares.
"""

from __future__ import annotations

import base64
import dataclasses
import inspect
import types
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import PurePath
from typing import Any
from uuid import UUID

import msgspec

from onward.errors import InvalidInput, UnstorableValue, kind_of, told
from onward.model.context import DEPTH_MAX, check_value

ADVICE = (
    "return null, true/false, numbers, strings, lists and dicts, or a type that is converted to them: "
    "Decimal, datetime, UUID, Path, Enum, set, a dataclass or a pydantic model"
)
_TEXTS, _TIMES, _BYTES = (Decimal, UUID, PurePath), (datetime, date, time), (bytes, bytearray, memoryview)
_LISTS = (list, tuple, set, frozenset)
_KNOWN: tuple[type, ...] = (
    types.NoneType, bool, str, int, float, dict, Enum, timedelta, msgspec.Struct,
    *_TEXTS, *_TIMES, *_BYTES, *_LISTS,
)  # fmt: skip
_ONE_BY_ONE = (Iterator, AsyncIterator)


def as_stored(value: object, where: str) -> Any:
    """The value as JSON; UnstorableValue names `where` and the type that cannot be stored.

    Whatever the value does when it is looked at, nothing else is raised for it.
    """
    try:
        check_value(value, where)
    except Exception:  # it is not JSON, or does not let itself be looked at
        return _from_objects(value, where)
    return value


def content_of(value: object, where: str) -> bytes | None:
    """The value if it is bytes, which are stored as they are; None of anything else.

    What the value says of itself does not count, since looking at it may raise: UnstorableValue, if it is
    bytes that cannot be read.
    """
    if not issubclass(type(value), _BYTES):
        return None
    try:
        return bytes(memoryview(value))  # type: ignore[arg-type]  # in all three; not by a method of its own
    except Exception as error:
        why = f"{where} is a {kind_of(value)}, which could not be read ({told(error)})"
        raise UnstorableValue(f"{why}; {ADVICE}.") from None


def is_awaitable(value: object) -> bool:
    """Whether what a function returned is to be awaited; not if it does not let itself be looked at."""
    try:
        return inspect.isawaitable(value)
    except Exception:
        return False


def _from_objects(value: object, where: str) -> Any:
    try:
        converted = _converted(value, where, 0)
        check_value(converted, where)
    except UnstorableValue:
        raise
    except Exception as error:
        why = f"{where} is a {kind_of(value)}, which could not be turned into JSON ({told(error)})"
        raise UnstorableValue(f"{why}; {ADVICE}.") from None
    return converted


def _converted(value: Any, where: str, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise UnstorableValue(f"{where} is nested deeper than {DEPTH_MAX} levels; flatten it.")
    match value:
        case None | bool():
            return value
        case Enum():
            return _converted(value.value, where, depth + 1)
        case str():
            return str.__str__(value)
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case Decimal() | UUID() | PurePath():
            return str(value)
        case datetime() | date() | time():
            return value.isoformat().replace("+00:00", "Z")
        case timedelta():
            return msgspec.to_builtins(timedelta(value.days, value.seconds, value.microseconds))
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(bytes(value)).decode()
        case list() | tuple():
            return _list(value, where, depth)
        case set() | frozenset():
            return sorted(_list(value, where, depth), key=msgspec.json.encode)
        case dict():
            return _object(value.items(), where, depth)
    fields = _fields(value)
    if inspect.iscoroutine(value):
        raise UnstorableValue(f"{where} is a coroutine, which cannot be stored; `await` is missing.")
    if fields is None:
        raise UnstorableValue(f"{where} is a {kind_of(value)}, which cannot be stored; {ADVICE}.")
    return _object(fields.items(), where, depth)


def _list(items: Iterable[Any], where: str, depth: int) -> list[Any]:
    return [_converted(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(items)]


def _object(items: Iterable[tuple[Any, Any]], where: str, depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, item in items:
        name = _converted(key, f"a key of {where}", depth + 1)
        if type(name) is int:
            name = str(name)
        if type(name) is not str:
            raise UnstorableValue(f"{where} has a key of type {type(key).__name__}; keys must be strings.")
        if name in made:
            raise UnstorableValue(f"{where} has two keys that are both {name!r} as text.")
        made[name] = _converted(item, f"{where}.{name}", depth + 1)
    return made


def _fields(value: Any) -> Mapping[str, Any] | None:
    """The fields of an object that has them declared; None of any other."""
    kind = type(value)
    if callable(getattr(kind, "model_dump", None)):
        dumped = value.model_dump(mode="json")
        return dumped if isinstance(dumped, dict) else {"root": dumped}
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        tag = {} if config.tag_field is None else {config.tag_field: config.tag}
        return tag | {one.encode_name: getattr(value, one.name) for one in msgspec.structs.fields(kind)}
    if dataclasses.is_dataclass(kind):
        return {one.name: getattr(value, one.name) for one in dataclasses.fields(kind)}
    if hasattr(kind, "__attrs_attrs__"):
        return {one.name: getattr(value, one.name) for one in kind.__attrs_attrs__}
    return None


class UnreadableType(ValueError):
    """A declared type that nothing stored can be converted to: the value may still be right."""


def as_declared(value: Any, declared: Any, *, is_text: bool = False) -> Any:
    """What was stored, as the type that is declared for it. ValueError says in a few words what does not fit.

    `is_text`: numbers and truth values may be written as text, as on a command line.
    """
    if declared is Any or declared is inspect.Parameter.empty or declared is object:
        return value
    if isinstance(value, bytes):  # bytes are stored as they are
        if declared in _BYTES:
            return declared(value)
        raise ValueError("it is bytes")
    try:
        return msgspec.convert(value, declared, strict=not is_text, dec_hook=_declared, str_keys=True)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    except (TypeError, NotImplementedError) as error:
        raise UnreadableType(f"its declared type cannot be read back ({error})") from None
    except Exception as error:  # of a type of the user, which may raise anything
        raise ValueError(told(error)) from None


def _declared(kind: type, value: Any) -> Any:
    """What msgspec does not know: anything, paths, and models of pydantic."""
    if kind is object:
        return value
    if hasattr(kind, "model_validate"):
        try:
            if getattr(kind, "__pydantic_root_model__", False) and isinstance(value, dict):
                value = value.get("root", value)
            return kind.model_validate(value)
        except ValueError as error:
            raise ValueError(str(error)) from None
    if issubclass(kind, PurePath):
        return kind(value)
    raise NotImplementedError(f"{kind.__name__} is not a data type")


def check_returns(function: Callable[..., Any], where: str) -> None:
    """Refuse a function that surely returns what cannot be stored: so it is said before anything is done.

    Only what it declares counts; without an annotation, or with one that may mean anything, it is called.
    """
    while isinstance(function, partial):
        function = function.func
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidInput(
            f"{where} is a generator function: calling it does nothing, and its result cannot be stored; "
            "return a list."
        )
    try:
        declared = typing.get_type_hints(function).get("return", Any)
        is_lost = not _may_be_stored(declared)
    except Exception:  # what cannot be read says nothing
        return
    if is_lost:
        name = getattr(declared, "__name__", None) or str(declared)
        raise InvalidInput(f"{where} returns a {name}, as it says, which cannot be stored; {ADVICE}.")


def _may_be_stored(declared: Any) -> bool:
    """Whether something of the declared type can be stored, also if only a subclass of it can."""
    origin = typing.get_origin(declared) or declared
    if origin in (typing.Union, types.UnionType):
        return any(map(_may_be_stored, typing.get_args(declared)))
    if origin is Callable:
        return False
    if declared is Any or not isinstance(origin, type):
        return True
    if issubclass(origin, _ONE_BY_ONE):
        return False
    is_open = inspect.isabstract(origin) or getattr(origin, "_is_protocol", False)
    is_known = issubclass(origin, (*_KNOWN, Awaitable)) or any(issubclass(one, origin) for one in _KNOWN)
    is_declared = dataclasses.is_dataclass(origin) or any(
        hasattr(origin, name) for name in ("model_dump", "__attrs_attrs__")
    )
    return is_open or is_known or is_declared or any(map(_may_be_stored, origin.__subclasses__()))
