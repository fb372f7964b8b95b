"""Leases that run out, by a clock that the test moves: every store judges by time what it cannot see."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from onward.model.events import PauseRequested, RunClaimed
from onward.model.row import Offer
from onward.model.run import FOLD_VERSION
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.leases import Holder, Lease
from onward.store.port.store import Store
from onward.store.postgres.adapter import PostgresStore
from onward.store.sqlite.adapter import SqliteStore
from onward.testing.clock import ManualClock
from tests.conformance.drafts import Draft, claimed, created, held, requested, stepped

LEASE_S = 10.0
# Nobody here can see whether this process is alive: it is of another machine, and of another boot.
STRANGER = "7@elsewhere/00000000000000000000:1:another-boot"
POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(autojump=False)


@pytest.fixture
async def processes(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[tuple[Store, Store]]:
    """Two processes at a database whose clock is the test's."""
    stores: tuple[Store, Store]
    if request.param == "memory":
        database = MemoryDatabase(clock.now_us)
        stores = (database.connect(LEASE_S), database.connect(LEASE_S))
    elif request.param == "sqlite":
        path = str(tmp_path / "onward.db")
        one, two = (SqliteStore(path, clock=clock, now_us=clock.now_us, lease_s=LEASE_S) for _ in range(2))
        stores = (one, two)
    else:
        url = request.getfixturevalue("postgres_emptied_url")
        stores = (
            await PostgresStore.open(url, now_us=clock.now_us, lease_s=LEASE_S),
            await PostgresStore.open(url, now_us=clock.now_us, lease_s=LEASE_S),
        )
    yield stores
    for store in stores:
        await store.close()


async def holder_of(store: Store, run: Draft) -> Holder | None:
    loaded = await store.log.load(run.id, fold_version=FOLD_VERSION)
    assert loaded is not None
    (found,) = await store.runs.find(run.id)
    assert found.holder == loaded.holder
    return loaded.holder


async def held_by(owner: str, store: Store) -> Draft:
    """A run that somebody claimed just now."""
    run = await created(store)
    return await requested(store, run, RunClaimed(token=1, worker=owner), append_id="claim")


@pytest.mark.parametrize("processes", ["memory", POSTGRES], indirect=True)
async def test_a_holder_that_does_not_renew_is_gone_when_its_time_is_over(
    processes: tuple[Store, Store], clock: ManualClock
) -> None:
    store, other = processes
    run = await held(store)
    clock.advance(LEASE_S - 0.001)
    assert await holder_of(other, run) == Holder(store.leases.owner, 1, True)
    clock.advance(0.001)
    assert await holder_of(other, run) == Holder(store.leases.owner, 1, False)
    taken = await stepped(other, await claimed(other, run))
    assert await holder_of(store, taken) == Holder(other.leases.owner, 2, True)
    assert await store.leases.renew([run.lease]) == {}


@pytest.mark.parametrize("processes", ["memory", POSTGRES], indirect=True)
async def test_a_holder_that_renews_keeps_its_run(processes: tuple[Store, Store], clock: ManualClock) -> None:
    store, other = processes
    kept, forgotten = await held(store), await held(store)
    for _ in range(5):
        clock.advance(LEASE_S / 2)
        assert await store.leases.renew([kept.lease]) == {kept.id: kept.position.seq}
    assert await holder_of(other, kept) == Holder(store.leases.owner, 1, True)
    assert await holder_of(other, forgotten) == Holder(store.leases.owner, 1, False)


@pytest.mark.parametrize("processes", ["memory", POSTGRES], indirect=True)
async def test_work_goes_on_under_a_lease_that_ran_out_until_somebody_claims_it(
    processes: tuple[Store, Store], clock: ManualClock
) -> None:
    store, _ = processes
    run = await held(store)
    clock.advance(LEASE_S * 2)
    await stepped(store, run)


@pytest.mark.parametrize("processes", ["memory", "sqlite", POSTGRES], indirect=True)
async def test_only_the_token_that_holds_the_run_is_renewed(
    processes: tuple[Store, Store], clock: ManualClock
) -> None:
    """Not an older one of the same process, also when it is time to write: nobody drives under that. H17."""
    store, _ = processes
    first = await held(store)
    run = await requested(store, first, RunClaimed(token=first.run.token + 1, worker=store.leases.owner))
    older, newer = (Lease(run.id, store.leases.owner, token) for token in (first.run.token, run.run.token))
    for _ in range(3):
        clock.advance(0.4 * LEASE_S)
        assert await store.leases.renew([older]) == {}
        assert await store.leases.renew([newer]) == {run.id: run.position.seq}


@pytest.mark.parametrize("processes", ["sqlite", POSTGRES], indirect=True)
async def test_a_stranger_is_believed_alive_until_its_time_is_over(
    processes: tuple[Store, Store], clock: ManualClock
) -> None:
    """H16."""
    store, other = processes
    run = await held_by(STRANGER, store)
    clock.advance(LEASE_S - 0.001)
    assert await holder_of(other, run) == Holder(STRANGER, 1, True)
    clock.advance(0.001)
    assert await holder_of(other, run) == Holder(STRANGER, 1, False)


@pytest.mark.parametrize("processes", ["memory", "sqlite", POSTGRES], indirect=True)
async def test_somebody_elses_request_does_not_lengthen_a_lease(
    processes: tuple[Store, Store], clock: ManualClock
) -> None:
    store, other = processes
    owner = STRANGER if isinstance(store, SqliteStore) else store.leases.owner
    run = await held_by(owner, store)
    clock.advance(LEASE_S / 2)
    run = await requested(other, run, PauseRequested(after="step", by="tests"))
    clock.advance(LEASE_S / 2)
    assert await holder_of(other, run) == Holder(owner, 1, False)


@pytest.mark.parametrize("processes", ["sqlite"], indirect=True)
async def test_a_process_that_the_kernel_shows_alive_holds_its_runs_however_long_it_is_silent(
    processes: tuple[Store, Store], clock: ManualClock
) -> None:
    store, other = processes
    run = await held(store)
    clock.advance(LEASE_S * 1_000)
    assert await holder_of(other, run) == Holder(store.leases.owner, 1, True)


@pytest.mark.parametrize("processes", ["sqlite"], indirect=True)
async def test_a_renewal_lengthens_a_lease_for_those_who_only_see_the_time(
    processes: tuple[Store, Store], clock: ManualClock
) -> None:
    store, other = processes
    run = await held_by(STRANGER, store)
    lease = Lease(run.id, STRANGER, 1)
    for _ in range(6):
        clock.advance(LEASE_S / 2)
        assert await store.leases.renew([lease]) == {run.id: run.position.seq}
    assert await holder_of(other, run) == Holder(STRANGER, 1, True)
    clock.advance(LEASE_S)
    assert await holder_of(other, run) == Holder(STRANGER, 1, False)


@pytest.mark.parametrize("processes", ["memory", POSTGRES], indirect=True)
async def test_a_worker_that_does_not_register_again_is_dead_when_its_time_is_over(
    processes: tuple[Store, Store], clock: ManualClock
) -> None:
    """By the database's clock, and until then it can register again as if nothing had been."""
    worker, other = processes
    await worker.workers.register(Offer(("tool",)))
    clock.advance(LEASE_S - 1)
    assert [one.is_alive for one in await other.workers.read()] == [True]
    assert await other.workers.tidy() == 0
    await worker.workers.register(Offer(("tool",)))
    clock.advance(LEASE_S - 1)
    assert [one.is_alive for one in await other.workers.read()] == [True]
    clock.advance(2)
    assert [one.is_alive for one in await other.workers.read()] == [False]
    assert await other.workers.tidy() == 1
    assert list(await other.workers.read()) == []
    await worker.workers.register(Offer(("tool",)))
    assert [one.is_alive for one in await other.workers.read()] == [True]


@pytest.mark.parametrize("processes", ["sqlite"], indirect=True)
async def test_the_lock_of_a_worker_counts_for_more_than_its_time(
    processes: tuple[Store, Store], clock: ManualClock
) -> None:
    worker, other = processes
    await worker.workers.register(Offer(("tool",)))
    clock.advance(LEASE_S * 100)
    assert [one.is_alive for one in await other.workers.read()] == [True]
    await worker.close()
    assert [one.is_alive for one in await other.workers.read()] == [False]
