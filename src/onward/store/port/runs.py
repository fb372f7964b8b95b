"""Finding runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from onward.model.row import RunRow
from onward.model.run import RunStatus
from onward.model.values.bounds import LISTED
from onward.store.port.leases import Holder


@dataclass(frozen=True, slots=True)
class Listed:
    """A row in a list, and who holds the run."""

    row: RunRow
    holder: Holder | None


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Which runs to list, newest first."""

    statuses: tuple[RunStatus, ...] = ()
    pipeline: str | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        LISTED.check(self.limit, "limit")


class Runs(Protocol):
    """Finding runs."""

    async def find(self, wanted: str) -> Sequence[Listed]:
        """Runs by display id; if there is none, by full id; if there is none, by prefix of either."""
        ...

    async def list(self, query: RunQuery) -> Sequence[Listed]:
        """Runs, newest first."""
        ...

    async def forks(self, run_id: str) -> Sequence[Listed]:
        """The runs that were forked from this one, oldest first."""
        ...

    async def held(self) -> Sequence[Listed]:
        """Every run that a process holds, whether that process is alive or not."""
        ...

    async def count(self) -> Mapping[RunStatus, int]:
        """How many runs there are in each status."""
        ...
