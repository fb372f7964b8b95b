"""Leases of a foreground process: renewed while driven, distrusted in time, not written under when lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest

from onward.engine.claims import TRUSTED
from onward.engine.control.requests import StartRequest
from onward.errors import LeaseLost, StoreUnavailable
from onward.handlers.port import StepContext
from onward.model.events import AttemptInterrupted, RunClaimed
from onward.model.result import Result
from onward.model.run import Run, RunStatus
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.leases import Lease, Leases
from onward.store.port.log import RunLog, Write
from onward.store.port.store import Store
from onward.testing.clock import ManualClock
from tests.conformance.faults import Around, Fault, FaultyStore
from tests.conformance.handlers import Doorway
from tests.world import Process, World, line, until

LEASE_S = 10.0


class Renewals(Around[Leases]):
    """Remembers which leases were renewed."""

    def __init__(self, part: Leases, store: FaultyStore) -> None:
        super().__init__(part, store)
        self.renewed: list[Sequence[Lease]] = []

    async def renew(self, leases: Sequence[Lease]) -> Mapping[str, int]:
        self.renewed.append(leases)
        return await self.part.renew(leases)


def renewals(store: Store) -> FaultyStore:
    """A store whose renewals are remembered, and can be made to fail."""
    return FaultyStore(store, counted={"leases.renew"}, leases=Renewals)


class LeasedWorld(World):
    """Processes on one clock whose leases run out by another: the database's."""

    def __init__(self) -> None:
        self.clock, self.database_clock = ManualClock(autojump=False), ManualClock(autojump=False)
        database = MemoryDatabase(now_us=self.database_clock.now_us)

        async def connect() -> Store:
            return database.connect(LEASE_S)

        super().__init__(connect, "memory")

    async def at_the_door(
        self, *, wrap: Callable[[Store], FaultyStore] = FaultyStore
    ) -> tuple[Process, Doorway, asyncio.Task[Run]]:
        """A process inside step `a` of run `run`."""
        door = Doorway()
        process = await self.process({"a": [door]}, wrap=wrap, clock=self.clock)
        driving = asyncio.create_task(process.start(line("a", "b")))
        await door.entered()
        await self.clock.until_waiting()
        return process, door, driving

    async def pass_time(self, seconds: float) -> None:
        """Let the same time pass everywhere, and let everybody come to rest again."""
        self.database_clock.advance(seconds)
        self.clock.advance(seconds)
        await self.clock.until_waiting()


@pytest.fixture
def leased() -> LeasedWorld:
    return LeasedWorld()


async def test_a_lease_is_renewed_as_long_as_its_run_is_driven(leased: LeasedWorld) -> None:
    _, door, driving = await leased.at_the_door()
    other = await leased.process()
    for _ in range(100):
        await leased.pass_time(LEASE_S / 3)
    assert (await other.shown())["status"] == "running"
    door.open()
    assert (await driving).status is RunStatus.COMPLETED


async def test_a_lease_that_is_not_renewed_runs_out(leased: LeasedWorld) -> None:
    _, _, driving = await leased.at_the_door()
    other = await leased.process()
    leased.database_clock.advance(LEASE_S - 0.001)  # the process itself is stopped: its clock stands still
    assert (await other.shown())["status"] == "running"
    leased.database_clock.advance(0.001)
    assert (await other.shown())["status"] == "interrupted"
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)


async def test_a_holder_that_cannot_renew_ends_its_step_when_its_own_deadline_passes(
    leased: LeasedWorld,
) -> None:
    """I12: the database is out of reach, so it cannot tell; the holder's own clock does."""
    process, door, driving = await leased.at_the_door(wrap=renewals)
    process.store.fail(Fault.REFUSE, times=10_000)
    before = await process.log()
    leased.clock.advance(LEASE_S * TRUSTED - 0.001)
    await leased.clock.until_waiting()
    assert not door.was_cancelled
    leased.clock.advance(0.001)
    await until(lambda: door.was_cancelled)
    leased.clock.jump()
    with pytest.raises(StoreUnavailable):
        await driving
    await process.engine.dropped.settle()
    after = [record.kind for record in (await process.log())[len(before) :]]
    assert after == ["RunClaimed", "RunInterrupted"], "nothing is written but that the run is released"


class Hanging(Around[Leases]):
    """A store that does not answer renewals, as behind a network that swallows packets."""

    def __init__(self, part: Leases, store: FaultyStore) -> None:
        super().__init__(part, store)
        self.hanging, self.asked = True, 0

    async def renew(self, leases: Sequence[Lease]) -> Mapping[str, int]:
        self.asked += 1
        if self.hanging:
            await asyncio.Event().wait()
        return await self.part.renew(leases)


async def test_a_step_ends_at_the_deadline_although_the_renewal_hangs(leased: LeasedWorld) -> None:
    """I12."""
    process, door, driving = await leased.at_the_door(wrap=partial(FaultyStore, leases=Hanging))
    store = process.store.leases
    assert isinstance(store, Hanging)
    leased.clock.advance(LEASE_S / 3)
    await until(lambda: store.asked == 1)
    leased.clock.advance(LEASE_S * TRUSTED - LEASE_S / 3 - 0.001)
    await leased.clock.until_waiting()  # the renewal was given up, and is asked again in a moment
    assert not door.was_cancelled
    leased.clock.advance(0.001)
    await until(lambda: door.was_cancelled)
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)


async def test_a_renewal_that_hangs_is_asked_again_while_the_lease_is_trusted(leased: LeasedWorld) -> None:
    process, door, driving = await leased.at_the_door(wrap=partial(FaultyStore, leases=Hanging))
    store = process.store.leases
    assert isinstance(store, Hanging)
    leased.clock.advance(LEASE_S / 3)
    await until(lambda: store.asked == 1)
    leased.clock.advance(LEASE_S / 3)  # and as long again it is waited for
    await leased.clock.until_waiting()
    store.hanging = False
    for _ in range(36):
        await leased.pass_time(LEASE_S / 12)
    assert not door.was_cancelled
    door.open()
    assert (await driving).status is RunStatus.COMPLETED


async def out_of_touch(leased: LeasedWorld, **attrs: str) -> tuple[Process, asyncio.Task[Run]]:
    """A process inside step `a` whose lease runs out while the database is out of reach, and is back then."""
    door = Doorway()
    process = await leased.process({"a": [door]}, wrap=renewals, clock=leased.clock)
    driving = asyncio.create_task(process.start(line("a", "b", **attrs)))
    await door.entered()
    await leased.clock.until_waiting()
    process.store.fail(Fault.REFUSE, times=1)
    leased.clock.advance(LEASE_S)
    await until(lambda: door.was_cancelled)
    door.open()
    leased.clock.jump()
    return process, driving


async def test_a_lease_that_ran_out_and_was_not_taken_is_regained_and_the_step_runs_again(
    leased: LeasedWorld,
) -> None:
    """I28."""
    process, driving = await out_of_touch(leased)
    assert (await driving).status is RunStatus.COMPLETED
    assert leased.ledger.attempts("a") == [1, 1], "the same attempt, again"
    events = await process.events()
    (interrupted,) = [event for event in events if isinstance(event, AttemptInterrupted)]
    assert interrupted.why == "the lease could not be renewed in time"
    assert sum(isinstance(event, RunClaimed) for event in events) == 1


async def test_a_step_that_must_not_repeat_is_in_doubt_when_its_lease_runs_out(leased: LeasedWorld) -> None:
    _, driving = await out_of_touch(leased, a="repeatable=false")
    run = await driving
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "in_doubt")
    assert leased.ledger.attempts("a") == [1]


async def test_a_failure_that_comes_when_the_lease_has_run_out_is_not_the_steps(leased: LeasedWorld) -> None:
    """A supervisor killed the command at the deadline while the process was frozen: no retry is spent."""
    outcomes = [Result.fail("ended by signal 9"), Result.success()]

    async def act(step: StepContext) -> Result:
        leased.clock.advance(LEASE_S)
        return outcomes.pop(0)

    process = await leased.process({"a": [act]}, clock=leased.clock)
    driving = asyncio.create_task(process.start(line("a", "b")))
    assert (await driving).status is RunStatus.COMPLETED
    assert leased.ledger.attempts("a") == [1, 1]


async def test_the_deadline_counts_from_before_the_claim_was_sent(leased: LeasedWorld) -> None:
    """A claim whose reply took long is not trusted for longer than the database grants it. I12."""

    class SlowToAnswer(Around[RunLog]):
        async def create(self, write: Write, append_id: str | None = None) -> None:
            await self.part.create(write, append_id)
            leased.clock.advance(LEASE_S)  # the reply arrives when the lease is over

    class OutOfReach(Around[Leases]):
        async def renew(self, leases: Sequence[Lease]) -> Mapping[str, int]:
            raise StoreUnavailable("out of reach")

    wrap = partial(FaultyStore, log=SlowToAnswer, leases=OutOfReach)
    process = await leased.process(wrap=wrap, clock=leased.clock)
    leased.clock.jump()
    with pytest.raises(StoreUnavailable):
        await process.start(line("a"))
    assert leased.ledger.steps == []


async def test_a_holder_that_overslept_asks_before_its_next_effect_and_continues(leased: LeasedWorld) -> None:
    """A laptop slept through its lease, which no other process took: the store says that it is still ours.

    I12.
    """

    async def oversleep(step: StepContext) -> Result:
        leased.database_clock.advance(10 * LEASE_S)
        leased.clock.advance(10 * LEASE_S)
        return Result.success()

    process = await leased.process({"a": [oversleep]}, clock=leased.clock)
    assert (await process.start(line("a", "b"))).status is RunStatus.COMPLETED
    assert leased.ledger.steps == ["a#1", "b#1"]


async def test_a_holder_that_overslept_and_was_robbed_starts_no_effect(leased: LeasedWorld) -> None:
    """I12: the start of the step was still written in time; the effect would not be."""
    other = await leased.process()

    class RobbedJustThen(Around[RunLog]):
        async def append(self, write: Write, lease: Lease) -> None:
            await self.part.append(write, lease)
            leased.database_clock.advance(LEASE_S)
            leased.clock.advance(LEASE_S)
            await other.resume()

    process = await leased.process(wrap=partial(FaultyStore, log=RobbedJustThen), clock=leased.clock)
    with pytest.raises(LeaseLost):
        await process.start(line("a", "b"))
    assert leased.ledger.steps == ["a#1", "b#1"], "the new holder did it, and nobody else"


async def test_a_frozen_owner_that_wakes_is_fenced(world: World) -> None:
    """Somebody took the run over meanwhile; what the old owner still does is not written. H19, O5."""
    door = Doorway(Result.success(said="late"))
    frozen = await world.process({"a": [door]}, clock=ManualClock(autojump=False))
    driving = asyncio.create_task(frozen.start(line("a", "b")))
    await door.entered()
    other = await world.process({"a": [Result.success(said="in time")]})
    run = await other.resume(take_over=True)
    assert run.status is RunStatus.COMPLETED
    before = await other.log()
    door.open()
    with pytest.raises(LeaseLost):
        await driving
    assert await other.log() == before
    assert (await other.load()).run.context["said"] == "in time"
    assert await other.is_sound()


async def test_a_frozen_owner_that_wakes_under_expired_leases_is_fenced(leased: LeasedWorld) -> None:
    """H19."""
    _, door, driving = await leased.at_the_door()
    leased.database_clock.advance(LEASE_S)
    other = await leased.process()
    assert (await other.resume()).status is RunStatus.COMPLETED
    before = await other.log()
    door.open()
    with pytest.raises(LeaseLost):
        await driving
    assert await other.log() == before


async def test_a_lost_lease_ends_the_step_and_nothing_is_written(world: World) -> None:
    """The holder learns of the take-over by its heartbeat, in the middle of its step."""
    door = Doorway()
    process = await world.process({"a": [door]})
    driving = asyncio.create_task(process.start(line("a", "b")))
    await door.entered()
    second = Doorway()
    other = await world.process({"a": [second]})
    taking = asyncio.create_task(other.resume(take_over=True))
    with pytest.raises(LeaseLost):
        await driving
    assert door.was_cancelled
    await second.entered()
    second.open()
    assert (await taking).status is RunStatus.COMPLETED
    tokens = [record.token for record in await other.log()]
    assert tokens == sorted(tokens), "no write of the old owner comes after the claim"


async def test_a_lease_that_is_lost_during_a_back_off_ends_the_wait(world: World) -> None:
    clock = ManualClock(autojump=False)
    process = await world.process({"a": [Result.retry("later")]}, clock=clock)
    driving = asyncio.create_task(process.start(line("a", a="max_retries=3, retry_policy=patient")))
    await clock.until_waiting(2)
    other = await world.process()
    assert (await other.resume(take_over=True)).status is RunStatus.COMPLETED
    clock.advance(process.store.leases.heartbeat_s)
    with pytest.raises(LeaseLost):
        await driving
    assert world.ledger.attempts("a") == [1, 2]


async def test_a_dead_owner_is_taken_over_at_once(world: World) -> None:
    door = Doorway()
    process = await world.process({"b": [door]})
    driving = asyncio.create_task(process.start(line("a", "b", "c")))
    await door.entered()
    await process.die()
    other = await world.process()
    run = await other.resume()
    assert (run.status, run.token) == (RunStatus.COMPLETED, 2)
    claims = [event for event in await other.events() if isinstance(event, RunClaimed)]
    assert [claim.token for claim in claims] == [1, 2]
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)


async def test_only_leases_that_are_being_driven_are_renewed(leased: LeasedWorld) -> None:
    """H17."""
    process, door, driving = await leased.at_the_door(wrap=renewals)
    leases = process.store.leases
    assert isinstance(leases, Renewals)
    await process.engine.start(process.pipeline(line("c")), StartRequest(run_id="done"))
    await leased.pass_time(LEASE_S / 3)
    run_ids = {lease.run_id for renewed in leases.renewed for lease in renewed}
    assert run_ids == {"run"}
    door.open()
    await driving
    leases.renewed.clear()
    leased.clock.advance(LEASE_S)
    assert (leases.renewed, leased.clock.waiting) == ([], 0), "with nothing to hold there is no heartbeat"


async def test_one_heartbeat_serves_all_runs_of_a_process(leased: LeasedWorld) -> None:
    doors = [Doorway() for _ in range(5)]
    script = {f"n{n}": [door] for n, door in enumerate(doors)}
    process = await leased.process(script, wrap=renewals, clock=leased.clock)
    leases = process.store.leases
    assert isinstance(leases, Renewals)
    driving = [asyncio.create_task(process.start(line(f"n{n}"), f"run-{n}")) for n in range(5)]
    for door in doors:
        await door.entered()
    await leased.pass_time(process.store.leases.heartbeat_s)
    assert len(leases.renewed) == 1
    assert {lease.run_id for lease in leases.renewed[0]} == {f"run-{n}" for n in range(5)}
    for door in doors:
        door.open()
    await asyncio.gather(*driving)


async def test_a_heartbeat_that_dies_of_a_defect_ends_what_it_was_to_keep(leased: LeasedWorld) -> None:
    """Nobody goes on for hours under leases that nobody renews; the defect itself is what is reported."""

    class Defective(Around[Leases]):
        async def renew(self, leases: Sequence[Lease]) -> Mapping[str, int]:
            raise ZeroDivisionError("a defect")

    _, door, driving = await leased.at_the_door(wrap=partial(FaultyStore, leases=Defective))
    leased.clock.advance(LEASE_S)
    with pytest.raises(ZeroDivisionError):
        await driving
    assert door.was_cancelled
