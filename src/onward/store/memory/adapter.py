"""Memory: the reference. What it does is what the databases must do, in as few words as possible.

`MemoryDatabase` is the shared thing; each `MemoryStore` stands for one process that uses it. A process
that is `killed` stays in the table as an owner that is certainly dead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onward.clock import SystemClock, SystemIds
from onward.model.ids import Identity
from onward.store.memory.log import MemoryLimits, MemoryLog
from onward.store.memory.messages import MemoryIntakes, MemoryMessages
from onward.store.memory.principals import MemoryAudit, MemoryPrincipals
from onward.store.memory.retention import (
    MemoryBackfill,
    MemoryBlobs,
    MemoryCarrying,
    MemoryPipelines,
    MemoryRetention,
)
from onward.store.memory.runs import MemoryGates, MemoryMeasures, MemoryOutbox, MemoryRuns
from onward.store.memory.state import MemoryEffects, MemoryLeases, MemoryOwnership, MemoryWorkers, State
from onward.store.owner import IN_MEMORY
from onward.store.port.store import Unwatch


class MemoryDatabase(State):
    """What several stores share."""

    def __init__(self, now_us: Callable[[], int] | None = None) -> None:
        super().__init__(now_us or SystemClock().now_us)
        self.identity = Identity(SystemIds().unique())
        self._processes = 0

    def connect(self, lease_s: float | None = None) -> MemoryStore:
        """A new process at this database."""
        self._processes += 1
        return MemoryStore(self, f"{self._processes}@{IN_MEMORY}/{self._processes}", lease_s)


class MemoryStore:
    """Runs in this process's memory. With `lease_s` an owner is alive until its time is over."""

    def __init__(self, database: MemoryDatabase, owner: str, lease_s: float | None = None) -> None:
        self.database, self.identity = database, database.identity
        self._ownership = ownership = MemoryOwnership(database, owner, lease_s)
        database.alive.add(owner)
        self.limits = MemoryLimits(ownership)
        self.log = MemoryLog(database, ownership, self.limits)
        self.leases = MemoryLeases(ownership)
        self.workers = MemoryWorkers(ownership)
        self.runs = MemoryRuns(ownership)
        self.gates = MemoryGates(database)
        self.outbox = MemoryOutbox(database)
        self.messages = MemoryMessages(database)
        self.intakes = MemoryIntakes(database)
        self.blobs = MemoryBlobs(database)
        self.pipelines = MemoryPipelines(database)
        self.effects = MemoryEffects(ownership)
        self.retention = MemoryRetention(database)
        self.carrying = MemoryCarrying(database, self.log)
        self.measures = MemoryMeasures(ownership)
        self.backfill = MemoryBackfill()
        self.principals = MemoryPrincipals(database)
        self.audit = MemoryAudit(database)

    def kill(self) -> None:
        """From now on this process is dead to all others."""
        self.database.alive.discard(self._ownership.owner)

    async def watch(self, on_due: Callable[[], None]) -> Unwatch:
        self.database.watchers.append(on_due)

        async def unwatch() -> None:
            self.database.watchers.remove(on_due)

        return unwatch

    async def version(self) -> int | None:
        return None

    async def check(self) -> Sequence[tuple[str, bool, str]]:
        return (
            (
                "durability",
                False,
                "the memory store is lost with its process; use SQLite or PostgreSQL to keep runs",
            ),
        )

    async def close(self) -> None:
        self.kill()
