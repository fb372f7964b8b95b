"""Leases: who may do the work of a run, and for how long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec


class Lease(NamedTuple):
    """The right to do a run's work. The token only grows, so an old lease is never mistaken for a new one."""

    run_id: str
    owner: str
    token: int


class Holder(msgspec.Struct, frozen=True):
    """The process that holds a run, by its stored name, and whether it can still be alive."""

    owner: str
    token: int
    is_alive: bool


class Leases(Protocol):
    """Keeping the leases of this process."""

    @property
    def owner(self) -> str:
        """The name under which this process holds runs."""
        ...

    @property
    def lease_s(self) -> float | None:
        """How long a claim or renewal is good for; None when only the process's death ends it."""
        ...

    @property
    def heartbeat_s(self) -> float:
        """How often to call `renew`: often enough to keep the lease and to learn of requests."""
        ...

    async def renew(self, leases: Sequence[Lease]) -> Mapping[str, int]:
        """Renew these; answers the head of each run that is still held by that lease."""
        ...
