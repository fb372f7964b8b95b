"""Creating runs and loading them: a run is there whole or not at all, and is read as it was written."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from onward.clock import SystemClock
from onward.engine.journal import Journal
from onward.errors import Refused, RunNotFound, StaleHistory
from onward.machine.fold.rows import run_row
from onward.model.run import FOLD_VERSION
from onward.store.port.log import Snapshot
from onward.store.port.store import Store
from tests.conformance.drafts import Draft, created, creation, everything_of, held, log_of, step, stepped

NAMED_OR_NOT = pytest.mark.parametrize("append_id", ["this creation", None])
"""A creation has the name that was given to it, or is recognised by its last hash."""


async def test_a_created_run_is_there_for_every_process(store: Store, other: Store) -> None:
    write, run = creation(context={"goal": "ship"}, path="story.dot", exclusive_key="chat-1")
    await store.log.create(write, "creation")
    for process in (store, other):
        loaded = await process.log.load(run.id, fold_version=FOLD_VERSION)
        assert loaded is not None
        assert loaded.row == run_row(run.run)
        assert loaded.position == run.position
        assert (loaded.holder, loaded.snapshot) == (None, None)
        assert tuple(loaded.tail) == write.records


async def test_a_run_can_be_created_and_claimed_in_one_write(store: Store, other: Store) -> None:
    run = await held(store)
    loaded = await other.log.load(run.id, fold_version=FOLD_VERSION)
    assert loaded is not None
    assert loaded.holder is not None
    assert (loaded.holder.owner, loaded.holder.token) == (store.leases.owner, 1)
    await stepped(store, run)


@NAMED_OR_NOT
async def test_a_run_id_is_given_once(store: Store, other: Store, append_id: str | None) -> None:
    run = await created(store, "taken")
    before = await everything_of(store, run.id)
    second, _ = creation("taken", pipeline="another")
    with pytest.raises(Refused) as refusal:
        await other.log.create(second, append_id)
    assert refusal.value.code == "run_exists"
    assert await everything_of(store, run.id) == before


@NAMED_OR_NOT
async def test_the_same_creation_again_is_a_success(
    store: Store, other: Store, append_id: str | None
) -> None:
    """H1."""
    write, run = creation()
    await store.log.create(write, append_id)
    before = await everything_of(store, run.id)
    await store.log.create(write, append_id)
    await other.log.create(write, append_id)
    assert await everything_of(store, run.id) == before


@NAMED_OR_NOT
async def test_the_same_creation_again_does_not_undo_what_came_after(
    store: Store, append_id: str | None
) -> None:
    write, run = creation(owner=store.leases.owner, exclusive_key="chat-1")
    await store.log.create(write, append_id)
    await stepped(store, run, times=2)
    before = await everything_of(store, run.id)
    await store.log.create(write, append_id)
    assert await everything_of(store, run.id) == before


async def test_of_rivals_for_one_id_exactly_one_creates_it(store: Store, other: Store) -> None:
    writes = [creation("wanted", pipeline=f"pipeline-{number}")[0] for number in range(10)]
    answers = await asyncio.gather(
        *((store, other)[n % 2].log.create(write, f"creation-{n}") for n, write in enumerate(writes)),
        return_exceptions=True,
    )
    assert sum(answer is None for answer in answers) == 1
    assert all(answer is None or isinstance(answer, Refused) for answer in answers)
    assert tuple(await log_of(store, "wanted")) == writes[answers.index(None)].records


async def test_a_run_that_does_not_exist_is_nothing_to_read_and_an_error_to_write(store: Store) -> None:
    _, never = creation("never", owner=store.leases.owner)
    write, _ = never.then(*step(never))
    assert await store.log.load("never", fold_version=FOLD_VERSION) is None
    assert await log_of(store, "never") == []
    with pytest.raises(RunNotFound):
        await store.log.append(write, never.lease)
    with pytest.raises(RunNotFound):
        await store.log.control("never", since=0, append_id="request", decide=lambda *_: write)
    assert await store.log.load("never", fold_version=FOLD_VERSION) is None


async def test_every_process_at_a_database_knows_it_by_the_same_name(store: Store, other: Store) -> None:
    assert store.identity.name
    assert store.identity == other.identity


async def snapshotted(store: Store, run: Draft, *, version: int = FOLD_VERSION) -> Draft:
    """The run after a step whose append carried a snapshot."""
    write, after = run.then(*step(run), with_row=False, snapshot_version=version)
    await store.log.append(write, run.lease)
    return after


async def test_a_run_is_loaded_from_its_snapshot_on(store: Store, other: Store) -> None:
    cached = await snapshotted(store, await stepped(store, await held(store), times=3))
    for steps in (0, 2):
        run = await stepped(store, cached, times=steps)
        loaded = await other.log.load(run.id, fold_version=FOLD_VERSION)
        assert loaded is not None
        assert loaded.snapshot is not None
        assert (loaded.snapshot.seq, loaded.snapshot.hash) == cached.position
        assert list(loaded.tail) == (await log_of(store, run.id))[cached.position.seq :]
        assert loaded.position == run.position


@pytest.mark.parametrize("version", [FOLD_VERSION - 1, FOLD_VERSION + 1])
async def test_a_snapshot_of_another_fold_version_is_as_good_as_none(store: Store, version: int) -> None:
    run = await stepped(store, await snapshotted(store, await held(store), version=version))
    loaded = await store.log.load(run.id, fold_version=FOLD_VERSION)
    assert loaded is not None
    assert loaded.snapshot is None
    assert list(loaded.tail) == await log_of(store, run.id)


async def test_the_newest_snapshot_counts(store: Store) -> None:
    run = await snapshotted(store, await held(store))
    run = await snapshotted(store, await stepped(store, run))
    loaded = await store.log.load(run.id, fold_version=FOLD_VERSION)
    assert loaded is not None
    assert loaded.snapshot is not None
    assert (loaded.snapshot.seq, loaded.snapshot.hash) == run.position
    assert list(loaded.tail) == []


async def test_a_snapshot_of_a_refused_append_is_not_stored(store: Store) -> None:
    run = await held(store)
    write, _ = run.then(*step(run), with_row=False, snapshot_version=FOLD_VERSION)
    await stepped(store, run, answer="faster")
    with pytest.raises(StaleHistory):
        await store.log.append(write, run.lease)
    loaded = await store.log.load(run.id, fold_version=FOLD_VERSION)
    assert loaded is not None
    assert loaded.snapshot is None


async def test_a_run_folds_to_the_same_with_and_without_a_snapshot(store: Store) -> None:
    plain = await stepped(store, await held(store, context={"a": 1}), times=4, b=[1, 2.0, "three"])
    before = await Journal(store.log, SystemClock()).load(plain.id)
    run = await stepped(store, await snapshotted(store, plain), c=None)
    after = await Journal(store.log, SystemClock()).load(run.id)
    assert before.run == plain.run
    assert (after.run, after.position) == (run.run, run.position)
    assert (await Journal(store.log, SystemClock()).load_at(run.id, plain.position.seq)).run == plain.run


async def test_a_damaged_snapshot_is_as_good_as_none(store: Store) -> None:
    run = await stepped(store, await held(store))
    write, after = run.then(*step(run), with_row=False)
    body = b"not a fold"
    await store.log.append(replace(write, snapshot=Snapshot(*write.head, FOLD_VERSION, body)), run.lease)
    after = await stepped(store, after)
    folded = await Journal(store.log, SystemClock()).load(run.id)
    assert (folded.run, folded.position) == (after.run, after.position)
