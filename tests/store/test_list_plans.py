"""Lists are read from the end of the index that fits them, however many runs there are.

A process plans its statements once, often while the table is still empty: that plan must be right, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from msgspec.structs import replace

from bench.rows import POSTGRES_ROWS, SQLITE_ROWS, finished
from onward.model.run import RunStatus
from onward.store.port.runs import GatePlace, GateQuery, RunPlace, RunQuery, write_cursor
from onward.store.postgres.connection import Address, connect
from onward.store.postgres.statements import filtered_call
from onward.store.queries import filtered, gate_filters, run_filters
from onward.store.sqlite.statements import QUERIES as SQLITE
from onward.wiring import open_store
from tests.conformance.drafts import created

pytestmark = pytest.mark.anyio
AFTER, FAILED = write_cursor(RunPlace(500, "x")), (RunStatus.FAILED,)
RUNS = [
    ("run_by_creation", RunQuery()),
    ("run_by_creation", RunQuery(after=AFTER)),
    ("run_by_status", RunQuery(FAILED)),
    ("run_by_status", RunQuery(FAILED, after=AFTER)),
    ("run_by_pipeline", RunQuery(pipeline="p")),
    ("run_by_pipeline", RunQuery(pipeline="p", after=AFTER)),
    ("run_by_status_and_pipeline", RunQuery(FAILED, "p")),
    ("run_by_status_and_pipeline", RunQuery(FAILED, "p", after=AFTER)),
    ("run_by_reason", RunQuery(reasons=("crash",))),
    ("run_by_parent", RunQuery(parent="run")),
]
COMPLETED = (RunStatus.COMPLETED,)
MOST = [("run_by_status", RunQuery(COMPLETED)), ("run_by_pipeline", RunQuery(COMPLETED, "p", after=AFTER))]
"""What a server finds by another index if there are few others."""
GATES = [
    ("gate_open", GateQuery()),
    ("gate_open", GateQuery("p", write_cursor(GatePlace(1, "r", "g")))),
]
LISTS: list[tuple[str, str, dict[str, Any]]] = [
    *(("run_list", index, {**run_filters(query)[0]}) for index, query in (*RUNS, *MOST)),
    *(("gate_open", index, {**gate_filters(query)}) for index, query in GATES),
    ("measure_reasons", "run_by_reason", {}),
]


@pytest.mark.parametrize("rows", [0, 5_000])
async def test_sqlite_lists_by_the_index_that_fits(tmp_path: Path, rows: int) -> None:
    path = str(tmp_path / "onward.db")
    await (await open_store(path)).close()
    db = apsw.Connection(path)
    db.execute(SQLITE_ROWS, finished(rows))
    for name, index, filters in LISTS:
        text = f"EXPLAIN QUERY PLAN {filtered(SQLITE[name], filters)}"
        plan = [detail for *_, detail in db.execute(text, {**filters, "now_us": None})]
        assert index in plan[0].split(), plan
        if index != "run_by_parent":  # the forks of one run are few
            assert not any("TEMP B-TREE FOR ORDER BY" in detail for detail in plan), plan
    db.close()


FEW = """
INSERT INTO run (id, display_id, pipeline, pipeline_hash, status, reason, detail, recoverable, steps_finished,
    token, on_owner_loss, parent, parent_seq, parent_hash, created_at_us, updated_at_us, head, hash)
SELECT 'few' || n, 'f', 'rare', 'h', 'failed', 'crash', '', 1, 0,
    1, 'interrupt', run.id, 1, hash, n, n, 1, hash
FROM run, generate_series(1, 5) AS number (n)
WHERE run.id = 'completed1'
"""


@pytest.mark.postgres
async def test_postgres_lists_what_is_rare_by_the_index_that_fits(postgres_ready_url: str) -> None:
    """What most runs are can be read from the list of all; a cursor says how much of it is left."""
    store = await open_store(postgres_ready_url)
    async with await psycopg.AsyncConnection.connect(postgres_ready_url, autocommit=True) as connection:
        await connection.execute(POSTGRES_ROWS, finished(20_000))
        await connection.execute(FEW)
        await connection.execute("ANALYZE")
    async with await connect(Address.parse(postgres_ready_url)) as session:
        for index, query in RUNS:
            parent, pipeline = query.parent and "completed1", query.pipeline and "rare"
            rare = replace(query, after=None, pipeline=pipeline, parent=parent)
            (filters,) = run_filters(rare)
            cursor = await session.execute(f"EXPLAIN {_written({**filters, 'now_us': 0})}".encode())
            plan = "\n".join(row[0] for row in await cursor.fetchall())
            assert index in plan, plan
    assert len(await store.runs.list(RunQuery(FAILED, "rare"))) == 5
    await store.close()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    is_file = request.param == "sqlite"
    return str(tmp_path / "onward.db") if is_file else str(request.getfixturevalue("postgres_ready_url"))


async def test_a_search_ends_after_so_many_runs(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, and of those that the other filters let through."""
    store = await open_store(db)
    for number in range(20):
        await created(store, f"run-{number:02}", at_us=number, pipeline="odd" if number % 2 else "even")
    searches = {  # of the newest five
        RunQuery(text="run-1"): ["run-19", "run-18", "run-17", "run-16", "run-15"],
        RunQuery(text="run-1", limit=2): ["run-19", "run-18"],
        RunQuery(text="run-14"): [],
        RunQuery(text="run-1", pipeline="odd"): ["run-19", "run-17", "run-15", "run-13", "run-11"],
        RunQuery(text="run-0", after=write_cursor(RunPlace(8, "run-08")), limit=1): ["run-07"],
        RunQuery(FAILED, "odd", reasons=("crash",), parent="run-01", text="run", after=AFTER): [],
    }
    monkeypatch.setattr("onward.store.queries.SEARCHED_MAX", 5)
    for query, wanted in searches.items():
        assert [listed.row.id for listed in await store.runs.list(query)] == wanted
    await store.close()


def _written(values: dict[str, Any]) -> str:
    """The query of a list with its values in it, as the server plans it."""
    filters = {name: value for name, value in values.items() if name != "now_us"}
    statement = filtered_call("run_list", filters, now_us=0).statement
    text = statement.sql.decode()
    for number, name in reversed(list(enumerate(statement.parameters, 1))):
        text = text.replace(f"${number}", repr(values[name]))
    return text
