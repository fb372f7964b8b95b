"""A database with all its parts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from onward.model.ids import Identity
from onward.store.port.leases import Effects, Leases, Workers
from onward.store.port.limits import Limits
from onward.store.port.log import RunLog
from onward.store.port.messages import Intakes, Messages
from onward.store.port.principals import Audit, Principals
from onward.store.port.retention import Backfill, Blobs, Carrying, Pipelines, Retention
from onward.store.port.runs import Gates, Measures, Outbox, Runs

Unwatch = Callable[[], Awaitable[None]]


class Store(Protocol):
    """A database as one process uses it: its parts, and what concerns all of it."""

    @property
    def log(self) -> RunLog: ...

    @property
    def leases(self) -> Leases: ...

    @property
    def runs(self) -> Runs: ...

    @property
    def gates(self) -> Gates: ...

    @property
    def outbox(self) -> Outbox: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def messages(self) -> Messages: ...

    @property
    def intakes(self) -> Intakes: ...

    @property
    def blobs(self) -> Blobs: ...

    @property
    def pipelines(self) -> Pipelines: ...

    @property
    def effects(self) -> Effects: ...

    @property
    def retention(self) -> Retention: ...

    @property
    def carrying(self) -> Carrying: ...

    @property
    def workers(self) -> Workers: ...

    @property
    def measures(self) -> Measures: ...

    @property
    def backfill(self) -> Backfill: ...

    @property
    def principals(self) -> Principals: ...

    @property
    def audit(self) -> Audit: ...

    @property
    def identity(self) -> Identity:
        """Which database this is: the same for every process that uses it, and different for every other."""
        ...

    async def watch(self, on_due: Callable[[], None]) -> Unwatch:
        """Call `on_due` when a run may have become due, if the database can tell; returns how to stop that.

        It may call too often, and it may miss some: a worker also looks by itself.
        """
        ...

    async def version(self) -> int | None:
        """Another number after every write of any process; None if asking would cost as much as reading.

        It is asked outside transactions, and is only good for being compared with the one before.
        """
        ...

    async def check(self) -> Sequence[tuple[str, bool, str]]:
        """What `onward doctor` says about this database: subject, whether it is well, and a sentence."""
        ...

    async def close(self) -> None:
        """Close files and connections. Other processes can take over the runs that are still held."""
        ...
