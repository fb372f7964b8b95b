"""Finding questions: an inbox is one query, and reads no log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from onward.model.row import GateRow
from onward.model.values.bounds import LISTED
from onward.store.port.cursor import read_cursor, write_cursor


class GatePlace(NamedTuple):
    """A gate's place in a list: nothing that happens to it changes it."""

    opened_at_us: int
    run_id: str
    gate: str


class GateQuery(msgspec.Struct, frozen=True):
    """Which open gates to list, oldest first; `after` the gate that a cursor names, if there is one."""

    pipeline: str | None = None
    after: str | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        LISTED.check(self.limit, "limit")
        if self.after is not None:
            read_cursor(self.after, GatePlace)

    @property
    def place(self) -> GatePlace | None:
        """The place of the gate that the list continues after."""
        return None if self.after is None else read_cursor(self.after, GatePlace)


def gate_cursor(row: GateRow) -> str:
    """Where a list that continues after this gate begins."""
    return write_cursor(GatePlace(row.opened_at_us, row.run_id, row.gate))


class Gates(Protocol):
    """Finding questions."""

    async def open(self, query: GateQuery) -> Sequence[GateRow]:
        """The gates that are open, oldest first, whatever the status of their runs."""
        ...

    async def of(self, run_id: str) -> Sequence[GateRow]:
        """Every gate of a run, open or not, oldest first."""
        ...
