"""The columns of a run: declared by `RunRow`, and in both databases what they are declared as."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import apsw
import psycopg
import pytest

from onward.model.row import RunRow
from onward.store.postgres.calls import ARRAYS
from onward.store.postgres.statements import byteas, numbers, texts
from onward.store.queries import load_queries
from onward.store.rows import CHANGING_COLUMNS, ROW_FIELDS, RUN_COLUMNS
from onward.wiring import open_store
from tests.store.test_queries import PACKAGES

# Columns that only the stores use: hashes by which writes are checked, and times of the database's clock.
OF_STORES = {
    "hash": ("bytes", False),
    "parent_hash": ("bytes", True),
    "lease_until_us": ("number", True),
    "due_at_us": ("number", True),
    "changed": ("number", False),
}
KINDS = {
    "INTEGER": "number",
    "TEXT": "text",
    "BLOB": "bytes",
    "bigint": "number",
    "text": "text",
    "bytea": "bytes",
}
COLUMNS_POSTGRES = """
SELECT attname, coalesce(nullif(typbasetype, 0), atttypid)::regtype::text, NOT attnotnull
FROM pg_attribute
JOIN pg_type ON pg_type.oid = atttypid
WHERE attrelid = 'run'::regclass AND attnum > 0 AND NOT attisdropped
"""
INSERTED = re.compile(r"INSERT INTO run \(([^)]*)\)")
ASSIGNMENTS = re.compile(r"UPDATE run\s+SET (.*?)\n\s*(?:WHERE|FROM)\b", re.DOTALL)
ASSIGNED = re.compile(r"(?:^|,)\s*(\w+) = ")
WHOLE = ("run_get", "run_list", "run_search", "run_held")
WRITTEN = {
    "onward.store.sqlite": ("run_update",),
    "onward.store.postgres": ("run_update", "run_update_alone"),
}
STEPPED = {
    "onward.store.sqlite": ("run_advance",),
    "onward.store.postgres": ("run_advance", "run_advance_alone"),
}
MADE = {"onward.store.sqlite": ("run_insert",), "onward.store.postgres": ("run_insert", "run_insert_alone")}

Column = tuple[str, bool]
"""What a column holds, and whether it may be empty."""


def declared() -> Mapping[str, Column]:
    return {
        column.name: ("number" if column.is_number else "text", column.is_optional) for column in RUN_COLUMNS
    }


def assigned(query: str) -> list[str]:
    """The columns of a run that a query changes."""
    return [name for part in ASSIGNMENTS.findall(query) for name in ASSIGNED.findall(part)]


def check(found: Mapping[str, Column], where: str) -> None:
    wanted = {**declared(), **OF_STORES}
    assert not wanted.keys() - found.keys(), f"{where} lacks columns that RunRow declares: write a migration"
    assert not found.keys() - wanted.keys(), f"{where} has columns that RunRow does not declare"
    assert found == wanted, where


async def test_the_table_of_sqlite_has_the_declared_columns(tmp_path: Path) -> None:
    path = str(tmp_path / "onward.db")
    await (await open_store(path)).close()
    db = apsw.Connection(path)
    table = db.execute("SELECT name, type, \"notnull\" = 0 FROM pragma_table_info('run')").fetchall()
    db.close()
    check(
        {str(name): (KINDS[str(kind)], bool(is_optional)) for name, kind, is_optional in table},
        "run in SQLite",
    )


@pytest.mark.postgres
async def test_the_table_of_postgres_has_the_declared_columns(postgres_ready_url: str) -> None:
    with psycopg.connect(postgres_ready_url) as connection:
        table = connection.execute(COLUMNS_POSTGRES.encode()).fetchall()
    check({name: (KINDS[kind], is_optional) for name, kind, is_optional in table}, "run in PostgreSQL")


@pytest.mark.parametrize("package", PACKAGES)
def test_the_queries_of_a_run_have_the_declared_columns_in_their_order(package: str) -> None:
    queries = load_queries(package)
    for name in WHOLE:
        assert f"SELECT {', '.join(ROW_FIELDS)}, hash," in queries[name], (
            f"{package}: {name} reads other columns"
        )
    for name in MADE[package]:
        (listed,) = INSERTED.findall(queries[name])
        assert listed.split(", ") == [*ROW_FIELDS, *OF_STORES], f"{package}: {name} writes other columns"
    for name in WRITTEN[package]:
        changed = [
            *(column.name for column in CHANGING_COLUMNS),
            "hash",
            "lease_until_us",
            "due_at_us",
            "changed",
        ]
        assert assigned(queries[name]) == changed, f"{package}: {name} changes other columns"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_step_in_passing_changes_the_same_columns_in_every_database(package: str) -> None:
    """They are fields of `Write`, too: nothing is written as often, so each is said by hand."""
    queries = load_queries(package)
    for name in STEPPED[package]:
        changed = ["head", "hash", "next_node", "doubtful", "steps_finished"]
        changed += ["tokens", "cost_micro", "ticks", "updated_at_us"]
        assert assigned(queries[name]) == changed, f"{package}: {name}"
        assert {column.name for column in CHANGING_COLUMNS} >= {*changed} - {"hash"}


@pytest.mark.parametrize("name", ["run_insert", "run_update"])
def test_arrays_have_the_types_that_the_statements_say(name: str) -> None:
    cast = re.compile(r":([a-z_]+)::(\w+)\[\]")
    packers = {"text": texts, "bigint": numbers, "bytea": byteas}
    for column, kind in cast.findall(load_queries("onward.store.postgres")[name]):
        if not column.startswith("event_"):
            assert ARRAYS.get(column, texts) is packers[kind], column


def test_a_column_is_fixed_only_if_it_says_so() -> None:
    fixed = {column.name for column in RUN_COLUMNS if column.is_fixed}
    assert {"id", "created_at_us", "parent", "chat"} <= fixed
    assert not fixed & {"status", "head", "owner", "needs", "pipeline_hash"}
    assert tuple(ROW_FIELDS) == RunRow.__struct_fields__
