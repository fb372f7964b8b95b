"""Forgetting runs: which could go, who still needs them, and content that nobody refers to any more.

`engine/control/retention.py` decides what may be forgotten; a store gives the facts and makes sure, in the
transaction that deletes, that nothing has changed since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from onward.clock import SystemIds
from onward.model.event import Managed
from onward.model.run import Frozen, RunStatus

DELETED_AT_ONCE = 100
"""How many blobs one transaction marks or deletes: writers wait for no more than that."""
MARK_DIGITS = 15  # of a hexadecimal number: with its sign it fits into 64 bits


def new_mark() -> int:
    """What a sweep writes in place of the time at which a blob was touched: below all times, and its own."""
    return -1 - int(SystemIds().unique()[:MARK_DIGITS], 16)


def batched(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """The names, so many at a time."""
    for start in range(0, len(names), size):
        yield names[start : start + size]


def keys_below(under: str) -> tuple[str, str]:
    """The keys that begin with `under` and a slash: from the first of these on, and before the second.

    No run's id has a `/` in it, so below it are the effects of that run alone.
    """
    return f"{under}/", f"{under}{chr(ord('/') + 1)}"


class Kin(Frozen, frozen=True, kw_only=True):
    """A run, and the runs it is related to: forked from, managed by, restarted from, and gone on as."""

    id: str
    head: int
    status: RunStatus
    parent: str | None = None
    successor: str | None = None
    manager: str | None = None
    restart_of: str | None = None

    @property
    def is_final(self) -> bool:
        return self.status in (RunStatus.COMPLETED, RunStatus.CANCELLED)


class Lineage(Frozen, frozen=True, kw_only=True):
    """What a run's first event says about where it came from."""

    managed_by: Managed | None = None
    restart_of: str | None = None


@dataclass(frozen=True, slots=True)
class Expiry:
    """Runs in these statuses that nothing has happened to since `before_us`, without the `keep` newest."""

    statuses: tuple[RunStatus, ...]
    before_us: int
    keep: int = 0


class Swept(NamedTuple):
    """How many blobs were deleted, and how many stored bytes they had."""

    blobs: int
    bytes: int

    def plus(self, other: Swept) -> Swept:
        return Swept(self.blobs + other.blobs, self.bytes + other.bytes)


NOTHING = Swept(0, 0)


class Retention(Protocol):
    """Forgetting."""

    async def expired(self, expiry: Expiry) -> Sequence[Kin]:
        """The runs that are old enough, oldest first, and whose first event can be read."""
        ...

    async def attached(self) -> Sequence[Kin]:
        """The runs that may need others: all that are not final, and all forks; in no order."""
        ...

    async def delete(self, runs: Sequence[Kin]) -> Sequence[str]:
        """Delete runs with all that is theirs, in this order and one transaction; the ids that are gone now.

        Theirs are also the effects whose keys begin with the run's id and a `/`.

        One stays if its log has grown, if somebody owns it, or if a fork stands on it.
        """
        ...

    async def sweep_blobs(self, before_us: int, limit: int) -> Swept:
        """Delete up to `limit` blobs that nothing refers to and that were not touched since `before_us`.

        No clock decides whether content that is referred to stays. Blobs are marked, then references are
        looked for again, and then those that still have the mark are deleted. A write that uses a blob takes
        the mark off in its own transaction, or stores the content again if it is gone by then.
        """
        ...
