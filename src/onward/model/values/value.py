"""Context values: what may be stored, and how a change is told apart from a repetition.

A value that went through the database must come back as exactly what it was, with its type. What cannot,
is refused at the moment it is set, not discovered at the resume.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from onward.errors import InvalidInput, UnstorableValue

DEPTH_MAX = 64
INT_MIN, INT_MAX = -(2**63), 2**64 - 1
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def check_value(value: object, where: str, depth: int = 0) -> None:
    """Refuse, naming `where`, what would not come back from JSON exactly as it went in."""
    match value:
        case None | bool():
            return
        case str():
            _check_text(value, where)
        case int() if type(value) is int:
            if not INT_MIN <= value <= INT_MAX:
                raise UnstorableValue(f"{where} is a whole number beyond 64 bits; store it as a string.")
        case float() if type(value) is float:
            if not math.isfinite(value):
                raise UnstorableValue(
                    f"{where} is {value!r}, which JSON cannot hold; store null or a string."
                )
        case list() | dict() if depth >= DEPTH_MAX:
            raise UnstorableValue(f"{where} is nested deeper than {DEPTH_MAX} levels; flatten it.")
        case list() if type(value) is list:
            for index, item in enumerate(value):
                check_value(item, f"{where}[{index}]", depth + 1)
        case dict() if type(value) is dict:
            for key, item in value.items():
                if type(key) is not str:
                    raise UnstorableValue(f"{where} has the key {key!r}; keys must be strings.")
                _check_text(key, where)
                check_value(item, f"{where}.{key}", depth + 1)
        case _:
            raise UnstorableValue(
                f"{where} is a {type(value).__name__}, which cannot be stored exactly; "
                "use null, true/false, numbers, strings, lists and dicts."
            )


def check_changes(changes: Mapping[str, Any]) -> None:
    """Refuse context changes that cannot be stored exactly."""
    for key, value in changes.items():
        if type(key) is not str or not key:
            raise UnstorableValue(f"the context key {key!r} is not a non-empty string.")
        _check_text(key, "a context key")
        check_value(value, f"context value {key!r}")


def _check_text(text: str, where: str) -> None:
    if type(text) is not str:
        raise UnstorableValue(f"{where} is a {type(text).__name__}; store a plain string.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UnstorableValue(f"{where} holds half of a character (a lone surrogate).") from None


def plain_text(text: object, where: str) -> str:
    """`text` as it can be stored: half characters become '?', and what is no text is refused."""
    if not isinstance(text, str):
        raise InvalidInput(f"{where} is a {type(text).__name__}; use a string.")
    return text.encode("utf-8", "replace").decode()


def changes_between(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What to store so that `before` becomes `before | after`: values set, and tails appended.

    A list or text that only grew is stored as its new tail, so a conversation handed over whole at
    every step costs what is new, not its square.
    """
    fresh: dict[str, Any] = {}
    grown: dict[str, Any] = {}
    for key, value in after.items():
        old = before.get(key, _MISSING)
        if old is _MISSING:
            fresh[key] = value
        elif not same(old, value):
            tail = _tail(old, value)
            if tail is None:
                fresh[key] = value
            else:
                grown[key] = tail
    return fresh, grown


_MISSING: Any = object()


def same(one: Any, other: Any) -> bool:
    """Equal in value and in type, all the way down: 1 is not 1.0 and not true."""
    if one is other:
        return True
    # Python's own equality rejects most differences at once; the encoding tells 1, 1.0 and true apart.
    return type(one) is type(other) and one == other and _encode(one) == _encode(other)


def _tail(old: Any, new: Any) -> Any:
    """The part of `new` after `old` if `new` begins with it; None if it does not."""
    if type(old) is not type(new) or not isinstance(new, list | str) or not old or len(new) <= len(old):
        return None
    if isinstance(new, str):
        return new[len(old) :] if new.startswith(old) else None
    return new[len(old) :] if same(old, new[: len(old)]) else None


def copied(changes: Mapping[str, Any]) -> dict[str, Any]:
    """The same values through the codec: nothing else refers to them."""
    return _decode(_encode(dict(changes)))  # type: ignore[no-any-return]


def grow(old: Any, tail: Any) -> Any:
    """The inverse of storing a tail."""
    return old + tail
