"""Runs from before a migration: what only the fold of their logs knows is filled in when they are opened."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from onward.model.events import Managed, RunCancelled, RunCompleted, StepStarted
from onward.model.gate import GateOpened
from onward.model.run import RunStatus
from onward.operations.here.verify import verify_run
from onward.read.backfill import fill_in
from onward.store.port.log import Position
from onward.store.port.retention import Filling
from onward.store.port.runs import GateQuery, RunQuery
from onward.store.port.store import Store
from onward.wiring import open_store
from tests.conformance.drafts import Draft, created, fork, held, requested, step
from tests.store.test_migrations import WITHOUT_QUERIES, Database

pytestmark = pytest.mark.anyio
ASKS = GateOpened(gate="ask#1", node="ask", text="Go on?", choices=())


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    is_file = request.param == "sqlite"
    return Database(str(tmp_path / "onward.db") if is_file else request.getfixturevalue("postgres_url"))


async def doubtful(store: Store, run_id: str) -> Draft:
    """A run with an open question, and an open step that must not be repeated."""
    run = await held(store, run_id)
    begun, _ = step(run)
    assert isinstance(begun, StepStarted)
    write, after = run.then(ASKS, replace(begun, repeatable=False))
    await store.log.append(write, run.lease)
    return after


FINAL = (RunStatus.COMPLETED, RunStatus.CANCELLED)


async def test_a_migration_fills_in_questions_doubt_and_relatives(database: Database) -> None:
    store = await open_store(database.db)
    run = await doubtful(store, "run")
    over = await held(
        store, "over", context={"restart_of": "nothing", "nul": "\0"}, restart_of="run", restarts=1
    )
    write, _ = over.then(RunCompleted(restarted_as="next"))
    await store.log.append(write, over.lease)
    by = Managed(run="run", step='manage "it"#1')
    await requested(store, await created(store, "child", managed_by=by), RunCancelled(reason="user"))
    write, _ = fork(run, "fork")
    await store.log.create(write, "creation")
    names = ("run", "over", "child", "fork")
    before = {name: (await store.runs.find(name))[0].row for name in names}
    gates = await store.gates.open(GateQuery())
    await store.close()
    database.undo(WITHOUT_QUERIES)
    store = await open_store(database.db)
    after = {name: (await store.runs.find(name))[0].row for name in names}
    # A run that is over keeps its row as it is: its steps are counted, and not shown one by one.
    over_now = {name: replace(row, ticks="") if row.status in FINAL else row for name, row in before.items()}
    assert after == over_now
    assert before["run"].doubtful == "start#1"
    assert await store.gates.open(GateQuery()) == gates != []
    assert await store.backfill.missing() == []
    for name in names:
        assert (await verify_run(store, name)).problems == ()
    await store.close()


async def test_a_migration_takes_names_that_no_index_can_hold(database: Database) -> None:
    """Names had no limit once. A gate names every branch that it is in, and still has none."""
    noise = random.Random(1)
    long = "".join(chr(noise.randrange(256, 2_000)) for _ in range(10_000))
    store = await open_store(database.db)
    manager = Managed(run=long, step=f"{long}#1")
    await created(store, "old", pipeline=long, managed_by=manager, restart_of=long, restarts=1)
    asking = await held(store, "asking")
    write, _ = asking.then(replace(ASKS, gate=f"{long}/ask#1"))
    await store.log.append(write, asking.lease)
    await store.close()
    database.undo(WITHOUT_QUERIES)
    store = await open_store(database.db)
    assert [listed.row.id for listed in await store.runs.list(RunQuery(pipeline=long))] == ["old"]
    assert await store.runs.list(RunQuery(pipeline=long[:-1])) == []
    assert [listed.row.id for listed in await store.runs.relatives(long)] == ["old"]
    assert [row.gate for row in await store.gates.open(GateQuery())] == [f"{long}/ask#1"]
    for name in ("old", "asking"):
        assert (await verify_run(store, name)).problems == ()
    await store.close()


async def test_what_was_not_filled_in_is_when_the_database_is_next_opened(database: Database) -> None:
    store = await open_store(database.db)
    await doubtful(store, "run")
    database.run("DELETE FROM gate; UPDATE run SET doubtful = NULL; INSERT INTO backfill VALUES ('run')")
    assert len((await verify_run(store, "run")).problems) == 2
    await (await open_store(database.db)).close()
    assert (await verify_run(store, "run")).problems == ()
    await store.close()


@pytest.mark.parametrize(
    "change",
    ["UPDATE gate SET text = 'Stop?'", "UPDATE gate SET closed_at_us = 1", "DELETE FROM gate"],
)
async def test_verify_compares_the_rows_of_gates_with_the_log(database: Database, change: str) -> None:
    store = await open_store(database.db)
    await doubtful(store, "run")
    assert (await verify_run(store, "run")).problems == ()
    database.run(change)
    assert (await verify_run(store, "run")).problems == ("the row of gate ask#1 differs from the log",)
    await store.close()


async def test_nothing_is_filled_in_from_a_log_that_has_grown(database: Database) -> None:
    store = await open_store(database.db)
    run = await doubtful(store, "run")
    database.run("INSERT INTO backfill VALUES ('run')")
    older = Position(run.position.seq - 1, run.position.hash)
    assert not await store.backfill.fill(Filling("run", older, None, ()))
    assert await store.backfill.missing() == ["run"]
    assert (await store.runs.find("run"))[0].row.doubtful == "start#1"
    await store.close()


async def test_a_log_that_cannot_be_read_does_not_keep_the_others_from_being_filled_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database(str(tmp_path / "onward.db"))
    store = await open_store(database.db)
    for name in ("damaged", "run"):
        await doubtful(store, name)
        database.run(f"DELETE FROM gate; INSERT INTO backfill VALUES ('{name}')")
    database.run(
        "DROP TRIGGER event_is_immutable; UPDATE event SET body = '{' WHERE run_id = 'damaged' AND seq = 2"
    )
    await fill_in(store)
    assert await store.backfill.missing() == []
    assert [row.run_id for row in await store.gates.open(GateQuery())] == ["run"]
    assert "run damaged has no rows for its open questions" in caplog.text
    await store.close()
