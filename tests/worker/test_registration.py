"""Nothing waits in silence: whoever asks is told what no live worker can serve, and who the idle ones are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from onward.clock import SystemClock
from onward.engine.stop import StopSwitch
from onward.machine.plan.planner import DRAIN
from onward.model.run import RunStatus
from onward.operations.local.operations import LocalOperations
from onward.operations.requests import GetStats, ListRuns, ListWorkers, ShowRun, SubmitRun
from onward.store.port.leases import Workers
from onward.worker import Registration, Worker
from tests.conformance.faults import Around, FaultyStore
from tests.conformance.handlers import Doorway
from tests.worker.test_worker import at_work, real, submitted, worker
from tests.world import PATIENCE_S, Process, World, line, until

GREETING = line("a", a="type=greet")


@asynccontextmanager
async def working(process: Process, **how: Any) -> AsyncIterator[Worker]:
    """A worker that is at work inside, and has left afterwards."""
    stop = StopSwitch()
    hand = worker(process, stop, **how)
    task = asyncio.create_task(hand.run())
    try:
        await until_listed(process, lambda found: any(one["is_alive"] for one in found))
        yield hand
    finally:
        stop.request(DRAIN)
        await task


async def listed(process: Process) -> list[Any]:
    return list(await operations(process).lists.list_workers(ListWorkers()))


async def until_so(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the database is as wanted; a test that waits in vain fails instead of hanging."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not await condition():
        assert time.monotonic() < give_up_at, "waited in vain"
        await asyncio.sleep(0)


async def until_listed(process: Process, condition: Callable[[list[Any]], bool]) -> None:
    """Wait until the list of workers is as wanted."""

    async def is_so() -> bool:
        return condition(await listed(process))

    await until_so(is_so)


def operations(process: Process) -> LocalOperations:
    return LocalOperations(process.engine, SystemClock())


async def waiting(process: Process, run_id: str = "run") -> Any:
    """What the run waits for: the same in every reply."""
    ask = operations(process)
    shown = (await ask.look.show_run(ShowRun(run=run_id)))["waiting_for"]
    (row,) = (await ask.lists.list_runs(ListRuns(run=run_id)))["runs"]
    assert row["waiting_for"] == shown
    unserved = (await ask.lists.get_stats(GetStats()))["queue"]["unserved"]
    assert [{key: value for key, value in one.items() if key != "runs"} for one in unserved] == (
        [] if shown is None else [shown]
    )
    return shown


async def test_without_a_worker_a_submitted_run_is_said_to_wait_for_one(world: World) -> None:
    process = await real(world)
    made = await operations(process).start.submit_run(SubmitRun(source=line("a"), run_id="run"))
    says = "no worker is running; start one with `onward worker`"
    wanted = {"workers": 0, "handlers": [], "directory": None, "says": says}
    assert made["run"]["waiting_for"] == wanted
    assert await waiting(process) == wanted


async def test_an_idle_worker_is_listed_with_what_it_serves_until_it_has_left(world: World) -> None:
    process, looking = await real(world), await real(world)
    async with working(process, concurrency=3):
        (found,) = await listed(looking)
        assert (found["is_alive"], found["runs"], found["concurrency"]) == (True, [], 3)
        assert found["handlers"] == ["codergen", "tool", "work"]
        assert found["started_at"] is not None
        (counted,) = (await operations(looking).lists.get_stats(GetStats()))["workers"]
        assert (counted["worker"], counted["runs"]) == (found["worker"], 0)
    assert await listed(looking) == []


async def test_a_busy_worker_is_listed_once_with_its_runs(world: World) -> None:
    door = Doorway()
    process = await real(world, {"a": [door]})
    await submitted(process, line("a"), "run")
    async with working(process):
        await door.entered()
        (found,) = await listed(process)
        assert len(found["runs"]) == 1
        door.open()


async def test_a_run_that_a_live_worker_can_serve_waits_for_nothing(world: World) -> None:
    process = await real(world)
    door = Doorway()
    busy = await real(world, {"a": [door]})
    await submitted(process, line("a"), "first")
    async with working(busy, concurrency=1):
        await door.entered()
        made = await operations(process).start.submit_run(SubmitRun(source=line("a"), run_id="run"))
        assert made["run"]["waiting_for"] is None
        assert await waiting(process) is None
        door.open()


async def test_a_handler_that_no_live_worker_has_is_named_by_every_reply_and_once_by_the_worker(
    world: World,
) -> None:
    said: list[str] = []
    asking, plain = await real(world, handlers={"greet": Doorway()}), await real(world, handlers={})
    async with working(plain, warn=said.append):
        for name in ("run", "again"):
            await submitted(asking, GREETING, name)
        await until(lambda: bool(said))
        found = await waiting(asking)
        assert (found["workers"], found["handlers"], found["directory"]) == (1, ["greet"], None)
        await submitted(asking, GREETING, "third")
        await looks(plain)
    assert len(said) == 1
    assert said[0].endswith(
        "stays in the queue: no live worker has the handler 'greet': start one with --app"
    )


async def looks(process: Process, times: int = 5) -> None:
    """Wait until the worker has looked at the queue so many times more."""
    began = process.store.calls.count("log.take")
    await until(lambda: process.store.calls.count("log.take") >= began + times)


async def test_what_another_live_worker_serves_is_no_news_to_a_worker_without_the_handler(
    world: World,
) -> None:
    """A fleet with several kinds of workers is quiet."""
    said: list[str] = []
    door = Doorway()
    plain, able = await real(world, handlers={}), await real(world, {"a": [door]})
    await submitted(able, line("a"), "first")
    async with working(able, concurrency=1):
        await door.entered()
        await submitted(able, line("b"), "run")
        async with working(plain, warn=said.append):
            await looks(plain)
        door.open()
    assert said == []


async def test_a_directory_that_no_live_worker_has_is_named_until_it_is_there(
    world: World, tmp_path: Path
) -> None:
    said: list[str] = []
    process, place = await real(world), tmp_path / "work"
    async with working(process, warn=said.append):
        await submitted(process, line("a"), "run", workdir=str(place))
        await until_listed(process, lambda found: bool(found and found[0]["lacks"]))
        found = await waiting(process)
        assert (found["workers"], found["handlers"], found["directory"]) == (1, [], str(place))
        assert found["says"] == f"no live worker has the directory {place}"
        assert len(said) == 1
        await asyncio.to_thread(place.mkdir)
        await until_listed(process, lambda found: bool(found and not found[0]["lacks"]))

        async def has_ended() -> bool:
            return (await process.load("run")).run.status is RunStatus.COMPLETED

        await until_so(has_ended)
    assert len(said) == 1


async def test_a_worker_that_died_serves_nobody_and_goes_when_another_starts(world: World) -> None:
    dying, process = await real(world), await real(world, handlers={})
    stop = StopSwitch()
    task = asyncio.create_task(worker(dying, stop).run())
    await until_listed(process, lambda found: len(found) == 1)
    await dying.die()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await submitted(process, line("a"), "run")
    assert (await waiting(process))["workers"] == 0
    assert [one["is_alive"] for one in await listed(process)] in ([False], [])
    await at_work(process)
    assert await listed(process) == []


async def test_recover_removes_dead_workers(world: World) -> None:
    dying, process = await real(world), await real(world)
    await Registration(
        dying.store.workers, dying.engine.unserved, SystemClock(), concurrency=1, warn=lambda line: None
    ).keep()
    assert len(await listed(process)) == 1
    await dying.die()
    await process.engine.recover()
    assert await listed(process) == []


class Counting(Around[Workers]):
    """Counts how often something is asked about workers."""

    asked = 0

    async def register(self, offer: object) -> None:
        type(self).asked += 1
        await self.part.register(offer)  # type: ignore[arg-type]


async def test_registering_costs_a_write_per_renewal_and_none_per_run(world: World) -> None:
    Counting.asked = 0
    process = await real(world, wrap=lambda store: FaultyStore(store, workers=Counting))
    for number in range(20):
        await submitted(process, line("a", "b"), f"run-{number}")
    assert (await at_work(process)).executed == 20
    assert Counting.asked <= 2
