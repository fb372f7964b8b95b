"""Typed reading of what was written about a graph, a node or an edge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from onward.errors import InvalidInput
from onward.pipeline.value import (
    Value,
    as_boolean,
    as_count,
    as_duration_s,
    as_integer,
    as_object,
    as_text,
    shown,
)

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
