"""Writes that wait at the same moment may share a transaction; none of them notices."""

from __future__ import annotations

import asyncio

import pytest

from onward.errors import LeaseLost, Refused, RunNotFound, StaleHistory
from onward.store.port.store import Store
from onward.testing.drafts import (
    claimed,
    created,
    creation,
    everything_of,
    fork,
    held,
    log_of,
    step,
    stepped,
)

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
