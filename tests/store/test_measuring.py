"""What operators count is read from indexes, however many runs are over."""

from __future__ import annotations

import re

import apsw
import psycopg
import pytest

from onward.model.events import RunCancelled
from onward.model.run import RunStatus
from onward.store.port.runs import HeldRuns, Stand
from onward.store.port.store import Store
from onward.store.postgres.statements import QUERIES as POSTGRES
from onward.store.rows import MEASURE_QUERIES as ALL_MEASURES
from onward.store.sqlite.adapter import SqliteStore
from onward.store.sqlite.statements import QUERIES as SQLITE
from onward.wiring import open_store
from tests.conformance.drafts import START_US, created, held, requested

COLUMNS = """display_id, pipeline, pipeline_hash, status, reason, detail, recoverable, steps_finished, token,
on_owner_loss, created_at_us, updated_at_us, ended_at_us, head, hash"""
MANY = 20_000
SMALL = ("measure_stuck", "worker_read")  # tables of their own, of a few rows
MEASURES = [name for name in ALL_MEASURES if name not in SMALL]
VALUES = {"now_us": START_US, "hour_us": START_US - 10, "day_us": START_US - 20}


async def _one_that_is_over(store: Store) -> None:
    await requested(store, await created(store, "seed"), RunCancelled(reason="user"))


async def test_what_is_counted_is_read_from_indexes_alone(tmp_path: object) -> None:
    path = f"{tmp_path}/onward.db"
    store = await open_store(path)
    await _one_that_is_over(store)
    db = apsw.Connection(path)
    for name in MEASURES:
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {SQLITE[name]}", VALUES)]
        reads = [line for line in plan if line.startswith(("SCAN", "SEARCH"))]
        # Held runs are few, and the first of the queue are counted out, so their rows may be looked at; all
        # else must come from the index itself.
        rows_of = {"measure_holders": "USING INDEX run_held", "measure_needs": "USING INDEX run_due"}
        reads = [line for line in reads if not line.startswith("SCAN first")]  # what was found, to be grouped
        assert len(reads) == 1, plan
        assert rows_of.get(name, "USING COVERING INDEX") in reads[0], plan
    db.close()
    await store.close()


@pytest.mark.postgres
async def test_postgres_counts_many_runs_by_its_indexes(postgres_ready_url: str) -> None:
    store = await open_store(postgres_ready_url)
    await _one_that_is_over(store)
    with psycopg.connect(postgres_ready_url, autocommit=True) as connection:
        connection.execute(
            f"INSERT INTO run (id, {COLUMNS}) SELECT 'r' || n, {COLUMNS} "
            f"FROM generate_series(2, {MANY}) AS number (n), run WHERE run.id = 'seed'".encode()
        )
        connection.execute(
            "INSERT INTO outbox (id, subscriber, run_id, seq, kind, body, created_at_us, state, token, "
            "tries, error) SELECT 'n' || n, 'notify', 'seed', 1, 'gate', '', 1, 'delivered', 1, 1, '' "
            f"FROM generate_series(1, {MANY}) AS number (n)".encode()
        )
        connection.execute("VACUUM ANALYZE run")
        connection.execute("VACUUM ANALYZE outbox")
        for name in MEASURES:
            sql = re.sub(r"\$\d+", str(START_US * 2), POSTGRES[name].sql.decode())
            plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN {sql}".encode()))
            assert "Seq Scan" not in plan, plan
    found = await store.measures.measure()
    assert found.runs == {Stand(RunStatus.CANCELLED, "user", False): MANY}
    await store.close()


async def test_a_held_run_that_its_living_process_does_not_renew_is_stalled(tmp_path: object) -> None:
    """On SQLite the lock of a living process protects what it holds; others see that it is not driven."""
    late_us = [None, 10**18]
    holder = SqliteStore(f"{tmp_path}/onward.db", now_us=lambda: late_us[0])
    looking = SqliteStore(f"{tmp_path}/onward.db", now_us=lambda: late_us[0])
    await held(holder)
    assert (await looking.measures.measure()).stalled == 0
    late_us.reverse()
    assert (await looking.measures.measure()).holdings == (HeldRuns(holder.leases.owner, 1, 1),)
    await looking.close()
    await holder.close()
