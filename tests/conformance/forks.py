"""Forks: a fork reads its parent's log up to the fork point, and the parent does not change."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from onward.clock import SystemClock
from onward.engine.journal import Journal
from onward.errors import RunNotFound
from onward.machine.fold.rows import run_row
from onward.model.events import RunClaimed
from onward.model.run import FOLD_VERSION
from onward.store.port.log import Held, StoredEvent, Write
from onward.store.port.store import Store
from tests.conformance.drafts import (
    ALL,
    Draft,
    claimed,
    creation,
    everything_of,
    fork,
    held,
    log_of,
    step,
    stepped,
)


async def forked(store: Store, parent: Draft) -> Draft:
    """A stored fork of `parent` as it is in this draft."""
    write, child = fork(parent, colour="blue")
    await store.log.create(write, "creation")
    return child


async def family(store: Store) -> tuple[Draft, Draft, Draft]:
    """A run, its fork, and the fork's fork; each continued after it was forked."""
    parent = await stepped(store, await held(store), times=2)
    child = await forked(store, parent)
    parent = await stepped(store, parent, times=2)
    child = await stepped(store, await claimed(store, child), times=2)
    grandchild = await forked(store, child)
    child = await stepped(store, child)
    return parent, child, await stepped(store, await claimed(store, grandchild))


async def test_a_fork_reads_its_parents_events_and_then_its_own(store: Store, other: Store) -> None:
    parent = await stepped(store, await held(store), times=2)
    child = await forked(store, parent)
    child = await stepped(store, await claimed(store, child))
    await stepped(store, parent)
    log = await log_of(other, child.id)
    assert log[: parent.position.seq] == (await log_of(other, parent.id))[: parent.position.seq]
    assert [record.seq for record in log] == list(range(1, child.position.seq + 1))
    assert {record.run_id for record in log[: parent.position.seq]} == {parent.id}
    assert {record.run_id for record in log[parent.position.seq :]} == {child.id}


async def test_a_fork_folds_to_its_parents_state_with_its_own_changes(store: Store) -> None:
    parent = await stepped(store, await held(store, context={"goal": "ship"}), answer=42)
    child = await forked(store, parent)
    folded = await Journal(store.log, SystemClock()).load(child.id)
    assert (folded.run, folded.position) == (child.run, child.position)
    assert folded.run.context["colour"] == "blue"
    assert (folded.run.context["goal"], folded.run.context["answer"]) == ("ship", 42)
    (listed,) = await store.runs.find(child.id)
    assert listed.row == run_row(child.run)
    assert (listed.row.parent, listed.row.parent_seq) == (parent.id, parent.position.seq)


async def test_a_parent_is_the_same_to_the_last_byte_whatever_its_fork_does(store: Store) -> None:
    parent = await stepped(store, await held(store), text="x" * 10_000)
    before = await everything_of(store, parent.id)
    child = await forked(store, parent)
    await stepped(store, await claimed(store, child), text="y" * 10_000)
    assert await everything_of(store, parent.id) == before


async def test_a_fork_is_the_same_whatever_its_parent_does(store: Store) -> None:
    parent = await held(store)
    child = await forked(store, parent)
    before = await everything_of(store, child.id)
    await stepped(store, parent, times=3)
    assert await everything_of(store, child.id) == before


async def test_a_fork_of_a_fork_reads_three_logs_as_one(store: Store) -> None:
    parent, child, grandchild = await family(store)
    log = await log_of(store, grandchild.id)
    assert [record.seq for record in log] == list(range(1, grandchild.position.seq + 1))
    assert [record.run_id for record in log] == [parent.id] * 6 + [child.id] * 6 + [grandchild.id] * 4
    assert (await Journal(store.log, SystemClock()).load(grandchild.id)).run == grandchild.run


async def test_a_fork_can_stand_on_an_event_that_its_parent_has_from_its_own_parent(store: Store) -> None:
    start = await stepped(store, await held(store))
    child = await forked(store, await stepped(store, start))
    journal = Journal(store.log, SystemClock())
    early = await journal.load_at(child.id, start.position.seq)
    write, second = fork(Draft(replace(early.run, id=child.id), early.position))
    await store.log.create(write, "creation")
    assert (await journal.load(second.id)).run == second.run
    log = await log_of(store, second.id)
    assert log[:-1] == (await log_of(store, start.id))[: start.position.seq]


@pytest.mark.parametrize("limit", [1, 2, 5, 7, ALL])
async def test_limits_hold_across_fork_points(store: Store, limit: int) -> None:
    *_, run = await family(store)
    whole = await log_of(store, run.id)
    for after in range(len(whole) + 1):
        assert await store.log.read(run.id, after=after, limit=limit) == whole[after : after + limit]
    for kind in {record.kind for record in whole}:
        assert await store.log.bodies(run.id, kind) == [one.body for one in whole if one.kind == kind]


async def test_a_request_to_a_fork_is_shown_the_log_across_its_fork_point(store: Store) -> None:
    parent = await stepped(store, await held(store))
    child = await forked(store, parent)
    shown: list[StoredEvent] = []

    def decide(held: Held, tail: Sequence[StoredEvent]) -> Write:
        shown.extend(tail)
        return child.then(RunClaimed(token=child.run.token + 1, worker=held.asker))[0]

    await store.log.control(child.id, since=1, append_id="claim", decide=decide)
    assert shown == (await log_of(store, child.id))[1 : child.position.seq]


async def test_a_fork_starts_from_a_snapshot_of_its_parent_that_is_not_past_the_fork_point(
    store: Store,
) -> None:
    run = await held(store)
    write, cached = run.then(*step(run), with_row=False, snapshot_version=FOLD_VERSION)
    await store.log.append(write, run.lease)
    late = await stepped(store, cached)
    journal = Journal(store.log, SystemClock())
    for point, is_used in ((cached, True), (late, True), (run, False)):
        child = await stepped(store, await claimed(store, await forked(store, point)), times=3)
        loaded = await store.log.load(child.id, fold_version=FOLD_VERSION)
        assert loaded is not None
        assert (loaded.snapshot is not None) == is_used
        assert loaded.tail[0].seq == (cached.position.seq + 1 if is_used else 1)
        assert (await journal.load(child.id)).run == child.run


async def test_a_fork_stands_only_on_an_event_that_is_there(store: Store) -> None:
    _, never = creation("never")
    run = await held(store)
    _, ahead = run.then(*step(run))
    for parent in (never, ahead):
        write, child = fork(parent)
        with pytest.raises(RunNotFound):
            await store.log.create(write, "creation")
        assert await store.log.load(child.id, fold_version=FOLD_VERSION) is None
        assert await log_of(store, child.id) == []
