"""One bad run never keeps a worker, or a person who looks, from the others."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import apsw
import pytest

from onward.clock import SystemClock, SystemDice, SystemIds
from onward.engine.control.requests import StartRequest
from onward.engine.engine import Engine
from onward.engine.stop import StopSwitch
from onward.errors import HistoryCorrupt
from onward.model.run import RunStatus
from onward.store.port.runs import RunQuery
from onward.store.sqlite.adapter import SqliteStore
from tests.conformance.drafts import fork, held, stepped
from tests.conformance.handlers import Scripted
from tests.world import line


def engine_on(store: SqliteStore) -> Engine:
    handlers = {"codergen": Scripted()}
    return Engine(store, clock=SystemClock(), ids=SystemIds(), dice=SystemDice(), handlers=handlers)


def damage(path: Path, statement: str, trigger: str = "event_is_immutable") -> None:
    """As a flipped bit would: past every rule of the schema."""
    db = apsw.Connection(str(path))
    db.execute("PRAGMA ignore_check_constraints = ON")
    db.execute(f"DROP TRIGGER {trigger}")
    db.execute(statement)
    db.close()


async def taken_by(engine: Engine) -> str | None:
    """The run that a worker takes now, and lets go again."""
    taken = await engine.take(StopSwitch())
    if taken is None:
        return None
    folded, drive = taken
    await drive
    return folded.run.id


async def test_a_worker_passes_over_a_due_run_whose_row_is_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "onward.db"
    engine = engine_on(SqliteStore(str(path)))
    pipeline = engine.sources.prepare(line("a"), "<test>")
    for run_id in ("bad", "good"):
        await engine.submit(pipeline, StartRequest(run_id=run_id))
    damage(path, "UPDATE run SET status = 'quiet' WHERE id = 'bad'")
    with caplog.at_level(logging.ERROR, "onward"):
        assert await taken_by(engine) == "good"
        assert await taken_by(engine) is None
    assert caplog.text.count("run bad is skipped") == 1, "whoever looks after the worker is told, once"
    await engine.close()


async def test_a_worker_passes_over_a_run_whose_row_does_not_say_what_it_needs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As rows that an older version left when a run was moved: the queue is filtered by them."""
    path = tmp_path / "onward.db"
    engine = engine_on(SqliteStore(str(path)))
    await engine.submit(engine.sources.prepare(line("a"), "<test>"), StartRequest(run_id="good"))
    elsewhere = Engine(
        SqliteStore(str(path)),
        clock=SystemClock(),
        ids=SystemIds(),
        dice=SystemDice(),
        handlers={"other": Scripted()},
    )
    pipeline = elsewhere.sources.prepare(line("a", a="type=other"), "<test>")
    await elsewhere.submit(pipeline, StartRequest(run_id="stale", priority=1))
    await elsewhere.close()
    damage(path, "UPDATE run SET needs = 'codergen' WHERE id = 'stale'")
    with caplog.at_level(logging.ERROR, "onward"):
        async with asyncio.timeout(20):
            assert await taken_by(engine) == "good"
            assert await taken_by(engine) is None
    assert "run stale is skipped" in caplog.text
    assert "`onward verify stale`" in caplog.text
    await engine.close()


async def test_a_run_that_cannot_be_driven_is_tried_once_and_its_log_does_not_grow(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "onward.db"
    store = SqliteStore(str(path))
    engine = engine_on(store)
    start = StartRequest(run_id="bad", on_owner_loss="requeue")
    await engine.submit(engine.sources.prepare(line("a"), "<test>"), start)
    db = apsw.Connection(str(path))
    db.execute("DELETE FROM blob")  # the pipeline's source among them
    db.close()
    with caplog.at_level(logging.ERROR, "onward"), pytest.raises(HistoryCorrupt, match="source"):
        await taken_by(engine)
    assert caplog.text.count("run bad is skipped") == 1
    await engine.sweep()  # gives back what this process does not drive
    (given_back,) = await store.runs.find("bad")
    assert (given_back.row.status, given_back.row.owner) == (RunStatus.QUEUED, None)
    assert await taken_by(engine) is None
    (later,) = await store.runs.find("bad")
    assert later.row.head == given_back.row.head
    await engine.close()


async def test_a_worker_passes_over_a_fork_whose_parents_log_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "onward.db"
    store = SqliteStore(str(path))
    engine = engine_on(store)
    parent = await stepped(store, await held(store, "parent"))
    write, _ = fork(parent, "bad")
    await store.log.create(write, "made")
    await engine.submit(engine.sources.prepare(line("a"), "<test>"), StartRequest(run_id="good"))
    damage(path, "UPDATE event SET body = CAST(x'ff00' AS TEXT) WHERE run_id = 'parent' AND seq = 2")
    assert await taken_by(engine) == "good"
    await engine.close()


async def test_a_damaged_row_hides_no_other_run_from_lists_and_sweeps(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "onward.db"
    store = SqliteStore(str(path))
    for run_id in ("bad", "good"):
        await held(store, run_id)
    damage(path, "UPDATE run SET status = 'quiet' WHERE id = 'bad'")
    with caplog.at_level(logging.ERROR, "onward"):
        assert [listed.row.id for listed in await store.runs.list(RunQuery())] == ["good"]
        assert [listed.row.id for listed in await store.runs.held()] == ["good"]
        assert await store.runs.count() == {RunStatus.RUNNING: 1}
    assert "the row of run 'bad' is damaged" in caplog.text
    await store.close()


async def test_a_run_that_cannot_be_recovered_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "onward.db"
    dead = SqliteStore(str(path))
    await held(dead, "bad")
    await dead.close()
    damage(path, "DELETE FROM event WHERE run_id = 'bad' AND seq = 2", trigger="event_is_kept")
    engine = engine_on(SqliteStore(str(path)))
    with caplog.at_level(logging.ERROR, "onward"):
        for _ in range(3):
            swept = await engine.sweep()
            assert [run_id for run_id, _ in swept.broken] == ["bad"]
    assert caplog.text.count("run bad could not be recovered") == 1
    await engine.close()
