"""Workers whose clocks differ: the database's clock says when a run is due, and no holder spins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from onward.engine.child import stands_idle
from onward.engine.control.requests import StartRequest
from onward.engine.stop import StopSwitch
from onward.model.result import Result
from onward.model.run import RunStatus
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.store import Store
from onward.store.postgres.adapter import PostgresStore
from onward.store.sqlite.adapter import SqliteStore
from onward.testing.clock import NOVEMBER_2023_US, ManualClock
from tests.world import Process, Script, World, line

HOUR_S = 3_600
RETRIED = line("a", a="max_retries=3, retry_policy=patient")
ASKED = """digraph asked {
  start [shape=Mdiamond]; exit [shape=Msquare]
  ask [shape=hexagon, timeout="600s", human.default_choice="exit"]
  start -> ask; ask -> exit [label="[Y] Yes"]
}"""


@pytest.fixture
async def skewed(
    store_kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[World, ManualClock]]:
    """A world, and the clock of its database."""
    clock = ManualClock(autojump=False)
    memory = MemoryDatabase(clock.now_us)

    async def connect() -> Store:
        if store_kind == "memory":
            return memory.connect()
        if store_kind == "sqlite":
            return SqliteStore(str(tmp_path / "onward.db"), now_us=clock.now_us)
        return await PostgresStore.open(request.getfixturevalue("postgres_emptied_url"), now_us=clock.now_us)

    world = World(connect, store_kind)
    yield world, clock
    await world.close()


async def worker_of(world: World, script: Script, *, skew_s: float) -> Process:
    """A process whose clock is so far from the database's, and jumps over short waits."""
    clock = ManualClock(NOVEMBER_2023_US + int(skew_s * 1_000_000))
    return await world.process(script, clock=clock)


async def work(process: Process) -> RunStatus | None:
    """Take the run that is due, if one is, and drive it until it stops."""
    taken = await process.engine.take(StopSwitch())
    return None if taken is None else (await taken[1]).run.status


@pytest.mark.parametrize("skew_s", [-HOUR_S, HOUR_S])
async def test_a_run_from_a_machine_with_another_clock_is_taken_at_once(
    skewed: tuple[World, ManualClock], skew_s: float
) -> None:
    """I13."""
    world, _ = skewed
    submitter = await worker_of(world, {}, skew_s=skew_s)
    process = await worker_of(world, {}, skew_s=0)
    await submitter.engine.submit(submitter.pipeline(line("a")), StartRequest(run_id="run"))
    assert await work(process) is RunStatus.COMPLETED
    assert await process.is_sound()
    run = (await process.load()).run
    assert run.ended_at_us is not None
    assert skew_s < 0 or run.ended_at_us >= run.created_at_us, "times in a log do not run backwards"


@pytest.mark.parametrize("skew_s", [-HOUR_S, HOUR_S])
async def test_a_retry_that_another_clock_set_is_made_once_its_time_has_come(
    skewed: tuple[World, ManualClock], skew_s: float
) -> None:
    """The next holder neither waits for an hour nor claims the run again and again to find nothing to do.

    I13.
    """
    world, database = skewed
    first = await worker_of(world, {"a": [Result.retry("busy")] * 3}, skew_s=0)
    second = await worker_of(world, {}, skew_s=skew_s)
    await first.engine.submit(first.pipeline(RETRIED), StartRequest(run_id="run"))
    while len(world.ledger.attempts("a")) < 3:  # the third wait is at least nine seconds: it is handed back
        await work(first)
        database.advance(30 if len(world.ledger.attempts("a")) < 3 else 0)
    before = await first.kinds()
    assert await work(second) is None, "its time has not come"
    database.advance(30)
    assert await work(second) is RunStatus.COMPLETED
    assert world.ledger.attempts("a") == [1, 2, 3, 4]
    assert (await first.kinds()).count("RunClaimed") == before.count("RunClaimed") + 1
    assert await first.is_sound()


@pytest.mark.parametrize("skew_s", [-HOUR_S, HOUR_S])
async def test_a_manager_with_another_clock_drives_its_child_once_the_childs_time_has_come(
    skewed: tuple[World, ManualClock], skew_s: float
) -> None:
    world, database = skewed
    first = await worker_of(world, {"a": [Result.retry("busy")] * 3}, skew_s=0)
    manager = await worker_of(world, {}, skew_s=skew_s)
    await first.engine.submit(first.pipeline(RETRIED), StartRequest(run_id="run"))
    while len(world.ledger.attempts("a")) < 3:
        await work(first)
        database.advance(30 if len(world.ledger.attempts("a")) < 3 else 0)
    assert not stands_idle(await manager.load(), is_at_work=False)
    database.advance(30)
    assert stands_idle(await manager.load(), is_at_work=False)


@pytest.mark.parametrize("skew_s", [-HOUR_S, HOUR_S])
async def test_a_deadline_that_another_clock_set_is_applied_once_it_has_come(
    skewed: tuple[World, ManualClock], skew_s: float
) -> None:
    """I13."""
    world, database = skewed
    first = await worker_of(world, {}, skew_s=0)
    second = await worker_of(world, {}, skew_s=skew_s)
    await first.engine.submit(first.pipeline(ASKED), StartRequest(run_id="run"))
    assert await work(first) is RunStatus.WAITING
    assert await work(second) is None, "its time has not come"
    database.advance(601)
    assert await work(second) is RunStatus.COMPLETED
    assert await second.is_sound()
