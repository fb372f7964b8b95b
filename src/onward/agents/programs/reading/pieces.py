"""What a program says during one turn, whichever format it speaks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from onward.agents.model.stream import Usage


class Began(msgspec.Struct, frozen=True):
    """The turn belongs to this session; `model` is what the program asks, if it says so."""

    session: str = ""
    model: str = ""


class Said(msgspec.Struct, frozen=True):
    """Text for people."""

    text: str


class Thought(msgspec.Struct, frozen=True):
    """What the model thought, for people who want to see it."""

    text: str


class Used(msgspec.Struct, frozen=True):
    """The program uses one of its tools."""

    tool: str
    what: str = ""


class Got(msgspec.Struct, frozen=True):
    """What came of using a tool."""

    text: str
    is_error: bool = False


class Counted(msgspec.Struct, frozen=True):
    """The tokens of the turn, and its cost if the program knows it.

    `is_total`: they count the whole session, earlier turns included.
    """

    usage: Usage
    cost_micro: int | None = None
    is_total: bool = False


class Noted(msgspec.Struct, frozen=True):
    """Something that is worth a line in the step's log, and stops nothing."""

    text: str


class Ended(msgspec.Struct, frozen=True):
    """The turn has an answer. `facts` are what it says about the step beside the text, as in the JSON of
    the result contract."""

    text: str
    facts: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Trouble(msgspec.Struct, frozen=True):
    """The program says that it failed. `kind` is one of FailureKind, or `session`, or nothing."""

    message: str
    kind: str = ""
    retry_at_us: int | None = None


Piece = Began | Said | Thought | Used | Got | Counted | Noted | Ended | Trouble


class Reader(Protocol):
    """Reads the output of one turn."""

    def read(self, event: Mapping[str, Any]) -> Iterable[Piece]:
        """What an event says. One of an unknown type says nothing."""
        ...


def text_of(value: object) -> str:
    """The value if it is text, else nothing: programs change, and no field is sure to be there."""
    return value if isinstance(value, str) else ""


def object_of(value: object) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def objects_of(value: object) -> list[Mapping[str, Any]]:
    """The objects in a list, if it is one."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def whole_of(value: object) -> int:
    """A count; whatever is none counts as 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def micro_of(value: object) -> int | None:
    """Dollars as a whole number of millionths; None if it is no amount."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        return None
    return round(value * 1_000_000)
