"""Imports: a run from another database arrives complete or not at all, and no process holds it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from onward.clock import SystemClock
from onward.engine.journal import Journal
from onward.errors import Refused, RunNotFound
from onward.machine.fold.rows import run_row
from onward.machine.ticks import ticks_text
from onward.model.events import RunCancelled, RunPaused, RunResumed
from onward.model.run import FOLD_VERSION, RunStatus
from onward.operations.here.verify import verify_run
from onward.store.codec import content_hash
from onward.store.port.leases import Effect
from onward.store.port.log import ORIGIN, Position, StoredEvent, TakeFilter, Write
from onward.store.port.retention import Arrival, Kin
from onward.store.port.store import Store
from tests.conformance.drafts import (
    START_US,
    Draft,
    created,
    creation,
    everything_of,
    fork,
    held,
    log_of,
    requested,
    stepped,
)

HOUR_US = 3_600 * 1_000_000
LARGE = "x" * 10_000


async def _paused(store: Store, run_id: str, **context: str) -> Draft:
    run = await stepped(store, await held(store, run_id), times=4, **context)
    write, paused = run.then(RunPaused(reason="operator"))
    await store.log.append(write, run.lease)
    return paused


def _kin(draft: Draft) -> Kin:
    return Kin(id=draft.id, head=draft.position.seq, status=draft.run.status)


def _arrival(
    draft: Draft, records: Sequence[StoredEvent], *effects: Effect, first: int = 2, after: Position = ORIGIN
) -> Arrival:
    """The run of a draft with these records; the first few come with its row, the others in pages."""
    run = draft.run
    write = Write(
        run_id=run.id,
        after=after,
        head=draft.position,
        records=tuple(records[:first]),
        at_us=run.updated_at_us,
        doubtful=None,
        next_node=run.next_node,
        steps_finished=run.steps_finished,
        tokens=run.tokens,
        cost_micro=run.cost_micro,
        ticks=ticks_text(run),
        row=run_row(run),
    )

    def rest() -> Iterator[Sequence[StoredEvent]]:
        for start in range(first, len(records), 3):
            yield records[start : start + 3]

    return Arrival(write, rest, effects)


async def test_a_run_that_was_taken_in_is_the_run_that_was_sent(store: Store, other: Store) -> None:
    run = await _paused(store, "run", text=LARGE)
    before, records = await everything_of(store, run.id), await log_of(store, run.id)
    await store.retention.delete([_kin(run)])
    await other.carrying.receive(_arrival(run, records))
    assert await everything_of(store, run.id) == before
    assert (await verify_run(store, run.id)).problems == ()
    resumed = await requested(store, run, RunResumed(by="tests"))
    assert (await Journal(other.log, SystemClock()).load(run.id)).run == resumed.run


async def test_taking_the_same_run_in_again_changes_nothing_also_when_it_has_gone_on(
    store: Store, other: Store
) -> None:
    run = await _paused(store, "run")
    arrival = _arrival(run, await log_of(store, run.id))
    before = await everything_of(store, run.id)
    await other.carrying.receive(arrival)
    assert await everything_of(store, run.id) == before
    gone_on = await requested(store, run, RunResumed(by="tests"))
    await other.carrying.receive(arrival)
    assert (await Journal(other.log, SystemClock()).load(run.id)).position == gone_on.position


async def test_a_run_is_never_written_over_another_of_its_id(store: Store, other: Store) -> None:
    run = await _paused(store, "run")
    records = await log_of(store, run.id)
    await store.retention.delete([_kin(run)])
    theirs = await created(store, "run", at_us=START_US + 5)
    before = await everything_of(store, theirs.id)
    with pytest.raises(Refused, match="already exists"):
        await other.carrying.receive(_arrival(run, records))
    assert await everything_of(store, theirs.id) == before


async def test_a_fork_is_taken_in_only_behind_what_it_stands_on(store: Store, other: Store) -> None:
    begun = await stepped(store, await held(store, "parent"))
    stop, parent = begun.then(RunPaused(reason="operator"))
    await store.log.append(stop, begun.lease)
    write, child = fork(begun, "child")
    arrival = _arrival(child, write.records, after=begun.position)
    records = await log_of(store, parent.id)
    await store.retention.delete([_kin(parent)])
    with pytest.raises(RunNotFound):
        await store.carrying.receive(arrival)
    assert await store.log.load("child", fold_version=FOLD_VERSION) is None
    await store.carrying.receive(_arrival(parent, records))
    await other.carrying.receive(arrival)
    assert (await Journal(store.log, SystemClock()).load("child")).run == child.run
    assert (await verify_run(store, "child")).problems == ()


async def test_a_run_that_breaks_off_on_its_way_leaves_nothing(store: Store, other: Store) -> None:
    run = await _paused(store, "run")
    records = await log_of(store, run.id)
    await store.retention.delete([_kin(run)])
    whole = _arrival(run, records, Effect("run/start#1", "token", "them", False, 1))

    def rest() -> Iterator[Sequence[StoredEvent]]:
        yield next(whole.rest())
        raise InterruptedError

    with pytest.raises(InterruptedError):
        await store.carrying.receive(Arrival(whole.write, rest, whole.effects))
    for process in (store, other):
        assert await process.log.load(run.id, fold_version=FOLD_VERSION) is None
        assert await log_of(process, run.id) == []
        assert await process.effects.find("run/start#1") is None
    await store.carrying.receive(whole)
    assert await log_of(other, run.id) == records


async def test_effects_arrive_with_their_run_and_are_nobodys_any_more(store: Store, other: Store) -> None:
    run = await _paused(store, "run")
    await store.effects.begin("run/start#1", "one", at_us=1)
    await store.effects.finish("run/start#1", "one", b"\0paid\xff", at_us=2)
    await store.effects.begin("run/start#2", "two", at_us=3)
    await store.effects.begin("run-2/start#1", "three", at_us=3)
    sent = await other.effects.read(run.id, limit=10)
    assert [effect.key for effect in sent] == ["run/start#1", "run/start#2"]
    assert [effect.result for effect in sent] == [b"\0paid\xff", None]
    records = await log_of(store, run.id)
    await store.retention.delete([_kin(run)])
    assert await store.effects.read(run.id, limit=10) == []
    await store.effects.begin("run/start#2", "mine", at_us=9)
    await other.carrying.receive(_arrival(run, records, *sent))
    done, taken = await store.effects.read(run.id, limit=10)
    assert (done.key, done.token, done.owner) == ("run/start#1", "one", store.leases.owner)
    assert (done.result, done.begun_at_us, done.finished_at_us) == (b"\0paid\xff", 1, 2)
    assert (taken.token, taken.is_alive) == ("mine", True)
    await store.effects.forget("run/start#2", "mine")
    cancelled = await requested(store, run, RunCancelled(reason="user"))
    records = await log_of(store, run.id)
    await store.retention.delete([_kin(cancelled)])
    await other.carrying.receive(_arrival(cancelled, records, *sent))
    doubtful = await other.effects.find("run/start#2")
    assert doubtful is not None
    assert (doubtful.token, doubtful.is_alive, doubtful.result) == ("two", False, None)


async def test_content_can_be_stored_ahead_of_its_run(store: Store, other: Store) -> None:
    content = b"content " * 1_000
    name = content_hash(content)
    await store.blobs.put({name: content}, at_us=START_US)
    await other.blobs.put({name: content}, at_us=START_US + HOUR_US)
    assert await other.blobs.find(name) == content
    assert (await store.blobs.sweep(START_US + HOUR_US, 10)).blobs == 0
    assert (await store.blobs.sweep(START_US + HOUR_US + 1, 10)).blobs == 1
    await store.blobs.put({}, at_us=START_US)


@pytest.mark.parametrize("first", [1, 100])
async def test_a_run_whose_content_was_swept_on_its_way_is_not_taken_in(
    store: Store, other: Store, first: int
) -> None:
    content = f'"{LARGE}"'.encode()
    run = await _paused(store, "run", text=LARGE)
    records = await log_of(store, run.id)
    await store.retention.delete([_kin(run)])
    await store.blobs.put({content_hash(content): content}, at_us=START_US)
    assert (await other.blobs.sweep(START_US + HOUR_US, 10)).blobs == 1  # an import that stood still
    with pytest.raises(Refused, match="refers to content that is not stored"):
        await store.carrying.receive(_arrival(run, records, first=first))
    assert await log_of(other, run.id) == []
    assert await other.log.load(run.id, fold_version=FOLD_VERSION) is None
    await store.blobs.put({content_hash(content): content}, at_us=START_US)
    await store.carrying.receive(_arrival(run, records, first=first))
    assert (await verify_run(other, run.id)).problems == ()


async def test_a_run_that_arrives_queued_is_there_for_the_taking(store: Store, other: Store) -> None:
    write, run = creation("run")
    await store.carrying.receive(_arrival(run, write.records, first=1))
    seen: list[str] = []
    await other.log.take(
        TakeFilter(),
        fold_version=FOLD_VERSION,
        decide=lambda _, loaded: seen.append(loaded.row.id),
    )
    assert seen == ["run"]
    assert (await store.runs.find("run"))[0].row.status is RunStatus.QUEUED
