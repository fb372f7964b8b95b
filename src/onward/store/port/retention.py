"""Forgetting runs: which could go, and which other runs still need them.

`engine/control/retention.py` decides what may be forgotten; a store gives the facts and makes sure, in the
transaction that deletes, that nothing has changed since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from onward.model.run import Frozen, RunStatus


class Kin(Frozen, frozen=True, kw_only=True):
    """A run, and the runs it is related to: forked from, managed by, restarted from, and continued as."""

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


class Expiry(msgspec.Struct, frozen=True):
    """Runs in these statuses that nothing has happened to since `before_us`, without the `keep` newest."""

    statuses: tuple[RunStatus, ...]
    before_us: int
    keep: int = 0


class Retention(Protocol):
    """Forgetting runs."""

    async def expired(self, expiry: Expiry) -> Sequence[Kin]:
        """The runs that are old enough, oldest first."""
        ...

    async def attached(self) -> Sequence[Kin]:
        """The runs that may need others: all that are not final, and all forks; in no order."""
        ...

    async def delete(self, runs: Sequence[Kin]) -> Sequence[str]:
        """Delete runs with all that is theirs, in this order and one transaction; the ids that are gone now.

        Theirs are also the effects whose keys begin with the run's id and a `/`, and the chat that a run has
        if it was given none. What it said in another chat stays there.

        One stays if its log has grown, if a process holds it, or if a fork stands on it.
        """
        ...
