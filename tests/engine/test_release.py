"""What a process does not drive any more it gives back: counted, with back-off, and until it succeeds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

import pytest

from onward.engine.control.requests import Resume, StartRequest
from onward.engine.stop import StopSwitch
from onward.errors import StoreFull, StoreUnavailable
from onward.machine.decide.owner_loss import LOSSES_MAX
from onward.model.run import RunStatus
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.leases import Lease, Leases
from onward.store.port.log import Controlled, Decide, RunLog, Write
from onward.store.port.store import Store
from onward.testing.clock import ManualClock
from tests.conformance.faults import Around, Fault, FaultyStore
from tests.conformance.handlers import Doorway
from tests.world import Process, World, line, until

FULL = StoreFull("there is no space left")


class NearlyFull(Around[RunLog]):
    """A disk with room for a release, and none for the end of a step."""

    async def append(self, write: Write, lease: Lease) -> None:
        if any(record.kind == "StepFinished" and "a#1" in record.body for record in write.records):
            raise FULL
        await self.part.append(write, lease)


async def test_a_run_that_is_released_again_and_again_waits_longer_and_ends_as_a_crash_loop() -> None:
    """A step that can be executed and not be recorded was executed for ever, many times a second. I36."""
    clock = ManualClock(autojump=False)
    database = MemoryDatabase(clock.now_us)

    async def connect() -> Store:
        return database.connect()

    world = World(connect, "memory")
    process = await world.process(clock=clock, wrap=partial(FaultyStore, log=NearlyFull))
    start = StartRequest(run_id="run", on_owner_loss="requeue")
    await process.engine.submit(process.pipeline(line("a")), start)
    waits_s = []
    for _ in range(LOSSES_MAX):
        taken = await process.engine.take(StopSwitch())
        assert taken is not None
        with pytest.raises(StoreFull):
            await taken[1]
        await process.engine.dropped.settle()
        run = (await process.load()).run
        waits_s.append(((run.wake_at_us or clock.now_us()) - clock.now_us()) / 1_000_000)
        if waits_s[-1]:
            assert await process.engine.take(StopSwitch()) is None, "its time has not come"
            clock.advance(waits_s[-1])
    assert waits_s == [0, 1, 2, 4, 0]
    run = (await process.load()).run
    assert (run.status, run.reason) == (RunStatus.FAILED, "crash_loop")
    assert "there is no space left" in run.detail
    assert world.ledger.steps == ["a#1"] * LOSSES_MAX
    await world.close()


class FullFor(FaultyStore):
    """A disk on which nothing can be written while `is_full`."""

    is_full = False
    renewed: Sequence[Lease] = ()

    def __init__(self, store: Store) -> None:
        super().__init__(store, log=FullLog, leases=NotedLeases)


class FullLog(Around[RunLog]):
    store: FullFor

    async def append(self, write: Write, lease: Lease) -> None:
        if self.store.is_full:
            raise FULL
        await self.part.append(write, lease)

    async def control(self, run_id: str, *, since: int, append_id: str, decide: Decide) -> Controlled:
        if self.store.is_full:
            self.store.calls.append("log.control")
            raise FULL
        return await self.part.control(run_id, since=since, append_id=append_id, decide=decide)


class NotedLeases(Around[Leases]):
    store: FullFor

    async def renew(self, leases: Sequence[Lease]) -> Mapping[str, int]:
        self.store.renewed = leases
        return await self.part.renew(leases)


async def dropped(world: World, clock: ManualClock) -> tuple[Process, FullFor]:
    """A process that could neither record a step nor give its run back."""
    door = Doorway()
    process = await world.process({"a": [door]}, clock=clock, wrap=FullFor)
    store = process.store
    assert isinstance(store, FullFor)
    driving = asyncio.create_task(process.start(line("a", "b")))
    await door.entered()
    store.is_full = True
    door.open()
    with pytest.raises(StoreFull):
        await driving
    return process, store


async def test_a_process_gives_back_what_it_dropped_as_soon_as_the_store_lets_it(world: World) -> None:
    """No worker runs here, and nobody closes the engine: a library keeps its process for days. I28."""
    clock = ManualClock(autojump=False)
    process, store = await dropped(world, clock)
    other = await world.process()
    for tries in range(1, 4):
        await until(lambda tries=tries: store.calls.count("log.control") == tries and clock.waiting == 1)  # type: ignore[misc]
        clock.advance(60)
    assert (await other.shown())["status"] == "running"
    await until(lambda: store.calls.count("log.control") == 4 and clock.waiting == 1)
    store.is_full = False
    clock.advance(60)
    lease = Lease("run", process.store.leases.owner, 1)
    await until(lambda: not process.engine.dropped.is_pending(lease))
    assert (await other.shown())["status"] == "interrupted"
    assert (await other.resume()).status is RunStatus.COMPLETED
    assert clock.waiting == 0


async def test_closing_tries_a_last_time_to_give_back_and_then_stops_trying(world: World) -> None:
    """I28."""
    clock = ManualClock(autojump=False)
    process, store = await dropped(world, clock)
    await until(lambda: clock.waiting == 1)
    tries = store.calls.count("log.control")
    await process.engine.dropped.settle()
    assert store.calls.count("log.control") == tries + 1
    assert clock.waiting == 0


async def test_a_dropped_lease_is_not_renewed(world: World) -> None:
    """Where leases expire, another process takes the run over even if this one can never say that it may.

    I28.
    """
    clock, door = ManualClock(autojump=False), Doorway()
    process, store = await dropped(world, clock)
    store.is_full = False
    process.agent.script = {"a": [door]}
    driving = asyncio.create_task(process.start(line("a"), "second"))
    await door.entered()
    store.is_full = True
    while not store.renewed:
        clock.advance(store.leases.heartbeat_s)
        await asyncio.sleep(0.001)
    assert [lease.run_id for lease in store.renewed] == ["second"]
    store.is_full = False
    door.open()
    await driving


async def test_a_run_that_was_claimed_and_not_begun_is_given_back(world: World) -> None:
    """Between the claim and the first step the caller is told what changed, and its terminal may be gone."""
    process = await world.process({"b": [RuntimeError("no network")]})
    nowhere = process.engine.sources.prepare(line("a", "b"), "gone.dot")
    await process.engine.start(nowhere, StartRequest(run_id="run"))
    assert (await process.load()).run.status is RunStatus.FAILED

    def hang_up(notice: str) -> None:
        raise BrokenPipeError(notice)

    with pytest.raises(BrokenPipeError, match=r"gone\.dot no longer exists"):
        await process.engine.resume("run", Resume(), tell=hang_up)
    await process.engine.dropped.settle()
    run = (await process.load()).run
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "crash")
    process.agent.script = {}
    assert (await process.resume()).status is RunStatus.COMPLETED


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.REFUSE])
@pytest.mark.parametrize("policy", ["interrupt", "requeue"])
async def test_a_run_whose_claim_was_lost_on_the_way_returns_to_the_queue(
    world: World, policy: str, fault: Fault
) -> None:
    """Its process lives, and has executed nothing of it: it was said to have crashed when its lease expired.

    B2-3: a job that was taken and never begun is taken again.
    """
    process = await world.process()
    await process.engine.submit(process.pipeline(line("a")), StartRequest(run_id="run", on_owner_loss=policy))
    process.store.fail(fault)
    with pytest.raises(StoreUnavailable):
        await process.engine.take(StopSwitch())
    await process.engine.dropped.settle()
    run = (await process.load()).run
    assert (run.status, run.losses) == (RunStatus.QUEUED, 0)
    taken = await process.engine.take(StopSwitch())
    assert taken is not None
    other = await world.process()
    assert not (await other.engine.sweep()).stopped
    assert not (await process.engine.sweep()).stopped, "it executes the run"
    assert (await taken[1]).run.status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1"]
    assert await process.is_sound()


async def test_a_cancelled_run_whose_claim_was_lost_is_cancelled(world: World) -> None:
    process, other = await world.process(), await world.process()
    await process.engine.submit(process.pipeline(line("a")), StartRequest(run_id="run"))
    process.store.fail(Fault.LOSE_REPLY)
    with pytest.raises(StoreUnavailable):
        await process.engine.take(StopSwitch())
    await other.engine.cancel("run")
    await process.engine.dropped.settle()
    assert (await process.load()).run.status is RunStatus.CANCELLED
    assert world.ledger.steps == []
