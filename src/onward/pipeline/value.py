"""The values of attributes, and how one type is read from another.

The dialect writes the same value with and without quotes (`timeout=900s`, `timeout="900s"`), so every typed
reading also accepts the text form. If that is impossible, the message of the ValueError says what was
expected, as in "a whole number such as 3".

`Attributes` is the typed reading of what was written about a graph, a node or an edge.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from onward.errors import InvalidInput
from onward.model.context import check_value
from onward.model.values import DURATION_S_MAX, INTEGER_MAX

OBJECT_BYTES_MAX = 8_192

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION = re.compile(r"([0-9]{1,18})(ms|s|m|h|d)")
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_FLOAT = re.compile(r"-?[0-9]{0,100}\.[0-9]{1,100}")


class Duration(msgspec.Struct, frozen=True):
    """A length of time, and the text it was written as."""

    seconds: float
    text: str

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Read `250ms`, `30s`, `15m`, `2h` or `1d`; ValueError says what was expected."""
        match = _DURATION.fullmatch(text)
        if match is None:
            raise ValueError("a whole number with its unit, such as 250ms, 30s, 15m, 2h or 1d")
        seconds = int(match[1]) * _SECONDS[match[2]]
        if seconds > DURATION_S_MAX:
            raise ValueError("a duration of at most a hundred years")
        return cls(seconds, text)

    def __str__(self) -> str:
        return self.text


Value = str | int | float | bool | Duration


def number(text: str) -> int | float | Duration:
    """Read an unquoted value that starts like a number; ValueError says what was expected."""
    if _INTEGER.fullmatch(text):
        return _bounded(int(text))
    if _FLOAT.fullmatch(text):
        return float(text)
    try:
        return Duration.parse(text)
    except ValueError as error:
        raise ValueError(f"an integer, a decimal number, or {error}") from None


def as_text(value: Value) -> str:
    """The value as it would be written, without quotes."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def as_integer(value: Value) -> int:
    """The value as an integer of 64 bits."""
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("a whole number such as 3")
    return _bounded(value)


def _bounded(value: int) -> int:
    if abs(value) > INTEGER_MAX:
        raise ValueError("a whole number of at most 64 bits")
    return value


def as_count(value: Value) -> int:
    """The value as an integer that is not negative."""
    count = as_integer(value)
    if count < 0:
        raise ValueError("a whole number that is not negative")
    return count


def as_positive(value: Value) -> int:
    """The value as an integer of at least 1."""
    count = as_integer(value)
    if count < 1:
        raise ValueError("a whole number of at least 1")
    return count


def as_boolean(value: Value) -> bool:
    """The value as a boolean; only `true` and `false` are accepted."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip() in ("true", "false"):
        return value.strip() == "true"
    raise ValueError("true or false")


def as_duration_s(value: Value) -> float:
    """The value as seconds; a number without a unit is refused, because the unit would be a guess."""
    if isinstance(value, Duration):
        return value.seconds
    return Duration.parse(as_text(value).strip()).seconds


def as_positive_s(value: Value) -> float:
    """The value as seconds; a limit or interval of zero would let nothing happen."""
    seconds = as_duration_s(value)
    if seconds <= 0:
        raise ValueError("a duration of at least 1ms")
    return seconds


def as_object(value: Value) -> dict[str, Any]:
    """The value as a JSON object."""
    text = as_text(value)
    expected = 'a JSON object such as {\\"size\\": 3}'
    if len(text.encode("utf-8", "replace")) > OBJECT_BYTES_MAX:
        raise ValueError(f"a JSON object of at most {OBJECT_BYTES_MAX:,} bytes")
    try:
        found = json.loads(text)
        check_value(found, "it")
    except (ValueError, RecursionError, InvalidInput) as error:
        raise ValueError(f"{expected} ({str(error).removesuffix('.')})") from None
    if not isinstance(found, dict):
        raise ValueError(expected)
    return found


def shown(value: Value, *, characters_max: int = 60) -> str:
    """The value quoted for a message: printable, on one line and not long."""
    text = as_text(value)
    return repr(text if len(text) <= characters_max else text[: characters_max - 1] + "…")


T = TypeVar("T")


class Attributes(ABC):
    """Typed reading of attributes, the same for graph, node and edge.

    A value of the wrong type raises InvalidInput; for the dialect's own attributes, `check` has already
    refused such a pipeline.
    """

    attrs: Mapping[str, Value]

    @property
    @abstractmethod
    def subject(self) -> str:
        """The name of the graph, node or edge in messages."""

    def text(self, key: str, default: str = "") -> str:
        """The attribute as text, or `default` if it was not written."""
        value = self.attrs.get(key)
        return default if value is None else as_text(value)

    def integer(self, key: str) -> int | None:
        """The attribute as an integer, or None if it was not written."""
        return self._read(key, as_integer)

    def count(self, key: str) -> int | None:
        """The attribute as an integer that is not negative, or None if it was not written."""
        return self._read(key, as_count)

    def boolean(self, key: str, default: bool = False) -> bool:
        """The attribute as true or false, or `default` if it was not written."""
        value = self._read(key, as_boolean)
        return default if value is None else value

    def is_true(self, key: str) -> bool:
        """Whether the attribute says true; rules ask this before a value that is no boolean is refused."""
        value = self.attrs.get(key)
        return value is not None and as_text(value).strip() == "true"

    def duration_s(self, key: str) -> float | None:
        """The attribute as seconds, or None if it was not written."""
        return self._read(key, as_duration_s)

    def json_object(self, key: str) -> dict[str, Any]:
        """The attribute as a JSON object, or an empty one if it was not written."""
        return self._read(key, as_object) or {}

    def _read(self, key: str, reading: Callable[[Value], T]) -> T | None:
        value = self.attrs.get(key)
        if value is None:
            return None
        try:
            return reading(value)
        except ValueError as error:
            raise InvalidInput(f"{key} of {self.subject} is {shown(value)}; write {error}.") from None
