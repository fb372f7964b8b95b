"""What a reader can follow: each becomes one stream, and those with a cursor start after it."""

from __future__ import annotations

import msgspec


class Events(msgspec.Struct, frozen=True):
    """The events of a run after event `after`; `run` is its whole id.

    `dialect`: under the event names of the DOT dialect.
    """

    run: str
    after: int = 0
    dialect: bool = False


class Messages(msgspec.Struct, frozen=True):
    """What is said after position `after`: in the chat of this name, or by the run of this id."""

    of: str
    after: int = 0


class Feed(msgspec.Struct, frozen=True):
    """Which runs changed after change `after`; without it, what stands now and then what changes."""

    after: int | None = None


class State(msgspec.Struct, frozen=True):
    """How a run stands, again and again."""

    run: str


class Rows(msgspec.Struct, frozen=True):
    """The rows of these runs in a list, whenever they change."""

    runs: tuple[str, ...]


Want = Events | Messages | Feed | State | Rows
