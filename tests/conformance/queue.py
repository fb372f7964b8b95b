"""The queue: the right order, each run for one worker only, and no run that the worker cannot serve."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from onward.machine.fold.rows import run_row
from onward.machine.lifecycle import apply
from onward.machine.ticks import ticks_text
from onward.model.events import RunClaimed, RunPaused, RunQueued, SteeringGiven
from onward.model.row import Offer
from onward.model.run import FOLD_VERSION
from onward.store.codec import seal, unseal
from onward.store.port.leases import Lease
from onward.store.port.log import TAIL_MAX, Held, Loaded, TakeFilter, Write
from onward.store.port.store import Store
from tests.conformance.drafts import START_US, created, grown, held, queued, requested
from tests.conformance.processes import Connect

SECOND_US, HOUR_US = 1_000_000, 3_600_000_000
ANY = TakeFilter()
OFFER = Offer(("agent", "a handler"), ("/there", "/a b%20c"), 3)
SKEWS_US = (-HOUR_US, HOUR_US, 100 * 365 * 24 * HOUR_US)


def claiming(held: Held, loaded: Loaded) -> Write | None:
    """What a worker decides: that the run is its own."""
    run = None
    for record in loaded.tail:
        run = apply(run, unseal(record), run_id=loaded.row.id, at_us=record.at_us, token=record.token)
    assert run is not None
    at_us = run.updated_at_us
    event = RunClaimed(token=run.token + 1, worker=held.asker, lost=run.worker is not None)
    after = apply(run, event, run_id=run.id, at_us=at_us, token=event.token)
    sealed = seal(run.id, held.position, [event], token=run.token, at_us=at_us)
    return Write(
        run_id=run.id,
        after=held.position,
        head=sealed.head,
        records=sealed.records,
        at_us=at_us,
        doubtful=None,
        next_node=after.next_node,
        steps_finished=after.steps_finished,
        tokens=after.tokens,
        cost_micro=after.cost_micro,
        ticks=ticks_text(after),
        row=run_row(after),
    )


async def taken_by(store: Store, wanted: TakeFilter = ANY) -> str | None:
    """The run that a worker takes now."""
    seen: list[str] = []

    def decide(held: Held, loaded: Loaded) -> Write | None:
        seen.append(loaded.row.id)
        return claiming(held, loaded)

    answer = await store.log.take(wanted, fold_version=FOLD_VERSION, decide=decide)
    return seen[-1] if answer is not None else None


async def is_due(store: Store) -> bool:
    """Whether a run that is loaded waits for no time any more."""
    loaded = await store.log.load("run", fold_version=FOLD_VERSION)
    assert loaded is not None
    return loaded.is_due


async def test_the_run_that_has_been_due_for_longest_is_taken_first(store: Store) -> None:
    """S2-14."""
    late = await queued(store, "late", wait_us=-SECOND_US)
    early = await queued(store, "later-id", wait_us=-2 * SECOND_US)
    assert [await taken_by(store) for _ in range(3)] == [early.id, late.id, None]


async def test_a_higher_priority_goes_before_age(store: Store) -> None:
    await queued(store, "old", wait_us=-SECOND_US)
    await created(store, "urgent", priority=5)
    assert await taken_by(store) == "urgent"


async def test_what_is_taken_is_held_by_who_took_it(store: Store, other: Store) -> None:
    run = await created(store)
    await taken_by(other)
    (listed,) = await store.runs.held()
    assert (listed.row.id, listed.row.owner, listed.row.token) == (run.id, other.leases.owner, 1)
    assert listed.holder is not None
    assert listed.holder.is_alive


async def test_a_run_whose_time_has_not_come_is_left_alone(store: Store) -> None:
    await queued(store, wait_us=HOUR_US)
    assert await taken_by(store) is None


@pytest.mark.parametrize("skew_us", SKEWS_US)
async def test_a_run_is_due_at_once_wherever_its_writers_clock_stands(store: Store, skew_us: int) -> None:
    """A run from a machine whose clock is an hour ahead must not wait for an hour."""
    now_us = (await store.measures.measure()).at_us
    await created(store, "run", at_us=now_us + skew_us)
    found = await store.measures.measure()
    assert (found.due, found.later) == (1, 0)
    assert found.oldest_due_us is not None
    assert found.oldest_due_us >= now_us, "and it has not waited for an hour either"
    assert await is_due(store)
    assert await taken_by(store) == "run"


@pytest.mark.parametrize("skew_us", SKEWS_US)
async def test_a_wait_is_as_long_as_its_writer_said_wherever_its_clock_stands(
    store: Store, other: Store, skew_us: int
) -> None:
    now_us = (await store.measures.measure()).at_us
    await queued(store, "run", wait_us=HOUR_US // 2, at_us=now_us + skew_us)
    assert await taken_by(other) is None
    found = await other.measures.measure()
    assert (found.due, found.later) == (0, 1)
    assert not await is_due(other)


@pytest.mark.parametrize("skew_us", SKEWS_US)
async def test_a_request_that_does_not_change_a_wake_time_changes_no_turn(
    store: Store, other: Store, skew_us: int
) -> None:
    """The process that steers a queued run may have another clock than the one that queued it."""
    first = await queued(store, "first", wait_us=-HOUR_US)
    await queued(store, "second", wait_us=-HOUR_US // 2)
    later = await queued(store, "later", wait_us=HOUR_US // 2)
    for draft in (first, later):
        skewed = replace(draft, run=msgspec.structs.replace(draft.run, updated_at_us=START_US + skew_us))
        await requested(other, skewed, SteeringGiven(text="softly", by="tests"))
    assert [await taken_by(store) for _ in range(3)] == ["first", "second", None]


async def test_a_run_that_is_to_be_passed_over_is_passed_over(store: Store) -> None:
    await created(store, "damaged")
    await created(store, "sound")
    assert await taken_by(store, TakeFilter(skipped=("damaged",))) == "sound"


async def test_a_run_that_is_stopped_or_held_is_left_alone(store: Store) -> None:
    await requested(store, await created(store), RunPaused(reason="operator"))
    await held(store)
    assert await taken_by(store) is None


async def test_what_needs_handlers_that_a_worker_does_not_have_is_passed_over(store: Store) -> None:
    await created(store, "needy", needs=("codergen", "special"))
    await created(store, "plain", needs=("tool",))
    assert await taken_by(store, TakeFilter(unserved=("codergen special",))) == "plain"
    assert await taken_by(store, TakeFilter(unserved=("codergen special",))) is None
    assert await taken_by(store) == "needy"


async def test_a_pipeline_has_no_more_runs_held_than_its_ceiling(store: Store) -> None:
    for name in ("a", "b", "c"):
        await created(store, name, max_running=2)
    await created(store, "free", pipeline="other")
    assert [await taken_by(store) for _ in range(4)] == ["a", "b", "free", None]


async def test_a_key_that_is_in_use_keeps_a_run_waiting_and_others_not(store: Store) -> None:
    await held(store, "holder", exclusive_key="chat")
    await created(store, "second", exclusive_key="chat")
    await created(store, "third", exclusive_key="mail")
    assert [await taken_by(store) for _ in range(2)] == ["third", None]


async def test_a_worker_may_decide_not_to_take_what_it_was_shown(store: Store) -> None:
    await created(store, "run")
    answer = await store.log.take(ANY, fold_version=FOLD_VERSION, decide=lambda *_: None)
    assert answer is not None
    assert await taken_by(store) == "run"


async def test_of_many_workers_each_run_goes_to_one(connect: Connect) -> None:
    stores = [await connect() for _ in range(4)]
    for number in range(40):
        await created(stores[0], f"run-{number:02}")

    async def work(store: Store) -> list[str]:
        found = []
        while (run_id := await taken_by(store)) is not None:
            found.append(run_id)
        return found

    taken = await asyncio.gather(*(work(store) for store in stores))
    assert sorted(run_id for found in taken for run_id in found) == [f"run-{n:02}" for n in range(40)]
    for store in stores:
        await store.close()


async def test_many_workers_together_keep_a_ceiling(connect: Connect) -> None:
    stores = [await connect() for _ in range(4)]
    for number in range(12):
        await created(stores[0], f"run-{number:02}", max_running=3)
    taken = await asyncio.gather(*(taken_by(store) for store in stores * 2))
    assert sum(run_id is not None for run_id in taken) == 3
    for store in stores:
        await store.close()


async def test_a_long_log_is_not_read_under_the_lock_and_what_follows_a_known_event_is(
    store: Store, other: Store
) -> None:
    """A claim does not hold the lock longer for a longer log."""
    run = await grown(store, await held(store, "run"), steps=TAIL_MAX // 2 + 1)
    write, run = run.then(RunQueued(why="tests", wake_at_us=run.run.updated_at_us))
    await store.log.append(write, Lease("run", store.leases.owner, 1))
    shown: list[Loaded] = []
    for known in (None, ("another", 1), ("run", run.position.seq - 2), ("run", run.position.seq)):
        wanted = TakeFilter(known=known)
        await other.log.take(wanted, fold_version=FOLD_VERSION, decide=lambda _, loaded: shown.append(loaded))
    assert [loaded.is_cut for loaded in shown] == [True, True, False, False]
    assert [len(loaded.tail) for loaded in shown] == [0, 0, 2, 0]
    assert {loaded.position for loaded in shown} == {run.position}
    loaded = await other.log.load("run", fold_version=FOLD_VERSION)
    assert loaded is not None
    assert (loaded.is_cut, loaded.tail, loaded.snapshot) == (True, (), None)


# -- who would take a queued run ----------------------------------------------------------------------


async def test_a_database_without_workers_says_so(store: Store) -> None:
    assert list(await store.workers.read()) == []
    assert (await store.measures.measure()).workers == ()


async def test_a_registered_worker_is_known_to_every_process_though_it_holds_no_run(
    store: Store, other: Store
) -> None:
    await store.workers.register(OFFER)
    for looking in (store, other):
        (found,) = await looking.workers.read()
        assert (found.owner, found.offer, found.is_alive) == (store.leases.owner, OFFER, True)
        assert found.started_at_us > 0
        assert (await looking.measures.measure()).workers == (found,)


async def test_a_worker_that_registers_again_is_one_worker_with_its_newest_offer(store: Store) -> None:
    await store.workers.register(OFFER)
    (before,) = await store.workers.read()
    await store.workers.register(Offer(("agent",)))
    (found,) = await store.workers.read()
    assert found.offer == Offer(("agent",))
    assert found.started_at_us == before.started_at_us


async def test_workers_are_in_the_order_in_which_they_started(store: Store, other: Store) -> None:
    await other.workers.register(OFFER)
    await store.workers.register(OFFER)
    found = await store.workers.read()
    assert {one.owner for one in found} == {store.leases.owner, other.leases.owner}
    assert [one.started_at_us for one in found] == sorted(one.started_at_us for one in found)


async def test_a_worker_that_has_left_is_not_known_any_more(store: Store, other: Store) -> None:
    await store.workers.register(OFFER)
    await store.workers.leave()
    await store.workers.leave()
    assert list(await other.workers.read()) == []


async def test_a_worker_whose_process_has_ended_is_not_alive_and_is_tidied_away(
    store: Store, connect: Connect
) -> None:
    await store.workers.register(OFFER)
    gone = await connect()
    await held(gone)
    await gone.workers.register(OFFER)
    await gone.close()
    assert [one.owner for one in await store.workers.read() if one.is_alive] == [store.leases.owner]
    await store.workers.tidy()
    (found,) = await store.workers.read()
    assert found.owner == store.leases.owner
    assert await store.workers.tidy() == 0
