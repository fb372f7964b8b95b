"""Workers: runs are taken in turn, driven by one at a time, handed back, and taken from the dead."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

import pytest

from onward.clock import SystemClock
from onward.engine.control.requests import StartRequest
from onward.engine.stop import StopSwitch
from onward.errors import LeaseLost
from onward.handlers.port import StepContext
from onward.machine.plan.planner import DRAIN
from onward.model.result import Result
from onward.model.row import Offer
from onward.model.run import RunStatus
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.runs import Listed, Runs
from onward.store.port.store import Store
from onward.testing.clock import ManualClock
from onward.worker import Shift, Worker
from tests.conformance.faults import Around, FaultyStore
from tests.conformance.handlers import Doorway
from tests.world import Process, Script, World, line, until


async def real(world: World, script: Script | None = None, **how: object) -> Process:
    """A process on the machine's own clock: leases are judged by a real one, and a worker never rests."""
    return await world.process(script, clock=SystemClock(), **how)  # type: ignore[arg-type]


async def submitted(process: Process, source: str, run_id: str, **start: object) -> None:
    begun = StartRequest(run_id=run_id, on_owner_loss="requeue", **start)  # type: ignore[arg-type]
    await process.engine.submit(process.pipeline(source), begun)


def worker(process: Process, stop: StopSwitch | None = None, **how: object) -> Worker:
    how = {"poll_s": 0.02, **how}
    return Worker(process.engine, SystemClock(), stop or StopSwitch(), **how)  # type: ignore[arg-type]


async def at_work(process: Process, stop: StopSwitch | None = None, **how: object) -> Shift:
    """A worker until nothing is left to do."""
    return await worker(process, stop, until_idle=True, **how).run()


async def test_submitted_runs_are_driven_in_turn(world: World) -> None:
    process = await real(world)
    for name in ("one", "two"):
        await submitted(process, line("a"), name)
    await submitted(process, line("b"), "urgent", priority=9)
    shift = await at_work(process, concurrency=1)
    assert shift == Shift(3, 0)
    assert [call.run_id for call in world.ledger.calls] == ["urgent", "one", "two"]
    assert (await process.load("one")).run.status is RunStatus.COMPLETED


async def test_several_workers_drive_every_run_once(world: World) -> None:
    """S2-22."""
    processes = [await real(world) for _ in range(3)]
    for number in range(20):
        await submitted(processes[0], line("a", "b"), f"run-{number}")
    shifts = await asyncio.gather(*(at_work(process) for process in processes))
    assert sum(shift.executed for shift in shifts) == 20
    assert sorted(world.ledger.steps) == sorted(["a#1", "b#1"] * 20)


async def test_a_worker_takes_no_more_than_it_may_drive_at_once(world: World) -> None:
    doors = [Doorway() for _ in range(3)]
    waiting = iter(doors)

    async def enter(step: StepContext) -> Result:
        return await next(waiting)(step)

    process, stop = await real(world, {"a": [enter]}), StopSwitch()
    for number in range(3):
        await submitted(process, line("a"), f"run-{number}")
    working = asyncio.create_task(worker(process, stop, concurrency=2).run())
    await doors[0].entered()
    await doors[1].entered()
    assert len(await process.store.runs.held()) == 2
    doors[0].open()
    await doors[2].entered()
    for door in doors:
        door.open()
    await until(lambda: len(world.ledger.calls) == 3)
    stop.request(DRAIN)
    assert (await working).left_behind == 0


async def test_what_needs_another_handler_is_left_for_a_worker_that_has_it(world: World) -> None:
    plain, agent = await real(world, handlers={}), await real(world)
    await submitted(agent, line("a"), "run")
    assert await at_work(plain) == Shift(0, 0)
    assert await at_work(agent) == Shift(1, 0)


async def test_a_draining_worker_hands_its_runs_back_at_the_next_boundary(world: World) -> None:
    """S2-3: nothing new is taken, the step is finished, and another worker continues."""
    door, stop, said = Doorway(), StopSwitch(), list[str]()
    process = await real(world, {"a": [door]})
    await submitted(process, line("a", "b"), "run")
    working = asyncio.create_task(worker(process, stop, say=said.append).run())
    await door.entered()
    stop.request(DRAIN)
    await until(lambda: any("1 run remains" in line for line in said))
    door.open()
    assert await working == Shift(1, 0)
    run = (await process.load("run")).run
    assert (run.status, run.next_node, run.worker) == (RunStatus.QUEUED, "b", None)
    assert await at_work(await real(world)) == Shift(1, 0)
    assert world.ledger.steps == ["a#1", "b#1"]


async def test_past_its_grace_time_a_worker_leaves_its_runs_behind(world: World) -> None:
    """S2-3."""
    door, stop = Doorway(), StopSwitch()
    process = await real(world, {"a": [door]})
    await submitted(process, line("a"), "run")
    working = asyncio.create_task(worker(process, stop).run())
    await door.entered()
    stop.request(DRAIN)
    stop.request(DRAIN)
    assert (await working).left_behind <= 1
    assert door.was_cancelled
    assert await at_work(await real(world)) == Shift(1, 0)


async def test_a_run_whose_worker_died_is_taken_over_by_another(world: World) -> None:
    """Document 002: a stalled job is found by the sweep and driven on, and finished work is not repeated."""
    door = Doorway()
    dying = await real(world, {"b": [door]})
    await submitted(dying, line("a", "b", "c"), "run")
    working = asyncio.create_task(worker(dying).run())
    await door.entered()
    await dying.die()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    process, stop = await real(world), StopSwitch()
    going = asyncio.create_task(worker(process, stop).run())
    await until(lambda: "c#1" in world.ledger.steps)
    stop.request(DRAIN)
    await going
    assert (await process.load("run")).run.status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1", "b#1", "c#1"]
    assert await process.is_sound("run")


async def test_a_run_that_asks_to_be_interrupted_is_not_taken_over(world: World) -> None:
    """Document 004: the user decides; the sweep says what happened and the run can be resumed."""
    door = Doorway()
    dying = await real(world, {"a": [door]})
    await dying.store.workers.register(Offer(("codergen",)))
    running = asyncio.create_task(dying.start(line("a")))
    await door.entered()
    await dying.die()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    process = await real(world)
    swept = await process.engine.recover()
    (stopped,) = swept.stopped
    assert (stopped.status, stopped.reason) == (RunStatus.INTERRUPTED, "restart")
    assert stopped.detail == "Server restarted while workflow was running"
    assert (await process.shown())["recoverable"]
    assert (await process.resume()).status is RunStatus.COMPLETED


async def test_a_frozen_owner_that_wakes_is_fenced(memory: World) -> None:
    world, door = memory, Doorway()
    frozen = await real(world, {"a": [door]})
    running = asyncio.create_task(frozen.start(line("a"), on_owner_loss="requeue"))
    await door.entered()
    frozen.store.store.kill()  # type: ignore[attr-defined]
    process = await real(world)
    swept = await process.engine.sweep()
    assert [run.id for run in swept.requeued] == ["run"]
    door.open()
    with pytest.raises(LeaseLost):
        await running
    assert await at_work(process) == Shift(1, 0)


async def test_a_run_that_loses_its_owner_again_and_again_waits_longer_each_time(world: World) -> None:
    """S2-30."""
    process = await real(world)
    await submitted(process, line("a"), "run")
    for losses in (1, 2):
        door = Doorway()
        dying = await real(world, {"a": [door]})
        working = asyncio.create_task(worker(dying).run())
        await door.entered()
        await dying.die()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        (run,) = (await process.engine.sweep()).requeued
        assert (run.losses, run.wake_at_us is not None) == (losses, True)
        waits_s = round(((run.wake_at_us or 0) - run.updated_at_us) / 1_000_000)
        assert waits_s == losses - 1


async def test_a_worker_looks_for_the_dead_often_enough_to_take_over_in_half_a_second(memory: World) -> None:
    world, door, clock = memory, Doorway(), ManualClock(autojump=False)
    dying = await real(world, {"a": [door]})
    running = asyncio.create_task(dying.start(line("a"), on_owner_loss="requeue"))
    await door.entered()
    process, stop = await world.process(clock=clock), StopSwitch()
    working = asyncio.create_task(Worker(process.engine, clock, stop).run())
    await clock.until_waiting(2)  # it has looked once, and found the owner alive
    dying.store.store.kill()  # type: ignore[attr-defined]
    clock.advance(0.25)
    await until(lambda: world.ledger.steps == ["a#1", "a#1"])
    stop.request(DRAIN)
    door.open()
    await working
    with pytest.raises(LeaseLost):
        await running


async def test_looking_for_the_dead_takes_a_small_part_of_a_workers_time(memory: World) -> None:
    """Where many runs are held a look takes long, and the next one comes later."""
    clock = ManualClock(autojump=False)
    process, stop = await memory.process(clock=clock, wrap=partial(FaultyStore, runs=SlowLook)), StopSwitch()
    looking = process.store.runs
    assert isinstance(looking, SlowLook)
    looking.clock = clock
    working = asyncio.create_task(Worker(process.engine, clock, stop).run())
    await clock.until_waiting(2)
    clock.advance(SlowLook.TAKES_S * 5)
    await clock.until_waiting(2)
    assert looking.looks == 1
    clock.advance(SlowLook.TAKES_S * 5)
    await until(lambda: looking.looks == 2)
    stop.request(DRAIN)
    await working


async def test_a_look_that_fails_in_an_unforeseen_way_is_told_and_not_the_last_one(memory: World) -> None:
    clock = ManualClock(autojump=False)
    process, stop = (
        await memory.process(clock=clock, wrap=partial(FaultyStore, runs=BrokenLook)),
        StopSwitch(),
    )
    looking, warned = process.store.runs, list[str]()
    assert isinstance(looking, BrokenLook)
    working = asyncio.create_task(Worker(process.engine, clock, stop, warn=warned.append).run())
    await clock.until_waiting(2)
    clock.advance(1.0)
    await until(lambda: looking.looks == 2)
    assert warned == ["cannot look for lost runs: a defect"]
    stop.request(DRAIN)
    await working


class BrokenLook(Around[Runs]):
    """A store whose first look at the held runs fails as none should."""

    looks = 0

    async def held(self) -> Sequence[Listed]:
        self.looks += 1
        if self.looks == 1:
            raise RuntimeError("a defect")
        return await self.part.held()


class SlowLook(Around[Runs]):
    """A store in which so many runs are held that looking at them takes seconds."""

    TAKES_S = 2.0
    clock = ManualClock()
    looks = 0

    async def held(self) -> Sequence[Listed]:
        self.looks += 1
        self.clock.advance(self.TAKES_S)
        return await self.part.held()


async def test_a_long_wait_is_not_held() -> None:
    """The clock jumps, the database's with it; a lease by the same clock would run out."""
    clock = ManualClock()
    database = MemoryDatabase(clock.now_us)

    async def connect() -> Store:
        return database.connect()

    world = World(connect, "memory")
    process, stop = await world.process({"a": [Result.retry("busy")]}, clock=clock), StopSwitch()
    await submitted(process, line("a", a="max_retries=8, retry_policy=patient"), "run")
    working = asyncio.create_task(Worker(process.engine, process.clock, stop, concurrency=1).run())
    await until(lambda: len(world.ledger.calls) >= 3)
    stop.request(DRAIN)
    await working
    assert "RunQueued" in await process.kinds("run")
    assert world.ledger.attempts("a")[:2] == [1, 2]
    assert (await process.load("run")).run.worker is None
