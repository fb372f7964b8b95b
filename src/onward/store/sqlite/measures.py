"""Measuring a SQLite database: one read transaction on a connection of its own, which may take its time."""

from __future__ import annotations

import contextlib
import os

import apsw

from onward.store.port.measures import DAY_US, HOUR_US, Measured
from onward.store.sqlite.file.connection import translated
from onward.store.sqlite.file.fixed import connect_fixed, is_fixed
from onward.store.sqlite.file.transaction import Transactions
from onward.store.sqlite.ownership import Ownership
from onward.store.sqlite.statements import QUERIES
from onward.store.tallies import MEASURES, Found, measured
from onward.threads import in_thread

BUSY_MS_MAX = 5_000


class SqliteMeasures:
    """Numbers about one SQLite file."""

    def __init__(self, database: Transactions, ownership: Ownership) -> None:
        self._database, self._ownership = database, ownership

    async def measure(self) -> Measured:
        # On a connection and in a thread of its own: counting a million runs must not stop this process.
        found = await in_thread(_measure, self._database.path, self._ownership.now_us())
        return measured(found, self._ownership.is_alive)

    async def note_stuck(self, run_id: str, why: str) -> None:
        values = {"run_id": run_id, "why": why, "now_us": self._ownership.now_us()}
        await self._database.transact(lambda db: db.execute(QUERIES["stuck_put"], values).fetchall())


def _measure(path: str, now_us: int | None) -> Found:
    """Ask everything of one instant."""
    with translated(path):
        readonly = apsw.SQLITE_OPEN_READONLY
        db = connect_fixed(path) if is_fixed(path) else apsw.Connection(path, flags=readonly)
        try:
            db.set_busy_timeout(BUSY_MS_MAX)
            db.execute("BEGIN")
            at_us = int(db.execute(QUERIES["measure_now"], {"now_us": now_us}).get)
            values = {"now_us": at_us, "hour_us": at_us - HOUR_US, "day_us": at_us - DAY_US}
            answers = [db.execute(QUERIES[name], values).fetchall() for name in MEASURES]
            return Found(at_us, _size(path), *answers)
        finally:
            db.close(True)


def _size(path: str) -> int:
    """The file, and beside it what is committed and not merged into it yet."""
    size = 0
    for name in (path, f"{path}-wal"):
        with contextlib.suppress(FileNotFoundError):
            size += os.stat(name).st_size
    return size
