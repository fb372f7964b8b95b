"""What forgetting asks is answered through indexes: it does not read every event of every run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw
import psycopg
import pytest

from onward.store.postgres.statements import QUERIES as POSTGRES
from onward.store.sqlite.statements import QUERIES as SQLITE
from onward.wiring import open_store
from tests.conformance.drafts import created

pytestmark = pytest.mark.anyio
Explain = Callable[[str], str]
# Runs and events as they are in a database that has been used: few forks, few events that name content.
NUMBERS = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})
"""
RUNS = """
INSERT INTO run (
    id, display_id, pipeline, pipeline_hash, status, reason, detail, recoverable, steps_finished, token,
    on_owner_loss, parent, parent_seq, parent_hash, created_at_us, updated_at_us, head, hash
)
SELECT 'run-' || n, 'd' || n, 'p', 'h', CASE WHEN n % 500 = 0 THEN 'failed' ELSE 'completed' END,
    '', '', 1, 0, 0, 'interrupt', CASE WHEN n % 400 = 0 THEN 'run-1' END, CASE WHEN n % 400 = 0 THEN 1 END,
    CASE WHEN n % 400 = 0 THEN hash END, n, n, 1, hash
FROM numbers, (SELECT hash FROM event LIMIT 1) AS known
"""
EVENTS = """
INSERT INTO event (run_id, seq, kind, v, at_us, token, body, hash, refs)
SELECT 'run-' || n, 1, CASE WHEN n % 1000 = 0 THEN 'PipelineChanged' ELSE 'StepStarted' END, 1, 1, 1,
    '{"before": "x"}', hash, CASE WHEN n % 900 = 0 THEN 'abc ~def' END
FROM numbers, (SELECT hash FROM event LIMIT 1) AS known
"""
COUNT = 5_000
ASKED = {
    "run_delete": {":id": "'run-7'", ":head": "1"},
    "run_relatives": {":id": "'run-1'", ":limit": "9"},
    "run_attached": {},
    "measure_reasons": {},
    "blob_unused": {":before_us": "1", ":limit": "10"},
    "effect_delete": {":id": "'run-7'", ":first": "'run-7/'", ":behind": "'run-70'"},
}


def asked(name: str, text: str) -> str:
    """A query with its values written into it."""
    for parameter, value in ASKED[name].items():
        text = text.replace(parameter, value)
    return text


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def explain(request: pytest.FixtureRequest, tmp_path: Path) -> Explain:
    """How a database that has been used would answer a query of ours."""
    is_postgres = request.param == "postgres"
    db = request.getfixturevalue("postgres_ready_url") if is_postgres else str(tmp_path / "onward.db")
    store = await open_store(db)
    await created(store, "first")
    await store.close()
    fill = [NUMBERS.format(count=COUNT) + part for part in (RUNS, EVENTS)]
    if is_postgres:
        return lambda name: _postgres(db, fill, name)
    return lambda name: _sqlite(db, fill, name)


def _sqlite(path: str, fill: list[str], name: str) -> str:
    db = apsw.Connection(path)
    try:
        for part in (*fill, "ANALYZE"):
            db.execute(part)
        return "\n".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {asked(name, SQLITE[name])}"))
    finally:
        db.close()


def _postgres(url: str, fill: list[str], name: str) -> str:
    text = POSTGRES[name].sql.decode()
    for number, parameter in enumerate(POSTGRES[name].parameters, 1):
        text = text.replace(f"${number}", f":{parameter}")
    with psycopg.connect(url, autocommit=True) as connection:
        for part in (*fill, "ANALYZE"):
            connection.execute(part.encode())
        found = connection.execute(f"EXPLAIN {asked(name, text)}".encode()).fetchall()
    return "\n".join(row[0] for row in found)


async def test_whether_a_fork_stands_on_a_run_is_looked_up(explain: Explain) -> None:
    plan = explain("run_delete")
    assert "run_by_parent" in plan
    assert not any(words in plan for words in ("SCAN", "Seq Scan"))


async def test_the_relatives_of_a_run_are_looked_up(explain: Explain) -> None:
    plan = explain("run_relatives")
    for index in ("run_by_parent", "run_by_manager"):
        assert index in plan
    assert not any(words in plan for words in ("SCAN run", "Seq Scan"))


async def test_runs_that_may_need_others_are_found_without_reading_all_runs(explain: Explain) -> None:
    plan = explain("run_attached")
    assert "run_by_parent" in plan
    assert "run_by_status" in plan
    assert not any(words in plan for words in ("SCAN run", "Seq Scan"))


async def test_reasons_are_counted_without_reading_runs_that_have_none(explain: Explain) -> None:
    plan = explain("measure_reasons")
    assert "run_by_reason" in plan
    assert "run_by_status" not in plan


async def test_content_in_use_is_found_without_reading_events_that_name_none(explain: Explain) -> None:
    plan = explain("blob_unused")
    assert plan.count("event_with_content") >= 2
    assert not any(words in plan for words in ("SCAN event\n", "Seq Scan on event"))


async def test_the_effects_of_a_run_are_found_by_the_range_of_their_keys(explain: Explain) -> None:
    plan = explain("effect_delete")
    assert "SCAN effect" not in plan
    assert "key" in plan
