"""How the databases find a due run: by the index of those that are, however many have finished.

A process plans its statements once, often while the table is still empty: that plan must be right, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from bench.rows import POSTGRES_ROWS, SQLITE_ROWS, due, finished, held
from onward.store.postgres.connection import Address, connect
from onward.store.postgres.statements import QUERIES as POSTGRES
from onward.store.queries import load_queries
from onward.store.sqlite.adapter import SqliteStore
from onward.wiring import open_store

DUE = 20
ROWS = [0, 1, 20, 5_000]


def kinds(rows: int) -> list[dict[str, Any]]:
    """What a worker finds: runs that have finished, some that are due, and some that others drive."""
    return [finished(rows), due(min(rows, DUE)), held(min(rows, DUE))]


async def explained(url: str, query: str) -> list[dict[str, Any]]:
    """Every node of the plan that a worker's session makes of a query."""
    statement = POSTGRES[query]
    nulls = ", ".join(["NULL"] * len(statement.parameters))
    async with await connect(Address.parse(url)) as connection:
        await connection.execute(b"PREPARE planned AS " + statement.sql)
        values = f"({nulls})" if nulls else ""
        cursor = await connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE planned {values}".encode())
        (((found,),),) = [await cursor.fetchall()]
    return list(_nodes(found[0]["Plan"]))


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def indexes(plan: list[dict[str, Any]]) -> list[str]:
    """The indexes by which it finds its rows; `all of it` where it reads the table."""
    scans = [node for node in plan if "Scan" in node["Node Type"] and node["Node Type"] != "Bitmap Heap Scan"]
    return [node.get("Index Name", "all of it") for node in scans]


@pytest.mark.postgres
@pytest.mark.parametrize("rows", ROWS)
async def test_postgres_claims_by_the_index_of_due_runs(postgres_ready_url: str, rows: int) -> None:
    """S2-7: read in the order of the index, so that a claim looks at one run and not at all that are due."""
    await (await open_store(postgres_ready_url)).close()
    async with await psycopg.AsyncConnection.connect(postgres_ready_url, autocommit=True) as connection:
        for kind in kinds(rows):
            await connection.execute(POSTGRES_ROWS, kind)
        await connection.execute("ANALYZE")
    plan = await explained(postgres_ready_url, "run_due")
    assert indexes(plan) == ["run_due", "run_exclusive"]
    assert not [node for node in plan if "Sort" in node["Node Type"]]
    assert indexes(await explained(postgres_ready_url, "run_held")) == ["run_held"]
    (counted_by,) = indexes(await explained(postgres_ready_url, "ceiling_used"))
    assert counted_by in ("run_held", "run_by_status")  # of running runs alone


@pytest.mark.parametrize("is_analyzed", [False, True])
@pytest.mark.parametrize("rows", ROWS)
async def test_sqlite_claims_by_the_index_of_due_runs(tmp_path: Path, rows: int, is_analyzed: bool) -> None:
    """S2-7."""
    path = str(tmp_path / "onward.db")
    store = SqliteStore(path)
    await store.runs.count()
    await store.close()
    database = apsw.Connection(path)
    for kind in kinds(rows):
        database.execute(SQLITE_ROWS, kind)
    if is_analyzed:
        database.execute("ANALYZE")
    queries = load_queries("onward.store.sqlite")
    values = {
        "now_us": None,
        "skipped": "[]",
        "unserved": "[]",
        "full": "[]",
        "pipeline": "p",
    }

    def plan(query: str) -> list[str]:
        found = database.execute(f"EXPLAIN QUERY PLAN {queries[query]}", values)
        return [detail for *_, detail in found]

    claim = plan("run_due")
    assert "run USING INDEX run_due" in claim[0]
    assert any("other USING INDEX run_exclusive" in detail for detail in claim)
    assert not [detail for detail in claim if "TEMP B-TREE" in detail]
    assert "INDEX run_held" in plan("run_held")[0]
    of_running = "INDEX run_by_status_and_pipeline (status=? AND pipeline=?)"
    assert of_running in plan("ceiling_used")[0]
    database.close()
