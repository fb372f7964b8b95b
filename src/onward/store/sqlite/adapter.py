"""SQLite: one file, one writer connection per process, a commit in the calling thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import apsw

from onward.clock import Clock, SystemClock
from onward.store.port.store import Unwatch
from onward.store.sqlite.backfill import SqliteBackfill
from onward.store.sqlite.blobs import SqliteBlobs
from onward.store.sqlite.carrying import SqliteCarrying
from onward.store.sqlite.chats.intakes import SqliteIntakes
from onward.store.sqlite.chats.messages import SqliteMessages
from onward.store.sqlite.effects import SqliteEffects
from onward.store.sqlite.file.checks import check_database
from onward.store.sqlite.file.connection import Connect
from onward.store.sqlite.file.identity import read_identity
from onward.store.sqlite.file.transaction import Transactions
from onward.store.sqlite.leases import SqliteLeases, SqliteWorkers
from onward.store.sqlite.limits.limits import SqliteLimits
from onward.store.sqlite.log import SqliteLog
from onward.store.sqlite.measures import SqliteMeasures
from onward.store.sqlite.news.gates import SqliteGates
from onward.store.sqlite.news.outbox import SqliteOutbox
from onward.store.sqlite.ownership import Ownership
from onward.store.sqlite.pipelines import SqlitePipelines
from onward.store.sqlite.retention import SqliteRetention
from onward.store.sqlite.runs import SqliteRuns
from onward.store.sqlite.writing import Writer

BUSY_S_MAX = 30.0
LEASE_S = 60.0


class SqliteStore:
    """Runs in one SQLite file.

    `busy_s` is how long to wait for another process's lock, `now_us` replaces the database's clock where
    leases are judged, and `connect` opens the file.
    """

    def __init__(
        self,
        path: str,
        *,
        clock: Clock | None = None,
        now_us: Callable[[], int | None] = lambda: None,
        lease_s: float = LEASE_S,
        busy_s: float = BUSY_S_MAX,
        connect: Connect = apsw.Connection,
    ) -> None:
        clock, lease_us = clock or SystemClock(), int(lease_s * 1_000_000)
        self.path = path
        self._ownership = owner = Ownership(path, now_us, lease_us)
        self._database = database = Transactions(path, clock=clock, busy_s=busy_s, connect=connect)
        try:
            self.identity = database.at_once(lambda db: read_identity(db, path))
        except BaseException:
            database.close()
            raise
        writer = Writer(now_us, lease_us)
        self.limits = SqliteLimits(database, owner, writer.warnings)
        self.log = SqliteLog(database, owner, writer)
        self.leases = SqliteLeases(database, owner, clock)
        self.workers = SqliteWorkers(database, owner)
        self.runs = SqliteRuns(database, owner, clock)
        self.gates = SqliteGates(database)
        self.outbox = SqliteOutbox(database, now_us)
        self.messages = SqliteMessages(database)
        self.intakes = SqliteIntakes(database)
        self.blobs = SqliteBlobs(database)
        self.pipelines = SqlitePipelines(database)
        self.effects = SqliteEffects(database, owner)
        self.retention = SqliteRetention(database)
        self.carrying = SqliteCarrying(database, writer)
        self.measures = SqliteMeasures(database, owner)
        self.backfill = SqliteBackfill(database)

    async def watch(self, on_due: Callable[[], None]) -> Unwatch:
        """Nothing tells one process of another's write to a file; a worker looks often instead."""

        async def unwatch() -> None:
            return None

        return unwatch

    async def check(self) -> Sequence[tuple[str, bool, str]]:
        return await self._database.look(lambda db: check_database(db, self.path))

    async def close(self) -> None:
        self._database.close()
        self._ownership.close()
