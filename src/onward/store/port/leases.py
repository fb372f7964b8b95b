"""Who is at work: leases of runs, the workers that take runs, and effects that happen at most once.

A lease says which process may do the work of a run, and for how long. A worker is a process that takes runs
from the queue, registered with what it serves. An effect belongs to the process that began it, as long as
that can be alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from onward.model.row import Offer, RegisteredWorker


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

    @property
    def news(self) -> asyncio.Event:
        """Set when another process may have written to a run that this one holds: call `renew` at once.

        It may be set too often, and it may miss some.
        """
        ...

    async def renew(self, leases: Sequence[Lease]) -> Mapping[str, int]:
        """Renew these; answers the head of each run that is still held by that lease."""
        ...


class Workers(Protocol):
    """Who would take a queued run. Judged alive by the same means as the holders of runs."""

    @property
    def renew_s(self) -> float:
        """How often to call `register`: often enough to be known as alive."""
        ...

    async def register(self, offer: Offer) -> None:
        """Say that this process takes runs, and which; or that it still does."""
        ...

    async def leave(self) -> None:
        """Say that this process takes no more runs."""
        ...

    async def read(self) -> Sequence[RegisteredWorker]:
        """Every registered worker, in the order in which they started."""
        ...

    async def tidy(self) -> int:
        """Remove workers that are dead; returns how many."""
        ...


class Effect(msgspec.Struct, frozen=True):
    """An effect that was begun under `token`; `result` is there when it has finished.

    `is_alive` tells whether the process that began it can still be at it. Without a result and not alive, it
    is in doubt.
    """

    key: str
    token: str
    owner: str
    is_alive: bool
    begun_at_us: int
    finished_at_us: int | None = None
    result: bytes | None = None


class Effects(Protocol):
    """Effects that happen at most once.

    The token of a beginning is unique, so an old one is never taken for a new one, and every call can be
    repeated when its reply was lost.
    """

    async def begin(self, key: str, token: str, *, at_us: int, instead_of: str | None = None) -> Effect:
        """Begin it, unless it is there already; answers the one that is there then: ours has our token.

        One that was begun under the token `instead_of`, and has not finished, is begun again.
        """
        ...

    async def finish(self, key: str, token: str, result: bytes, *, at_us: int) -> bool:
        """Store what came of it; False if it is not the caller's any more, and then nothing is stored."""
        ...

    async def renew(self, key: str, token: str, *, is_at_it: bool = True) -> bool:
        """Say whether the caller is still at it; False if it is not the caller's any more."""
        ...

    async def forget(self, key: str, token: str) -> None:
        """As if it had never begun, if it is still the one with this token."""
        ...

    async def find(self, key: str) -> Effect | None:
        """The effect of this key, or None."""
        ...

    async def read(self, under: str, *, limit: int) -> Sequence[Effect]:
        """The effects whose keys begin with `under` and a slash, finished or not, by their keys."""
        ...
