"""A run exists once `create` returns, exactly once, for every process."""

from __future__ import annotations

import asyncio

import pytest

from onward.errors import Refused, RunNotFound
from onward.machine.fold.row import project
from onward.model.run import FOLD_VERSION
from onward.store.port.store import Store
from onward.testing.drafts import created, creation, everything_of, held, log_of, step, stepped

NAMED_OR_NOT = pytest.mark.parametrize("append_id", ["this creation", None])
"""A creation has the name that was given to it, or is recognised by its last hash."""


async def test_a_created_run_is_there_for_every_process(store: Store, other: Store) -> None:
    write, run = creation(context={"goal": "ship"}, path="story.dot", exclusive_key="chat-1")
    await store.log.create(write, "creation")
    for process in (store, other):
        loaded = await process.log.load(run.id, fold_version=FOLD_VERSION)
        assert loaded is not None
        assert loaded.row == project(run.run)
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
