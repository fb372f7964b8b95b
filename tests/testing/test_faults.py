"""The faulty store: it fails where it is told to, and nowhere else."""

from __future__ import annotations

import asyncio

import pytest

from onward.errors import RunNotFound, StoreFull, StoreUnavailable
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.runs import RunQuery
from onward.store.port.store import Store
from tests.conformance.drafts import created
from tests.conformance.faults import Died, Fault, FaultyStore


@pytest.fixture
def memory() -> Store:
    return MemoryDatabase().connect()


@pytest.mark.parametrize(
    ("fault", "error", "is_there"),
    [
        (Fault.DIE_BEFORE, Died, False),
        (Fault.DIE_AFTER, Died, True),
        (Fault.REFUSE, StoreUnavailable, False),
        (Fault.LOSE_REPLY, StoreUnavailable, True),
    ],
)
async def test_a_fault_comes_at_its_place_with_or_without_the_effect(
    memory: Store, fault: Fault, error: type[BaseException], is_there: bool
) -> None:
    faulty = FaultyStore(memory, fault, at=2)
    await created(faulty, "one")
    with pytest.raises(error):
        await created(faulty, "two")
    assert bool(await memory.runs.find("two")) is is_there
    assert faulty.calls == ["log.create", "log.create"]


async def test_after_a_death_whoever_calls_dies_too(memory: Store) -> None:
    """A task beside the run may have been the first, and nobody waits for it."""
    faulty = FaultyStore(memory, Fault.DIE_BEFORE, at=1)
    with pytest.raises(Died):
        await faulty.log.load("run", fold_version=1)
    with pytest.raises(Died, match=r"call 1, log\.load"):
        await faulty.runs.list(RunQuery())


async def test_of_a_process_that_was_ended_no_call_returns(memory: Store) -> None:
    faulty = FaultyStore(memory)
    faulty.is_dead = True
    calling = asyncio.create_task(faulty.runs.list(RunQuery()))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not calling.done()
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)


async def test_a_fault_that_a_process_survives_passes(memory: Store) -> None:
    faulty = FaultyStore(memory, Fault.REFUSE, at=1, times=2, error=StoreFull("full"))
    for _ in range(2):
        with pytest.raises(StoreFull):
            await created(faulty, "run")
    await created(faulty, "run")
    faulty.fail(Fault.REFUSE, within=2)
    await faulty.log.load("run", fold_version=1)
    with pytest.raises(StoreFull):
        await faulty.log.load("run", fold_version=1)
    await faulty.log.load("run", fold_version=1)


async def test_only_calls_that_count_have_a_number(memory: Store) -> None:
    faulty = FaultyStore(memory, Fault.REFUSE, at=1, counted={"log.append"})
    await created(faulty, "run")
    assert await faulty.leases.renew([]) == {}
    assert await faulty.runs.count() == await memory.runs.count()
    assert await faulty.blobs.find("no such") is None
    assert await faulty.log.read("run", after=0, limit=1) == await memory.log.read("run", after=0, limit=1)
    assert faulty.calls == []


async def test_everything_else_is_the_stores_own(memory: Store) -> None:
    faulty = FaultyStore(memory)
    assert (faulty.leases.owner, faulty.leases.lease_s, faulty.leases.heartbeat_s) == (
        memory.leases.owner,
        memory.leases.lease_s,
        memory.leases.heartbeat_s,
    )
    assert await faulty.check() == await memory.check()
    with pytest.raises(RunNotFound):
        await faulty.log.control("nobody", since=0, append_id="x", decide=lambda held, tail: None)
    await faulty.close()
