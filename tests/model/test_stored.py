"""What functions return, as it is stored: one rule, which no object can break."""

from __future__ import annotations

import enum
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, Protocol, TypedDict
from uuid import UUID

import msgspec
import pytest

from onward.errors import InvalidInput, UnstorableValue, said, told
from onward.model.stored import as_stored, check_returns, content_of


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclass
class Receipt:
    number: str
    amount: Decimal


class Order(msgspec.Struct, tag="order"):
    lines: frozenset[str]


class Point(NamedTuple):
    x: int
    y: int


class Name(str):
    """A text that is more than one."""


class Model:
    """As a pydantic model is dumped."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        assert mode == "json"
        return {"amount": "12.50"}


AT = datetime(2030, 1, 31, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (Decimal("12.50"), "12.50"),
        (AT, "2030-01-31T09:00:00Z"),
        (datetime(2030, 1, 31, 9), "2030-01-31T09:00:00"),
        (date(2030, 1, 31), "2030-01-31"),
        (time(9, 30), "09:30:00"),
        (timedelta(seconds=90), "PT90S"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (PurePosixPath("a/b"), "a/b"),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        ({"b", "a"}, ["a", "b"]),
        (frozenset({2, 10}), [10, 2]),
        ((1, Point(2, 3)), [1, [2, 3]]),
        ({"at": AT, "in": [b"\x00\xff"]}, {"at": "2030-01-31T09:00:00Z", "in": ["AP8="]}),
        (Receipt("R-17", Decimal(3)), {"number": "R-17", "amount": "3"}),
        (Order(frozenset({"x"})), {"type": "order", "lines": ["x"]}),
        (Model(), {"amount": "12.50"}),
        (OrderedDict(a=1), {"a": 1}),
        (Counter("aa"), {"a": 2}),
        ({7: "x", Colour.RED: "y", date(2030, 1, 31): "z"}, {"7": "x", "red": "y", "2030-01-31": "z"}),
        (Name("ann"), "ann"),
    ],
)
def test_common_types_become_json_by_one_rule(value: Any, stored: Any) -> None:
    found = as_stored(value, "it")
    assert found == stored
    assert type(found) is type(stored)
    assert msgspec.json.decode(msgspec.json.encode(found)) == stored


def test_json_is_stored_as_it_is() -> None:
    value = {"a": [1, 2.5, None, True, "ä"]}
    assert as_stored(value, "it") is value


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")

    @property
    def __class__(self) -> Any:
        raise RuntimeError("no")

    @__class__.setter
    def __class__(self, other: Any) -> None: ...


@dataclass
class Broken:
    amount: int

    def __getattribute__(self, name: str) -> Any:
        if name == "amount":
            raise RuntimeError("no")
        return super().__getattribute__(name)


def _endless() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (object(), "is a object"),
        ("half \ud800", "lone surrogate"),
        ({"a": ["half \ud800"]}, r"it\.a\[0\] contains a lone surrogate"),
        (Path("half-\udc80"), "lone surrogate"),
        (2**64, "of more than 64 bits"),
        (float("nan"), "JSON cannot represent"),
        ((one for one in (1, 2)), "is a generator"),
        ({1: "a", "1": "b"}, "two keys"),
        ({None: 1}, "keys must be strings"),
        (complex(1), "is a complex"),
        (_endless(), "nested deeper"),
        (Broken(1), "is a Broken"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_its_type_whatever_it_does(value: Any, why: str) -> None:
    with pytest.raises(UnstorableValue, match=why):
        as_stored(value, "it")


class OwnBytes(bytes):
    def __bytes__(self) -> bytes:
        raise RuntimeError("no")


def test_bytes_are_stored_as_they_are_whatever_they_say_of_themselves() -> None:
    assert content_of(OwnBytes(b"\0\xff"), "it") == b"\0\xff"
    assert content_of(memoryview(b"abcdef")[::2], "it") == b"ace"
    assert content_of("text", "it") is None
    assert content_of(Hostile(), "it") is None
    view = memoryview(b"gone")
    view.release()
    with pytest.raises(UnstorableValue, match="is a memoryview, which could not be read"):
        content_of(view, "it")


def test_an_object_that_does_not_let_itself_be_looked_at_is_refused_too() -> None:
    with pytest.raises(UnstorableValue, match="is a Hostile"):
        as_stored(Hostile(), "it")
    with pytest.raises(UnstorableValue, match="RuntimeError: no"):
        as_stored({"a": Hostile()}, "it")


class Gadget:
    """Something without declared fields."""


class Base:
    """One of its kinds can be stored."""


@dataclass
class Kind(Base):
    name: str


class HasName(Protocol):
    name: str


class Parts(TypedDict):
    name: str


def _numbers() -> Iterator[int]:
    yield 1


async def _later() -> AsyncIterator[int]:
    yield 1


def _declared(returns: Any) -> Callable[[], Any]:
    def function() -> Any:
        raise AssertionError("it is not called")

    function.__annotations__["return"] = returns
    return function


@pytest.mark.parametrize(
    "function",
    [
        _numbers,
        partial(_numbers),
        _later,
        *map(_declared, (Gadget, Iterator[int], complex, Callable[[], int], ValueError, Gadget | complex)),
    ],
)
def test_a_function_that_says_so_is_refused_before_it_is_called(function: Callable[[], Any]) -> None:
    with pytest.raises(InvalidInput, match="cannot be stored"):
        check_returns(function, "the function of call 'charge'")


@pytest.mark.parametrize(
    "returns",
    [
        Any, None, int, object, Decimal, Receipt, Order, Model, Base, HasName, Parts, Mapping[str, int],
        Sequence[str], list[Receipt], Gadget | None, Awaitable[int], "Unknown", Colour, bytes, type(None),
        tuple[int, ...],
    ],
)  # fmt: skip
def test_a_function_that_may_return_something_storable_is_called(returns: Any) -> None:
    check_returns(_declared(returns), "it")


def test_what_has_no_annotation_is_called() -> None:
    check_returns(lambda: 1, "it")
    check_returns(print, "it")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class NotText(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


def test_an_error_is_told_whatever_it_does() -> None:
    assert told(ValueError("no")) == "ValueError: no"
    assert told(ValueError()) == "ValueError"
    assert told(ValueError("\ud800")) == "ValueError: ?"
    assert told(Unprintable()) == "Unprintable: (it cannot be printed)"
    assert said(NotText()) == "(it cannot be printed)"
