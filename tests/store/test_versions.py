"""Two versions at one database: the newer one migrates when it may, and the older one is told to stop.

A test has no older program, so it changes what the database says of its own schema instead.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from onward.engine.control.requests import StartRequest
from onward.engine.stop import StopSwitch
from onward.errors import SchemaInUse, SchemaTooNew
from onward.model.events import RunClaimed
from onward.model.run import FOLD_VERSION, RunStatus
from onward.store.port.log import Held, Loaded, TakeFilter, Write
from onward.store.port.store import Store
from onward.store.queries import load_migrations
from onward.wiring import open_store
from onward.worker import Worker
from tests.cli.shell import Shell
from tests.conformance.drafts import held, queued, stepped
from tests.store.test_migrations import WITHOUT_DUE, WITHOUT_QUERIES, Database, without_domains
from tests.store.test_one_trip import BLOCKED, waits_for_a_lock
from tests.test_pause import pressing_ctrl_c
from tests.world import World, line

FROM_THE_FUTURE = "INSERT INTO migration (number, name, applied_at_us) VALUES (999, 'from_the_future', 0)"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "sqlite":
        (tmp_path / "onward.db").touch(0o600)
        return Database(str(tmp_path / "onward.db"))
    return Database(request.getfixturevalue("postgres_url"))


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    world = World(lambda: open_store(database.db), "versions")
    yield world
    await world.close()


async def newest(store: Store) -> str:
    (says,) = [text for subject, _, text in await store.check() if subject == "schema"]
    return says


@pytest.mark.parametrize(("schema", "undone"), [(6, WITHOUT_DUE), (7, WITHOUT_QUERIES)])
async def test_a_migration_is_refused_while_a_process_of_the_older_version_holds_a_run(
    database: Database, schema: int, undone: str
) -> None:
    older = await open_store(database.db)
    await held(older, "run")
    database.undo(undone)
    before = database.schema()
    with pytest.raises(SchemaInUse) as refused:
        await open_store(database.db)
    number = load_migrations(database.package)[-1][0]
    said = str(refused.value)
    assert said.startswith(f"the database has schema {schema} and this Onward needs {number}, but process ")
    assert said.endswith(
        "which is an older version, holds runs in it; stop that process first, then try again."
    )
    assert database.schema() == before
    await older.close()
    newer = await open_store(database.db)
    assert await newest(newer) == f"schema {number}"
    await newer.close()


async def test_a_migration_does_not_wait_for_a_process_that_holds_nothing(database: Database) -> None:
    older = await open_store(database.db)
    database.undo(WITHOUT_DUE)
    await (await open_store(database.db)).close()
    await older.close()


async def test_each_refusal_is_one_sentence_on_the_command_line(tmp_path: Path) -> None:
    shell = Shell(tmp_path, str(tmp_path / "onward.db"))
    store = await open_store(shell.db)
    await held(store, "run")
    for statements, says in ((WITHOUT_DUE, "stop that process first"), (FROM_THE_FUTURE, "upgrade Onward")):
        Database(shell.db).run(statements)
        done = await asyncio.to_thread(shell.inside, "status")
        assert done.code == 1
        assert says in done.err
        assert len(done.err.splitlines()) == 1
    await store.close()


async def test_a_process_of_an_older_version_finishes_what_it_holds_and_takes_nothing_more(
    database: Database, world: World
) -> None:
    """It is told once and ends, so that whoever looks after it starts the newer version."""
    process = await world.process()
    run = await held(process.store.store, "mine")
    await process.engine.submit(process.pipeline(line("a")), StartRequest(run_id="next"))
    database.run(FROM_THE_FUTURE)
    await stepped(process.store.store, run)
    with pytest.raises(SchemaTooNew):
        await process.engine.take(StopSwitch())
    # The worker uses two connections at once: they are open before, so that none is cut off half-way.
    await asyncio.gather(process.load("next"), process.load("next"))
    told: list[str] = []
    with pytest.raises(SchemaTooNew):
        await Worker(process.engine, process.clock, StopSwitch(), say=told.append).run()
    assert told == []
    assert (await process.load("next")).run.status is RunStatus.QUEUED
    assert world.ledger.steps == []


async def test_a_process_of_an_older_version_is_told_so_when_its_queries_do_not_fit_any_more(
    database: Database,
) -> None:
    older = await open_store(database.db)
    await queued(older)
    database.run(f"{FROM_THE_FUTURE}; ALTER TABLE run RENAME COLUMN needs TO wants")
    with pytest.raises(SchemaTooNew):
        await older.log.take(TakeFilter(), fold_version=FOLD_VERSION, decide=lambda *_: None)
    await older.close()


@pytest.mark.postgres
async def test_a_claim_that_waits_for_a_migration_is_refused_afterwards(postgres_url: str) -> None:
    older = await open_store(postgres_url)
    await queued(older)
    async with await psycopg.AsyncConnection.connect(postgres_url) as migrating:
        await migrating.execute("LOCK TABLE run IN EXCLUSIVE MODE")
        await migrating.execute(FROM_THE_FUTURE.encode())
        taking = asyncio.ensure_future(
            older.log.take(TakeFilter(), fold_version=FOLD_VERSION, decide=lambda *_: None)
        )
        await waits_for_a_lock(postgres_url)
        await migrating.commit()
        with pytest.raises(SchemaTooNew):
            await taking
    await older.close()


@pytest.mark.postgres
async def test_a_migration_waits_for_a_claim_that_is_under_way_and_is_then_refused(postgres_url: str) -> None:
    """The claim has locked its run and asked for the schema; were it not waited for, both would be done."""
    older = await open_store(postgres_url)
    run = await queued(older)
    database = Database(postgres_url)
    database.run("DELETE FROM migration WHERE number >= 16")  # it writes the columns of today, which stay

    async def migrate() -> None:
        await (await open_store(postgres_url)).close()

    with ThreadPoolExecutor(1) as thread, psycopg.connect(postgres_url, autocommit=True) as witness:
        migrations: list[Future[None]] = []

        def claim(held: Held, loaded: Loaded) -> Write:
            migration = thread.submit(asyncio.run, migrate())
            while not migration.done() and witness.execute(BLOCKED).fetchone() == (0,):
                time.sleep(0.01)
            migrations.append(migration)
            return run.then(RunClaimed(token=run.run.token + 1, worker=held.asker))[0]

        assert await older.log.take(TakeFilter(), fold_version=FOLD_VERSION, decide=claim) is not None
        (migration,) = migrations
        with pytest.raises(SchemaInUse):
            await asyncio.wrap_future(migration)
    await older.close()
    database.undo_server()
    database.run(without_domains())
    await migrate()


@pytest.mark.parametrize("version", [FOLD_VERSION - 1, FOLD_VERSION + 1])
async def test_a_snapshot_of_another_version_is_left_aside_and_the_log_is_read_instead(
    database: Database, world: World, version: int
) -> None:
    """Whichever of two processes wrote it: each folds the log by its own rules, and comes to the same run."""
    stop = StopSwitch()
    process = await world.process({"b": [pressing_ctrl_c(stop)]})
    large = {f"key{number}": "x" * 3900 for number in range(14)}
    assert (await process.start(line("a", "b", "c"), inputs=large, stop=stop)).status is RunStatus.PAUSED
    before = (await process.load()).run
    assert database.run("SELECT fold_version FROM snapshot") == [(FOLD_VERSION,)]
    database.run(f"UPDATE snapshot SET fold_version = {version}, body = hash")
    assert (await (await world.process()).load()).run == before
    assert await process.is_sound()
