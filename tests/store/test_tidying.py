"""Files of dead processes go when nobody needs them; those of the living, and of those who begin, stay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onward.model.events import RunPaused
from onward.model.row import Offer
from onward.store.sqlite.adapter import SqliteStore
from onward.store.sqlite.presence import Presence
from onward.store.sqlite.runs import TIDY_EVERY_S
from onward.testing.clock import ManualClock
from tests.conformance.drafts import created, held, requested

pytestmark = pytest.mark.anyio


def files(path: Path) -> set[str]:
    return set(os.listdir(f"{path}-workers"))


async def test_the_file_of_a_dead_process_goes_when_nothing_names_it_any_more(tmp_path: Path) -> None:
    path, clock = tmp_path / "onward.db", ManualClock()
    dying, store = SqliteStore(str(path)), SqliteStore(str(path), clock=clock)
    run = await held(dying)
    (left,) = files(path)
    await dying.close()  # with a run in its hands: its file stays, and nobody has its lock
    (listed,) = await store.runs.held()
    assert listed.holder is not None
    assert not listed.holder.is_alive
    assert files(path) == {left}, "the run's owner must be known as dead"
    await requested(store, run, RunPaused(reason="operator"))
    clock.advance(TIDY_EVERY_S)
    await store.runs.held()
    assert left not in files(path)
    await store.close()
    assert files(path) == set()


async def test_an_effect_that_has_not_finished_keeps_the_file_of_who_began_it(tmp_path: Path) -> None:
    path = tmp_path / "onward.db"
    dying, store = SqliteStore(str(path)), SqliteStore(str(path))
    await dying.effects.begin("key", "token", at_us=1)
    before = files(path)
    await dying.close()
    await store.runs.held()
    assert files(path) == before
    found = await store.effects.find("key")
    assert found is not None
    assert not found.is_alive
    await store.close()


async def test_the_file_of_a_dead_worker_stays_until_its_row_is_gone(tmp_path: Path) -> None:
    """Without the file the worker would pass for alive until its time is over."""
    path, clock = tmp_path / "onward.db", ManualClock()
    dying, store = SqliteStore(str(path)), SqliteStore(str(path), clock=clock)
    await dying.workers.register(Offer(("tool",)))
    (left,) = files(path)
    await dying.close()
    await store.runs.held()
    assert files(path) == {left}
    assert [one.is_alive for one in await store.workers.read()] == [False]
    assert await store.workers.tidy() == 1
    clock.advance(TIDY_EVERY_S)
    await store.runs.held()
    assert left not in files(path)
    await store.close()


async def test_the_living_those_who_begin_and_what_is_not_ours_stay(tmp_path: Path) -> None:
    path = tmp_path / "onward.db"
    store = SqliteStore(str(path))
    await created(store)
    directory = f"{path}-workers"
    alive, dead = Presence.announce(directory), Presence.announce(directory)
    dead.abandon()
    begun = tmp_path / "onward.db-workers" / "0123456789.lock"
    begun.write_text("")  # made, and not locked and signed yet
    (begun.parent / "notes").write_text("mine")
    (begun.parent / "link.lock").symlink_to(begun)
    names = {os.path.basename(alive._path), begun.name, "notes", "link.lock"}
    await store.runs.held()
    assert files(path) == names
    alive.close()
    await store.close()
