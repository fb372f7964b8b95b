"""Loading: one consistent read, from the newest snapshot that this version can use."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from onward.clock import SystemClock
from onward.engine.log.journal import Journal
from onward.errors import StaleHistory
from onward.model.run import FOLD_VERSION
from onward.store.port.store import Store
from onward.store.port.stored import Snapshot
from onward.testing.drafts import Draft, held, log_of, step, stepped


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
