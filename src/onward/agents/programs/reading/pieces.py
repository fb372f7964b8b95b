"""What a program says during one turn, whichever format it speaks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from onward.agents.model.stream import Usage


@dataclass(frozen=True, slots=True)
class Began:
    """The turn belongs to this session; `model` is what the program asks, if it says so."""

    session: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class Said:
    """Text for people."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """What the model thought, for people who want to see it."""

    text: str


@dataclass(frozen=True, slots=True)
class Used:
    """The program uses one of its tools."""

    tool: str
    what: str = ""


@dataclass(frozen=True, slots=True)
class Got:
    """What came of using a tool."""

    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Counted:
    """The tokens of the turn, and its cost if the program knows it.

    `is_total`: they count the whole session, earlier turns included.
    """

    usage: Usage
    cost_micro: int | None = None
    is_total: bool = False


@dataclass(frozen=True, slots=True)
class Noted:
    """Something that is worth a line in the step's log, and stops nothing."""

    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The turn has an answer. `facts` are what it says about the step beside the text, as in the JSON of
    the result contract."""

    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trouble:
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
