"""The schema: the same whichever way a database came to it, and itself a guard against nonsense."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from onward.errors import LimitReached
from onward.model.call import Usage
from onward.model.events import RunInterrupted
from onward.model.limits import AMOUNT_MAX, CHAT_TOKENS, NO_AMOUNTS, Amounts
from onward.operations.here.verify import verify_run
from onward.store.port.leases import Lease
from onward.store.port.limits import UsageKind
from onward.store.port.messages import MessageQuery
from onward.store.port.runs import RunQuery
from onward.store.port.store import Store
from onward.store.queries import load_migrations, load_queries
from onward.testing.postgres import PostgresServer
from onward.wiring import open_store
from tests.conformance.drafts import Draft, created, fork, held, log_of, requested, stepped
from tests.conformance.limits import DAY, ONE, beginning, begun, ended, figures, used, working
from tests.conformance.messages import answered, appended, speaking

REFUSED = (apsw.ConstraintError, psycopg.IntegrityError, psycopg.errors.RaiseException)
SCHEMA_SQLITE = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"
SCHEMA_POSTGRES = """
SELECT 'column', table_name, column_name, data_type || is_nullable || coalesce(collation_name, '')
FROM information_schema.columns
WHERE table_schema = 'public'
UNION ALL
SELECT 'index', tablename, indexname, indexdef
FROM pg_indexes
WHERE schemaname = 'public'
UNION ALL
SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid)
FROM pg_constraint
WHERE connamespace = 'public'::regnamespace
UNION ALL
SELECT 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(oid)
FROM pg_trigger
WHERE NOT tgisinternal
UNION ALL
SELECT 'domain', '', typname, pg_get_constraintdef(pg_constraint.oid)
FROM pg_constraint
JOIN pg_type ON pg_type.oid = contypid
UNION ALL
SELECT 'function', '', proname, prosrc
FROM pg_proc
WHERE pronamespace = 'public'::regnamespace
ORDER BY 1, 2, 3
"""

# What 023 and 022 did, undone.
WITHOUT_SERVER = """
ALTER TABLE run DROP COLUMN tokens;
ALTER TABLE run DROP COLUMN cost_micro;
ALTER TABLE run DROP COLUMN ticks;
DROP INDEX run_by_change;
ALTER TABLE run DROP COLUMN changed;
DROP TABLE principal;
DROP TABLE audit;
DELETE FROM migration WHERE number >= 22;
"""
# What 015, 014, 013, 012, 011, 010, 009, 008 and 007 did, undone.
WITHOUT_QUERIES = """
DROP TABLE pipeline_version;
DROP TABLE pipeline;
DROP TABLE intake;
DROP INDEX run_by_chat;
ALTER TABLE run DROP COLUMN chat;
ALTER TABLE run DROP COLUMN is_dismissed;
DROP TABLE scope;
DROP TABLE reservation;
DROP TABLE usage;
DROP TABLE chunk;
DROP TABLE message;
DROP TABLE chat;
DROP TABLE worker;
DROP TABLE outbox;
DROP TABLE subscriber;
DROP INDEX run_tagged;
ALTER TABLE run DROP COLUMN tags;
DROP TABLE gate;
DROP TABLE backfill;
DROP INDEX run_by_manager;
DROP INDEX run_by_pipeline;
DROP INDEX run_by_status_and_pipeline;
DROP INDEX run_by_reason;
CREATE INDEX run_by_reason ON run (status, reason, recoverable) WHERE reason <> '';
ALTER TABLE run DROP COLUMN doubtful;
ALTER TABLE run DROP COLUMN managed_by;
ALTER TABLE run DROP COLUMN managed_step;
ALTER TABLE run DROP COLUMN restart_of;
ALTER TABLE run DROP COLUMN restarted_as;
DELETE FROM migration WHERE number >= 8;
"""
WITHOUT_DUE = f"""
{WITHOUT_QUERIES}
DROP TABLE stuck;
DROP INDEX run_due;
ALTER TABLE run DROP COLUMN due_at_us;
CREATE INDEX run_due ON run (wake_at_us);
DELETE FROM migration WHERE number >= 7
"""


def without_domains() -> str:
    """What 016 and 019 did in PostgreSQL, undone, so that it can be done again.

    A CHECK of any kind has the name of the one that was dropped.
    """
    scripts = {name: script for _, name, script in load_migrations("onward.store.postgres")}
    made, undone = re.findall(r"^CREATE DOMAIN (\w+)", scripts["domains"], re.MULTILINE), ""
    for table, changes in re.findall(r"^ALTER TABLE (\w+)([^;]+);", scripts["domains"], re.MULTILINE):
        for check in re.findall(r"DROP CONSTRAINT (\w+)", changes):
            undone += f"ALTER TABLE {table} ADD CONSTRAINT {check} CHECK (true);"
        for column, domain in re.findall(r"ALTER COLUMN (\w+) TYPE (\w+)", changes):
            undone += f"ALTER TABLE {table} ALTER COLUMN {column} TYPE TEXT;" if domain in made else ""
    return f"{undone} DROP DOMAIN {', '.join(made)}; DROP FUNCTION onward_refuse;"


class Database:
    """A database that is spoken to in plain SQL, behind every store's back."""

    def __init__(self, db: str) -> None:
        self.db = db
        self.is_postgres = db.startswith("postgres")
        self.package = "onward.store.postgres" if self.is_postgres else "onward.store.sqlite"

    def run(self, statements: str) -> Sequence[tuple[Any, ...]]:
        if self.is_postgres:
            with psycopg.connect(self.db) as connection:
                cursor = connection.execute(statements.encode())
                return cursor.fetchall() if cursor.description else []
        db = apsw.Connection(self.db)
        try:
            db.execute("PRAGMA foreign_keys = ON")
            return db.execute(statements).fetchall()
        finally:
            db.close()

    def undo(self, statements: str) -> None:
        """Take a database back to an older schema: these statements undo what came before 016."""
        self.undo_server()
        self.run(f"{without_domains() if self.is_postgres else ''} {statements}")

    def undo_server(self) -> None:
        """Undo what 022 did."""
        self.run(WITHOUT_SERVER if self.is_postgres else f"{WITHOUT_SERVER} DROP TABLE change;")

    def schema(self) -> Sequence[tuple[Any, ...]]:
        return self.run(SCHEMA_POSTGRES if self.is_postgres else SCHEMA_SQLITE)

    def migrate_up_to(self, number: int) -> None:
        """Bring an empty database to an old schema, as an Onward of that time did."""
        self.run(load_queries(self.package)["migrations_table"])
        for step, name, script in load_migrations(self.package)[:number]:
            self.run(script)
            self.run(f"INSERT INTO migration (number, name, applied_at_us) VALUES ({step}, '{name}', 0)")


Make = Callable[[], Database]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest.fixture
def make(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes empty databases."""
    if kind == "sqlite":
        numbers = itertools.count()
        return lambda: Database(_touched(tmp_path / f"{next(numbers)}.db"))
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return lambda: Database(server.create_database())


def _touched(path: Path) -> str:
    path.touch(0o600)
    return str(path)


@pytest.fixture
def database(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """A database without runs."""
    if kind == "sqlite":
        return Database(_touched(tmp_path / "onward.db"))
    return Database(request.getfixturevalue("postgres_emptied_url"))


@pytest.fixture
async def store(database: Database) -> AsyncIterator[Store]:
    store = await open_store(database.db)
    yield store
    await store.close()


async def test_a_new_database_has_every_migration_once_and_opening_it_again_changes_nothing(
    make: Make,
) -> None:
    database = make()
    migrations = [(number, name) for number, name, _ in load_migrations(database.package)]
    schemas = []
    for _ in range(2):
        store = await open_store(database.db)
        await created(store)
        await store.close()
        assert database.run("SELECT number, name FROM migration ORDER BY number") == migrations
        schemas.append(database.schema())
    assert schemas[0] == schemas[1]


async def test_every_older_schema_comes_to_the_same_as_a_new_one(make: Make) -> None:
    new = make()
    await (await open_store(new.db)).close()
    for number in range(len(load_migrations(new.package)) + 1):
        old = make()
        old.migrate_up_to(number)
        store = await open_store(old.db)
        await stepped(store, await held(store))
        await store.close()
        assert old.schema() == new.schema()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET body = '{}'",
        "UPDATE event SET token = token + 1 WHERE seq = 2",
        "DELETE FROM event",
        "DELETE FROM event WHERE seq = 4",
    ],
)
async def test_no_statement_changes_or_deletes_an_event(
    database: Database, store: Store, statement: str
) -> None:
    run = await stepped(store, await held(store))
    before = await log_of(store, run.id)
    with pytest.raises(REFUSED, match="events are never"):
        database.run(statement)
    assert await log_of(store, run.id) == before


async def test_events_go_with_their_run(database: Database, store: Store) -> None:
    run, kept = await held(store), await held(store)
    database.run(f"DELETE FROM run WHERE id = '{run.id}'")
    database.run(f"DELETE FROM event WHERE run_id = '{run.id}'")
    assert await log_of(store, run.id) == []
    await stepped(store, kept)


@pytest.mark.parametrize(
    "change",
    [
        "status = 'sleeping'",
        "status = 'queued'",
        "owner = NULL",
        "token = -1",
        "head = 0",
        "hash = substr(hash, 2)",
        "recoverable = 2",
        "steps_finished = -1",
        "on_owner_loss = 'forget'",
        "parent = id",
        "parent_seq = 1",
        "parent = 'nowhere', parent_seq = 1, parent_hash = hash",
        "id = NULL",
        "id = 'taken'",
        "exclusive_key = 'chat-1'",
    ],
)
async def test_the_schema_itself_refuses_what_cannot_be(
    database: Database, store: Store, change: str
) -> None:
    await held(store, "taken", exclusive_key="chat-1")
    run = await held(store, "run")
    with pytest.raises(REFUSED):
        database.run(f"UPDATE run SET {change} WHERE id = 'run'")
    await stepped(store, run)


async def test_a_database_that_gets_its_identity_notes_how_old_its_runs_are(tmp_path: Path) -> None:
    """Directories of younger runs name it; a new database has no older ones."""
    paths = [str(tmp_path / name) for name in ("old.db", "new.db")]
    first = [await open_store(path) for path in paths]
    assert len({store.identity.name for store in first}) == 2
    assert {store.identity.unmarked_until_us for store in first} == {0}
    run = await created(first[0])
    for store in first:
        await store.close()
    Database(paths[0]).undo(f"DROP TABLE identity; {WITHOUT_DUE}; DELETE FROM migration WHERE number >= 6")
    again = await open_store(paths[0])
    assert again.identity.name != first[0].identity.name
    assert again.identity.unmarked_until_us == (await again.runs.find(run.id))[0].row.created_at_us
    await again.close()


WITHOUT_CHATS = """
DROP TABLE intake;
DROP INDEX run_by_chat;
ALTER TABLE run DROP COLUMN chat;
ALTER TABLE run DROP COLUMN is_dismissed;
ALTER TABLE chat DROP COLUMN turn;
ALTER TABLE message DROP COLUMN changed_at_us;
DELETE FROM scope;
DELETE FROM migration WHERE number >= 15;
"""


async def test_a_run_from_before_chats_had_rows_is_found_by_its_chat_and_its_messages_have_their_times(
    make: Make,
) -> None:
    """S0-18: also a fork of it, and a fork of that."""
    database = make()
    store = await open_store(database.db)
    talking = await speaking(store, chat="talk")
    spoken = await appended(store, talking, answered())
    run = await created(store, chat='it\'s \\ "odd" ü')
    parent = run
    for name in ("child", "other"):
        write, parent = fork(parent, name)
        await store.log.create(write, name)
    await created(store, "alone")
    before = await store.messages.list(MessageQuery(chat="talk"))
    await store.close()
    database.undo(WITHOUT_CHATS)
    again = await open_store(database.db)
    try:
        chats = {one.row.id: one.row.chat for one in await again.runs.list(RunQuery())}
        odd = 'it\'s \\ "odd" ü'
        assert chats == {spoken.id: None, run.id: odd, "child": odd, "other": odd, "alone": None}
        (message,) = await again.messages.list(MessageQuery(chat="talk"))
        assert message == before[0]
        assert message.changed_at_us == message.ended_at_us
        (limit,) = await again.limits.read(["chat/talk"])
        assert limit.limit.tokens == CHAT_TOKENS
    finally:
        await again.close()


ABSURD = 2**63 - 1
SPOILED = f"""
UPDATE reservation SET charged_tokens = {ABSURD}, charged_cost_micro = {ABSURD} WHERE call = 'm2';
UPDATE scope SET spent_tokens = {ABSURD}, spent_cost_micro = {ABSURD} WHERE id <> kind AND id <> 'run/b';
UPDATE usage SET input = {ABSURD}, tokens = {ABSURD}, cost_micro = {ABSURD} WHERE run_id = 'a';
"""


async def spoiled(store: Store, database: Database) -> Draft:
    """A run of which one call reported what no model can have, as 0.1.0 stored it, beside another run."""
    second = await begun(store, await working(store, "b"), DAY, "run/b")
    await ended(store, second, usage=used(60), cost_micro=6)
    run = await begun(store, await working(store, "a"), DAY, "run/a")
    run = await ended(store, run, usage=used(40), cost_micro=4)
    run = await begun(store, run, DAY, "run/a", call="m2")
    run = await ended(store, run, "m2", usage=Usage(input=ABSURD), cost_micro=ABSURD)
    run = await begun(store, run, DAY, "run/a", call="m3")
    database.run(SPOILED)
    return run


@pytest.mark.parametrize("is_gone", [False, True])
async def test_sums_that_no_calls_can_have_are_repaired_when_a_database_is_opened(
    make: Make, is_gone: bool
) -> None:
    """Also if the run that reported them is gone: then its own spending is not known any more."""
    database = make()
    store = await open_store(database.db)
    await spoiled(store, database)
    await store.close()
    database.undo_server()
    database.run("DELETE FROM migration WHERE number >= 20")
    if is_gone:
        database.run("DELETE FROM run WHERE id = 'a'")
    again = await open_store(database.db)
    try:
        kept = Amounts(60, 6, 3) if is_gone else Amounts(200, 1_010, 3)
        assert (await figures(again, DAY))[0] == kept
        assert (await figures(again, "run/b"))[0] == Amounts(60, 6, 1)
        (day,) = await again.limits.usage(UsageKind.DAY, limit=10)
        assert (day.tokens, day.cost_micro) == kept[:2]
        if not is_gone:
            assert (await figures(again, "run/a")) == (Amounts(140, 1_004, 2), ONE)
            (problem,) = (await verify_run(again, "a")).problems
            assert "call m2 (try 1) of step start#1 reports 9,223,372,036,854,775,807 tokens" in problem
    finally:
        await again.close()


async def test_sums_that_an_older_process_spoils_meanwhile_are_in_nobodys_way(
    database: Database, store: Store
) -> None:
    """A process of the version before may still write to the same database."""
    run = await spoiled(store, database)
    said = " ".join((await verify_run(store, "a")).problems)
    assert f"{DAY} has 9,223,372,036,854,775,807 tokens spent, which is impossible" in said
    run = await ended(store, run, "m3", usage=used(40), cost_micro=4)
    run = await begun(store, run, DAY, "run/a", call="m4")
    await store.limits.change(DAY, {"tokens": 100, "cost": 100})
    write, _ = beginning(await working(store, "c"), DAY)
    with pytest.raises(LimitReached):
        await store.log.append(write, Lease("c", store.leases.owner, 1))
    await store.limits.change(DAY, {"tokens": None, "cost": None})
    for name in ("d", "e"):
        more = await begun(store, await working(store, name), DAY)
        await ended(store, more, usage=used(40), cost_micro=4)
    run = await requested(store, run, RunInterrupted(reason="crash"))
    spent, reserved = await figures(store, DAY)
    assert AMOUNT_MAX <= spent.tokens < 2 * AMOUNT_MAX
    assert reserved == NO_AMOUNTS
    (day,) = await store.limits.usage(UsageKind.DAY, limit=10)
    assert (day.tokens, day.cost_micro) == (AMOUNT_MAX, AMOUNT_MAX)
