"""Appends of the holder: all of a write or nothing, after the event it was made for, under its lease.

Writes that wait at the same moment may share a transaction; none of them notices.
"""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from onward.errors import LeaseLost, Refused, RunNotFound, StaleHistory
from onward.machine.fold.rows import run_row
from onward.model.events import RunPaused, RunQueued, RunResumed
from onward.model.run import FOLD_VERSION
from onward.store.codec import check_chain
from onward.store.port.log import ORIGIN, Position, StoredEvent
from onward.store.port.store import Store
from tests.conformance.drafts import (
    claimed,
    created,
    creation,
    everything_of,
    fork,
    held,
    log_of,
    requested,
    step,
    stepped,
)


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
    kinds = [record.kind for record in whole]
    for kind in {*kinds}:
        assert len(await store.log.bodies(run.id, kind)) == kinds.count(kind)
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


MANY = 50


async def test_many_runs_created_at_once_are_all_there(store: Store, other: Store) -> None:
    writes = [creation(context={"number": number})[0] for number in range(MANY)]
    await asyncio.gather(*(store.log.create(write, "creation") for write in writes))
    for write in writes:
        assert tuple(await log_of(other, write.run_id)) == write.records


async def test_many_appends_of_different_runs_at_once_are_all_there(store: Store, other: Store) -> None:
    runs = await asyncio.gather(*(held(store) for _ in range(MANY)))
    runs = await asyncio.gather(*(stepped(store, run, times=3) for run in runs))
    for run in runs:
        log = await log_of(other, run.id)
        assert [record.seq for record in log] == list(range(1, run.position.seq + 1))
        assert log[-1].hash == run.position.hash


@pytest.mark.parametrize("append_id", ["this creation", None])
async def test_the_same_creation_twice_at_once_is_made_once(store: Store, append_id: str | None) -> None:
    write, run = creation()
    await asyncio.gather(*(store.log.create(write, append_id) for _ in range(3)))
    assert tuple(await log_of(store, run.id)) == write.records


async def test_the_same_append_twice_at_once_is_written_once(store: Store) -> None:
    run = await held(store)
    write, after = run.then(*step(run))
    await asyncio.gather(*(store.log.append(write, run.lease) for _ in range(3)))
    assert [record.seq for record in await log_of(store, run.id)] == list(range(1, after.position.seq + 1))


async def test_a_fork_can_be_made_at_once_with_the_event_it_stands_on(store: Store) -> None:
    run = await held(store)
    write, after = run.then(*step(run))
    creating, child = fork(after)
    answers = await asyncio.gather(
        store.log.append(write, run.lease), store.log.create(creating), return_exceptions=True
    )
    assert answers[0] is None
    assert answers[1] is None or isinstance(answers[1], RunNotFound), "it may come first, and is refused then"
    await store.log.create(creating)
    assert (await log_of(store, child.id))[:-1] == await log_of(store, run.id)


async def test_a_refused_write_does_not_disturb_those_beside_it(store: Store, other: Store) -> None:
    """H5."""
    lost, stale = await held(store), await held(store)
    await claimed(other, lost)
    await stepped(store, stale)
    taken = await created(other)
    well = await asyncio.gather(*(held(store) for _ in range(MANY)))
    before = [await everything_of(store, run.id) for run in (lost, stale, taken)]
    refused, stored = [lost, stale], [run.then(*step(run)) for run in well]
    answers = await asyncio.gather(
        *(store.log.append(run.then(*step(run, answer=1))[0], run.lease) for run in refused),
        store.log.create(creation(taken.id, pipeline="another")[0], "another creation"),
        *(store.log.append(write, run.lease) for (write, _), run in zip(stored, well, strict=True)),
        return_exceptions=True,
    )
    assert [type(answer) for answer in answers[:3]] == [LeaseLost, StaleHistory, Refused]
    assert answers[3:] == [None] * MANY
    assert [await everything_of(store, run.id) for run in (lost, stale, taken)] == before
    for write, after in stored:
        assert tuple(await log_of(other, after.id))[-2:] == write.records


async def test_a_writer_that_gives_up_waiting_does_not_disturb_those_beside_it(store: Store) -> None:
    runs = await asyncio.gather(*(held(store) for _ in range(10)))
    writes = [run.then(*step(run))[0] for run in runs]
    tasks = [
        asyncio.ensure_future(store.log.append(write, run.lease))
        for write, run in zip(writes, runs, strict=True)
    ]
    await asyncio.sleep(0)
    tasks[0].cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert answers[1:] == [None] * 9
    for write in writes[1:]:
        assert tuple(await log_of(store, write.run_id))[-2:] == write.records
    await store.log.append(writes[0], runs[0].lease)
    assert tuple(await log_of(store, runs[0].id))[-2:] == writes[0].records
