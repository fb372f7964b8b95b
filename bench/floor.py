"""The floor: durable commits of the same rows by the bare driver, and nothing else."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import apsw
import psycopg

Row = tuple[str, int, str, int, int, int, str, bytes]
_TABLE = (
    "CREATE TABLE floor "
    "(run_id TEXT, seq BIGINT, kind TEXT, v INT, at_us BIGINT, token BIGINT, body TEXT, hash {})"
)


def sqlite_rate(directory: str, rows: Sequence[Row], commits: int) -> float:
    """Commits per second of `rows` in one transaction each, WAL and synchronous=FULL."""
    path = os.path.join(directory, f"floor-{time.monotonic_ns()}.db")
    db = apsw.Connection(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute(_TABLE.format("BLOB"))
    began = time.perf_counter()
    for _ in range(commits):
        db.execute("BEGIN IMMEDIATE")
        for row in rows:
            db.execute("INSERT INTO floor VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        db.execute("COMMIT")
    rate = commits / (time.perf_counter() - began)
    db.close()
    return rate


async def postgres_rate(url: str, rows: Sequence[Row], commits: int) -> float:
    """Commits per second of `rows` in one autocommitted INSERT each."""
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
        await db.execute("DROP TABLE IF EXISTS floor")
        await db.execute(_TABLE.format("BYTEA"))
        values = ", ".join(["(%s, %s, %s, %s, %s, %s, %s, %s)"] * len(rows))
        statement = f"INSERT INTO floor VALUES {values}".encode()
        parameters = [value for row in rows for value in row]
        began = time.perf_counter()
        for _ in range(commits):
            await db.execute(statement, parameters, prepare=True)
        return commits / (time.perf_counter() - began)
