"""Appends of the holder: all of a write or nothing, after the event it was made for, under its lease."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from onward.errors import LeaseLost, StaleHistory
from onward.machine.fold.rows import run_row
from onward.model.events import RunPaused, RunQueued, RunResumed
from onward.model.run import FOLD_VERSION
from onward.store.codec import check_chain
from onward.store.port.log import ORIGIN, Position, StoredEvent
from onward.store.port.store import Store
from onward.testing.drafts import claimed, created, everything_of, held, log_of, requested, step, stepped


async def test_a_log_is_read_as_it_was_written_without_a_gap(store: Store, other: Store) -> None:
    run = await stepped(store, await held(store), times=5)
    log = await log_of(other, run.id)
    assert [record.seq for record in log] == list(range(1, run.position.seq + 1))
    assert check_chain(ORIGIN, log) == run.position


async def test_several_events_of_one_append_stand_together(store: Store) -> None:
    run = await held(store)
    write, after = run.then(*step(run), RunPaused(reason="signal"))
    await store.log.append(write, run.lease)
    assert tuple(await store.log.read(run.id, after=run.position.seq, limit=10)) == write.records
    loaded = await store.log.load(run.id, fold_version=FOLD_VERSION)
    assert loaded is not None
    assert (loaded.row, loaded.position) == (run_row(after.run), after.position)


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_a_log_can_be_read_in_parts(store: Store, limit: int) -> None:
    run = await stepped(store, await held(store), times=3)
    whole, parts = await log_of(store, run.id), list[StoredEvent]()
    while part := await store.log.read(run.id, after=parts[-1].seq if parts else 0, limit=limit):
        assert len(part) <= limit
        parts.extend(part)
    assert parts == whole


async def test_an_append_in_passing_moves_only_the_position_and_the_progress(store: Store) -> None:
    run = await held(store, exclusive_key="chat-1", path="story.dot")
    write, after = run.then(*step(run), with_row=False)
    await store.log.append(write, run.lease)
    loaded = await store.log.load(run.id, fold_version=FOLD_VERSION)
    assert loaded is not None
    assert (loaded.row, loaded.position) == (run_row(after.run), after.position)


async def test_an_append_behind_an_old_head_is_refused_and_writes_nothing(store: Store) -> None:
    old = await held(store)
    await stepped(store, old)
    before = await everything_of(store, old.id)
    late, _ = old.then(*step(old, answer="late"))
    with pytest.raises(StaleHistory):
        await store.log.append(late, old.lease)
    assert await everything_of(store, old.id) == before


async def test_an_append_that_would_leave_a_gap_is_refused(store: Store) -> None:
    run = await held(store)
    before = await everything_of(store, run.id)
    _, never_stored = run.then(*step(run))
    write, _ = never_stored.then(*step(never_stored))
    with pytest.raises(StaleHistory):
        await store.log.append(write, run.lease)
    assert await everything_of(store, run.id) == before


async def test_an_append_sealed_behind_another_history_is_refused(store: Store) -> None:
    run = await held(store)
    before = await everything_of(store, run.id)
    elsewhere = replace(run, position=Position(run.position.seq, b"\1" * 32))
    write, _ = elsewhere.then(*step(run), with_row=False)
    with pytest.raises(StaleHistory):
        await store.log.append(write, run.lease)
    write, _ = elsewhere.then(*step(run))
    with pytest.raises(StaleHistory):
        await store.log.append(write, run.lease)
    assert await everything_of(store, run.id) == before


@pytest.mark.parametrize("with_row", [True, False])
@pytest.mark.parametrize("wrong", [{"owner": "9@elsewhere/nobody"}, {"token": 2}, {"token": 0}])
async def test_a_wrong_owner_or_token_cannot_append(
    store: Store, wrong: dict[str, object], with_row: bool
) -> None:
    run = await held(store)
    before = await everything_of(store, run.id)
    write, _ = run.then(*step(run), with_row=with_row)
    with pytest.raises(LeaseLost):
        await store.log.append(write, run.lease._replace(**wrong))  # type: ignore[arg-type]
    assert await everything_of(store, run.id) == before


async def test_a_lost_lease_is_told_as_such_even_if_the_log_has_grown_too(store: Store, other: Store) -> None:
    run = await held(store)
    await claimed(other, run)
    before = await everything_of(store, run.id)
    write, _ = run.then(*step(run))
    with pytest.raises(LeaseLost):
        await store.log.append(write, run.lease)
    assert await everything_of(store, run.id) == before


async def test_a_run_that_was_let_go_of_takes_no_more_work(store: Store) -> None:
    run = await held(store)
    write, _ = run.then(RunQueued(why="drained", wake_at_us=run.run.updated_at_us))
    await store.log.append(write, run.lease)
    before = await everything_of(store, run.id)
    late, _ = run.then(*step(run))
    with pytest.raises(LeaseLost):
        await store.log.append(late, run.lease)
    assert await everything_of(store, run.id) == before


async def test_a_run_that_nobody_claimed_takes_no_work(store: Store) -> None:
    run = await created(store)
    before = await everything_of(store, run.id)
    write, _ = run.then(RunPaused(reason="signal"))
    with pytest.raises(LeaseLost):
        await store.log.append(write, (await held(store)).lease._replace(run_id=run.id, token=0))
    assert await everything_of(store, run.id) == before


@pytest.mark.parametrize("with_row", [True, False])
async def test_the_same_append_again_succeeds_without_a_second_copy(store: Store, with_row: bool) -> None:
    """H1."""
    run = await held(store)
    write, after = run.then(*step(run), with_row=with_row)
    await store.log.append(write, run.lease)
    before = await everything_of(store, run.id)
    await store.log.append(write, run.lease)
    assert await everything_of(store, run.id) == before
    await stepped(store, after)
    before = await everything_of(store, run.id)
    await store.log.append(write, run.lease)
    assert await everything_of(store, run.id) == before


async def test_an_append_whose_reply_was_lost_is_found_even_by_a_holder_that_lost_its_lease(
    store: Store, other: Store
) -> None:
    run = await held(store)
    write, after = run.then(*step(run))
    await store.log.append(write, run.lease)
    await claimed(other, after)
    before = await everything_of(store, run.id)
    await store.log.append(write, run.lease)
    assert await everything_of(store, run.id) == before


async def test_the_append_that_stops_a_run_releases_it_too(store: Store) -> None:
    """H9."""
    run = await held(store)
    write, after = run.then(RunPaused(reason="signal"))
    await store.log.append(write, run.lease)
    loaded = await store.log.load(run.id, fold_version=FOLD_VERSION)
    assert loaded is not None
    assert loaded.holder is None
    await claimed(store, await requested(store, after, RunResumed(by="tests")))


async def test_of_rival_appends_behind_one_event_exactly_one_is_written(store: Store) -> None:
    run = await held(store)
    writes = [run.then(*step(run, number=number))[0] for number in range(8)]
    answers = await asyncio.gather(
        *(store.log.append(write, run.lease) for write in writes), return_exceptions=True
    )
    assert sum(answer is None for answer in answers) == 1
    assert all(answer is None or isinstance(answer, StaleHistory) for answer in answers)
    winner = writes[answers.index(None)]
    assert tuple(await store.log.read(run.id, after=run.position.seq, limit=100)) == winner.records
