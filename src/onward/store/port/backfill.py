"""Runs from before a migration, of which it could not fill in what only the fold of a log knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from onward.model.row import GateRow
from onward.store.port.stored import Position


class Filling(msgspec.Struct, frozen=True):
    """What the log of a run says up to `position`: the columns and rows that its row lacks."""

    run_id: str
    position: Position
    doubtful: str | None
    gates: tuple[GateRow, ...]


class Backfill(Protocol):
    """The list of runs to fill in; it is empty for good soon after a migration."""

    async def missing(self) -> Sequence[str]:
        """The runs that are not filled in yet."""
        ...

    async def fill(self, filling: Filling) -> bool:
        """Write what was missing and take the run off the list; False if its log has grown since."""
        ...

    async def skip(self, run_id: str) -> None:
        """Take a run off the list whose log cannot be read."""
        ...
