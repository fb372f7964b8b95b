"""Measuring: the numbers for operators describe the database at one instant."""

from __future__ import annotations

from onward.model.events import RunCancelled, RunFailed, RunInterrupted, RunPaused, RunQueued
from onward.model.row import Offer
from onward.model.run import RunStatus
from onward.store.port.leases import Lease
from onward.store.port.retention import Kin
from onward.store.port.runs import HOUR_US, EndedRuns, HeldRuns, Measured, Stand
from onward.store.port.store import Store
from tests.conformance.drafts import claimed, created, held, queued, requested, stepped
from tests.conformance.processes import Connect

SECOND_US = 1_000_000
STEPS_MAX = 400


async def test_an_empty_database_is_measured_as_such(store: Store) -> None:
    found = await store.measures.measure()
    assert (found.runs, found.due, found.later, found.oldest_due_us) == ({}, 0, 0, None)
    assert (found.holdings, found.ended, found.queue_age_s) == ((), {}, 0.0)
    assert set(found.statuses.values()) == {0}
    assert found.at_us > 0


async def test_runs_are_counted_by_status_reason_and_whether_they_can_go_on(store: Store) -> None:
    for _ in range(2):
        await created(store)
    await held(store)
    for reason in ("operator", "operator", "signal"):
        await requested(store, await created(store), RunPaused(reason=reason))
    await requested(store, await held(store), RunInterrupted(reason="crash"))
    await requested(store, await held(store), RunFailed(reason="rejected"))
    await requested(store, await created(store), RunCancelled(reason="user"))
    found = await store.measures.measure()
    assert dict(found.runs) == {
        Stand(RunStatus.QUEUED, "", False): 2,
        Stand(RunStatus.RUNNING, "", False): 1,
        Stand(RunStatus.PAUSED, "operator", True): 2,
        Stand(RunStatus.PAUSED, "signal", True): 1,
        Stand(RunStatus.INTERRUPTED, "crash", True): 1,
        Stand(RunStatus.FAILED, "rejected", False): 1,
        Stand(RunStatus.CANCELLED, "user", False): 1,
    }
    assert found.recoverable == 4
    assert {status: number for status, number in found.statuses.items() if number} == await store.runs.count()


async def test_what_is_due_is_told_from_what_has_time_and_from_when_the_oldest_waits(store: Store) -> None:
    await queued(store, wait_us=-SECOND_US)
    await queued(store, wait_us=-HOUR_US)
    await queued(store, wait_us=HOUR_US)
    await held(store)
    found = await store.measures.measure()
    assert (found.due, found.later) == (2, 1)
    assert found.oldest_due_us is not None
    assert found.queue_age_s == (found.at_us - found.oldest_due_us) / SECOND_US
    assert HOUR_US <= found.at_us - found.oldest_due_us < 2 * HOUR_US


async def test_who_holds_runs_is_counted_by_process(store: Store, other: Store) -> None:
    for _ in range(2):
        await held(store)
    await stepped(store, await held(store))
    await claimed(other, await created(store))
    found = await store.measures.measure()
    assert {*found.holdings} == {HeldRuns(store.leases.owner, 3, 0), HeldRuns(other.leases.owner, 1, 0)}
    assert (found.held, found.stalled) == (4, 0)


async def test_the_runs_of_a_process_that_is_gone_are_stalled(store: Store, connect: Connect) -> None:
    gone = await connect()
    for _ in range(2):
        await held(gone)
    await held(store)
    owner = gone.leases.owner
    await gone.close()
    found = await store.measures.measure()
    assert {*found.holdings} == {HeldRuns(owner, 2, 2), HeldRuns(store.leases.owner, 1, 0)}
    assert (found.held, found.stalled) == (3, 2)


async def test_what_ended_lately_is_counted_and_what_ended_before_is_not(store: Store) -> None:
    now_us = (await store.measures.measure()).at_us
    for ago_us in (HOUR_US // 2, 2 * HOUR_US, 30 * HOUR_US):
        draft = await created(store, at_us=now_us - ago_us)
        await requested(store, draft, RunCancelled(reason="user"))
    await requested(store, await created(store, at_us=now_us - HOUR_US // 2), RunPaused(reason="operator"))
    assert (await store.measures.measure()).ended == {RunStatus.CANCELLED: EndedRuns(1, 2)}


async def test_a_database_has_a_size_that_grows_with_what_is_stored(store: Store) -> None:
    before = await store.measures.measure()
    draft, number = await held(store), 0
    # A database gives space of earlier tests back whenever it likes, so it may have to grow for a while.
    while (await store.measures.measure()).size <= before.size:
        number += 1
        assert number < STEPS_MAX, "it does not grow"
        draft = await stepped(store, draft, text=f"-{number}-".join(map(str, range(10_000))))


async def test_a_due_run_that_could_not_be_claimed_is_told_of_until_its_log_grows(
    store: Store, other: Store
) -> None:
    stuck, fine = await created(store, "stuck"), await created(store, "fine")
    await created(store, "unnoted")
    await store.measures.note_stuck("stuck", "it is damaged")
    for why in ("no", "it is damaged too"):
        await other.measures.note_stuck("fine", why)
    await store.measures.note_stuck("nowhere", "there is no such run")
    found = (await other.measures.measure()).stuck
    assert {(one.run, one.failures, one.why) for one in found} == {
        ("stuck", 1, "it is damaged"),
        ("fine", 2, "it is damaged too"),
    }
    assert all(one.failed_at_us > 0 for one in found)
    fine = await claimed(store, fine)
    assert [one.run for one in (await store.measures.measure()).stuck] == ["stuck"]
    write, fine = fine.then(RunQueued(why="tests", wake_at_us=fine.run.updated_at_us))
    await store.log.append(write, Lease("fine", store.leases.owner, 1))
    await store.measures.note_stuck("fine", "again")
    assert {one.run: one.failures for one in (await store.measures.measure()).stuck} == {
        "stuck": 1,
        "fine": 1,
    }
    for draft in (stuck, fine):
        ended = await requested(store, draft, RunCancelled(reason="user"))
        kin = Kin(id=draft.id, head=ended.position.seq, status=ended.run.status)
        assert await store.retention.delete([kin]) == [draft.id]
    assert (await store.measures.measure()).stuck == ()


async def test_what_the_queue_needs_is_measured(store: Store) -> None:
    for _ in range(2):
        await created(store, needs=("agent", "tool"))
    await created(store)
    await held(store, needs=("tool",))
    assert dict((await store.measures.measure()).needs) == {"agent tool": 2, "": 1}


async def test_due_runs_that_no_live_worker_can_serve_are_measured(store: Store) -> None:
    await created(store, needs=("agent", "tool"))
    await created(store, needs=("agent",))
    ((waiting, number),) = (await store.measures.measure()).unserved.items()
    assert (waiting.workers, number) == (0, 2)
    await store.workers.register(Offer(("agent",)))
    ((waiting, number),) = (await store.measures.measure()).unserved.items()
    assert (waiting.workers, waiting.handlers, number) == (1, ("tool",), 1)


async def test_measuring_changes_nothing_and_is_the_same_for_every_process(
    store: Store, other: Store
) -> None:
    await held(store)
    await created(store)
    assert _timeless(await store.measures.measure()) == _timeless(await other.measures.measure())


def _timeless(found: Measured) -> object:
    return found.runs, found.due, found.later, found.oldest_due_us, found.holdings, found.ended
