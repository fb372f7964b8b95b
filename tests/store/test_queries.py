"""The queries of both databases: one name, one meaning, the same columns of the same tables."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest
from apsw.ext import query_info

from onward.store.postgres.calls import CONTENT_MISSING, NOT_PLAIN, SUBSCRIBED
from onward.store.queries import load_migrations, load_queries
from onward.store.sqlite.statements import QUERIES, compact
from onward.wiring import open_store

PACKAGES = ("onward.store.sqlite", "onward.store.postgres")
TABLE = re.compile(r"^CREATE TABLE (\w+) \((.*?)^\)", re.MULTILINE | re.DOTALL)
COLUMN = re.compile(r"^    ([a-z_]+) \w", re.MULTILINE)


def columns(package: str) -> dict[str, list[str]]:
    """The tables that a package's migrations make, with their columns in order."""
    scripts = "\n".join(script for _, _, script in load_migrations(package))
    return {name: COLUMN.findall(body) for name, body in TABLE.findall(scripts)}


def test_both_databases_have_the_same_queries_in_the_same_order() -> None:
    sqlite, postgres = (list(load_queries(package)) for package in PACKAGES)
    for name in ("run_insert_alone", "run_advance_alone", "run_update_alone"):
        postgres.remove(name)  # in SQLite a group is as many statements as it has members
    for name in ("run_inserted", "run_change", "run_lock", "run_written"):
        postgres.remove(name)  # what these and those for a group have in common
    postgres.remove("scope_lock")  # which the whole file is
    for name in ("run_reserve_alone", "run_settle_alone", "event_tail"):
        postgres.remove(name)  # in SQLite a statement is no trip
    for name in ("run_moved", "event_of_moved", "run_there", "reserved", "all_charged", "settled"):
        postgres.remove(name)  # what these have in common, and others
    for name in ("reservation_begin", "reservation_end"):
        sqlite.remove(name)  # parts of these in a server
    for name in ("scope_unreserve", "scope_unsettle", "reservation_reopen"):
        sqlite.remove(name)  # a server judges a call in all scopes with one statement
    for name in ("chat_lock", "chat_moved", "message_look", "chat_receive"):
        postgres.remove(name)  # in SQLite the whole database is locked
    sqlite.remove("chat_turn")  # a part of intake_begin in a server
    postgres.remove("due_notify")  # a file tells no process
    postgres.remove("control_notify")
    sqlite.remove("run_newest_due")  # so a process looks for itself
    sqlite.remove("change_next")  # a server numbers its transactions
    sqlite.remove("owner_named")  # a server's processes leave no files
    assert sqlite == postgres


def test_both_databases_have_the_same_migrations() -> None:
    sqlite, postgres = ([step[:2] for step in load_migrations(package)] for package in PACKAGES)
    assert sqlite == postgres
    assert [number for number, _ in sqlite] == list(range(1, len(sqlite) + 1))


def test_both_databases_have_the_same_tables_with_the_same_columns() -> None:
    sqlite, postgres = (columns(package) for package in PACKAGES)
    postgres["message"].append(
        "changed_at_us"
    )  # SQLite cannot change a CHECK, so it has made the table again
    del sqlite["change"]  # a server numbers its transactions
    assert sqlite == postgres
    assert {"run", "event", "append", "snapshot", "blob"} <= sqlite.keys()


@pytest.mark.parametrize("package", PACKAGES)
def test_no_query_is_empty_or_ends_with_a_semicolon(package: str) -> None:
    for name, query in load_queries(package).items():
        assert query, name
        assert not query.endswith(";"), name


def test_statements_refuse_with_the_codes_that_are_looked_for() -> None:
    """A mathematical error would tell nobody what happened, and could come from a mistake."""
    text = "\n".join(load_queries("onward.store.postgres").values())
    assert {*re.findall(r"onward_refuse\('(\w+)'", text)} == {NOT_PLAIN, CONTENT_MISSING, SUBSCRIBED}
    assert not re.search(r"\b(sqrt|ln)\(|1 /", text)


async def test_a_compact_query_is_the_same_program(tmp_path: Path) -> None:
    """Its parameters are those of the query, in their order; SQLite shows what it makes of both."""
    path = str(tmp_path / "onward.db")
    await (await open_store(path)).close()
    db = apsw.Connection(path)
    for name, query in QUERIES.items():
        if "{what}" not in query:
            assert program(db, compact(query)) == program(db, query), name
            assert len(compact(query)) <= len(query)
    assert program(db, QUERIES["run_update"]) != program(
        db, QUERIES["run_update"].replace(":head,", ":hash,")
    )
    db.close()


def program(db: apsw.Connection, query: str) -> list[tuple[object, ...]]:
    """What SQLite executes, without the names of parameters."""
    steps = query_info(db, query, explain=True).explain
    assert steps
    return [
        (step.opcode, step.p1, step.p2, step.p3, None if step.opcode == "Variable" else step.p4, step.p5)
        for step in steps
    ]
