"""Measuring a SQLite database: one read transaction on a connection of its own, which may take its time."""

from __future__ import annotations

import contextlib
import os

import apsw

from onward.store.measures import DAY_US, HOUR_US
from onward.store.sqlite.connection import translated
from onward.store.sqlite.statements import QUERIES
from onward.store.tallies import MEASURES, Found

BUSY_MS_MAX = 5_000


def measure_file(path: str, now_us: int | None) -> Found:
    """Ask everything of one instant. Any thread may do this beside the store's own connection."""
    with translated(path):
        db = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
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
