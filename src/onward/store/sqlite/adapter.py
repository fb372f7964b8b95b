"""SQLite: one file, one writer connection per process, a commit in the calling thread.

With it are what concerns the whole database: which one the file is, and what `onward doctor` looks at.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress

import apsw

from onward.clock import Clock, SystemClock
from onward.errors import StoreError
from onward.model.ids import Identity
from onward.store.owner import exposed_files
from onward.store.port.store import Unwatch
from onward.store.sqlite.connection import LIBRARY_MIN, Connect, schema_number
from onward.store.sqlite.leases import SqliteEffects, SqliteLeases, SqliteOwnership, SqliteWorkers
from onward.store.sqlite.limits import SqliteLimits
from onward.store.sqlite.log import SqliteLog, SqliteWriter
from onward.store.sqlite.messages import SqliteIntakes, SqliteMessages
from onward.store.sqlite.presence import NETWORK, filesystem_of
from onward.store.sqlite.principals import SqliteAudit, SqlitePrincipals
from onward.store.sqlite.retention import (
    SqliteBackfill,
    SqliteBlobs,
    SqliteCarrying,
    SqlitePipelines,
    SqliteRetention,
)
from onward.store.sqlite.runs import SqliteGates, SqliteMeasures, SqliteOutbox, SqliteRuns
from onward.store.sqlite.statements import one
from onward.store.sqlite.transaction import Transactions

BUSY_S_MAX = 30.0
WATCH_S = 0.1
"""How often to look whether a run has become due by what this or another process wrote."""
LEASE_S = 60.0


def connect_to_read(path: str) -> apsw.Connection:
    """A connection that cannot write."""
    return apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)


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
        self._ownership = owner = SqliteOwnership(path, now_us, lease_us)
        self._database = database = Transactions(path, clock=clock, busy_s=busy_s, connect=connect)
        try:
            self.identity = database.at_once(lambda db: read_identity(db, path))
        except BaseException:
            database.close()
            raise
        writer = SqliteWriter(now_us, lease_us)
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
        self.principals = SqlitePrincipals(database)
        self.audit = SqliteAudit(database)

    async def watch(self, on_due: Callable[[], None]) -> Unwatch:
        """Look often whether something was written: nothing tells a process of others' writes to a file."""
        watching = asyncio.create_task(self._watch(on_due))

        async def unwatch() -> None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

        return unwatch

    async def _watch(self, on_due: Callable[[], None]) -> None:
        written, newest = (0, 0), 0
        while True:
            with suppress(StoreError):  # out of reach; the worker says so when it looks
                found = await self._database.look(_written)
                if found != written:
                    written, before = found, newest
                    newest = await self._database.look(self._newest_due)
                    if newest > before:
                        on_due()
            await asyncio.sleep(WATCH_S)

    def _newest_due(self, db: apsw.Connection) -> int:
        (newest,) = one(db, "run_newest_due", now_us=self._ownership.now_us()) or (0,)
        return int(newest)

    async def version(self) -> int | None:
        return await self._database.glance(_version)

    async def check(self) -> Sequence[tuple[str, bool, str]]:
        return await self._database.look(lambda db: check_database(db, self.path))

    async def close(self) -> None:
        self._database.close()
        self._ownership.close()


def _written(db: apsw.Connection) -> tuple[int, int]:
    """Another value after each write: of other connections, and of this one."""
    return int(db.execute("PRAGMA data_version").get), db.total_changes()


def _version(db: apsw.Connection) -> int:
    others, ours = _written(db)
    return (others << 32) + ours


def read_identity(db: apsw.Connection, path: str) -> Identity:
    """Its own, with the file's name: a copy beside the original is not the original."""
    found = one(db, "identity_get")
    if found is None:
        raise apsw.CorruptError("its identity is missing")
    name, unmarked_until_us = found
    return Identity(f"{name}/{os.path.basename(path)}", unmarked_until_us)


SPACE_MIN = 64 * 1024 * 1024


def check_database(db: apsw.Connection, path: str) -> Sequence[tuple[str, bool, str]]:
    """Subject, whether it is well, and a sentence for each."""
    directory = os.path.dirname(os.path.abspath(path))
    version = apsw.sqlite_lib_version()
    kind, mode = filesystem_of(directory), stat.S_IMODE(os.stat(path).st_mode)
    # The side files have the mode that the database had when they were made.
    told = exposed_files([path, f"{path}-workers"]) or exposed_files([f"{path}-wal", f"{path}-shm"])
    space = os.statvfs(directory)
    free = space.f_bavail * space.f_frsize
    sound = db.execute("PRAGMA quick_check(1)").get
    return (
        ("library", tuple(map(int, version.split("."))) >= LIBRARY_MIN, f"SQLite {version}"),
        ("schema", True, f"schema {schema_number(db)}"),
        *_durability(db),
        ("file system", kind not in NETWORK, f"{path} is on {kind or 'an unknown file system'}"),
        ("permissions", not told, told or f"mode {mode:04o}"),
        ("space", free >= SPACE_MIN, f"{free // 2**20} MiB free"),
        ("integrity", sound == "ok", str(sound)),
    )


def _durability(db: apsw.Connection) -> Sequence[tuple[str, bool, str]]:
    if db.readonly("main"):
        return (("writable", False, "this user can only read it; runs cannot be started or changed"),)
    journal, sync = db.execute("PRAGMA journal_mode").get, db.execute("PRAGMA synchronous").get
    return (("durability", journal == "wal" and sync >= 2, f"journal_mode={journal}, synchronous={sync}"),)
