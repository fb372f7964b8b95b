"""A claim on PostgreSQL: three trips to the server, and what they read is one run at one moment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from onward.model.events import RunClaimed
from onward.model.run import FOLD_VERSION
from onward.store.codec import check_chain
from onward.store.port.log import ORIGIN, Held, Loaded, Position, TakeFilter, Write
from onward.store.postgres.adapter import PostgresStore
from onward.store.postgres.pool import Rows, Wire
from onward.store.postgres.read import TAIL_AT_ONCE
from onward.store.postgres.statements import Call
from tests.conformance.drafts import Draft, grown, held, queued, step, stepped
from tests.store.proxy import Proxy, Trips

pytestmark = [pytest.mark.postgres, pytest.mark.anyio]


@pytest.fixture
def store(proxied_store: PostgresStore) -> PostgresStore:
    return proxied_store


async def snapshotted(store: PostgresStore, run: Draft) -> Draft:
    """The run after one more step, with a snapshot."""
    write, after = run.then(*step(run), snapshot_version=FOLD_VERSION)
    await store.log.append(write, run.lease)
    return after


async def test_a_claim_takes_three_trips(proxy: Proxy, store: PostgresStore) -> None:
    """To find and lock the run, to read it, and to write the claim."""
    run = await queued(store)

    def claim(held: Held, loaded: Loaded) -> Write:
        write, _ = run.then(RunClaimed(token=run.run.token + 1, worker=held.asker))
        return write

    proxy.alter = trips = Trips()
    assert await store.log.take(TakeFilter(), fold_version=FOLD_VERSION, decide=claim) is not None
    assert trips.number == 3


@pytest.mark.parametrize("with_snapshot", [False, True])
@pytest.mark.parametrize("events", [2, TAIL_AT_ONCE - 2, TAIL_AT_ONCE, TAIL_AT_ONCE + 2])
async def test_a_log_of_any_length_is_read_whole(
    store: PostgresStore, events: int, *, with_snapshot: bool
) -> None:
    run = await held(store)
    begin = ORIGIN
    if with_snapshot:
        run = await snapshotted(store, run)
        begin = run.position
    else:
        events -= run.position.seq
    run = await grown(store, run, steps=events // 2) if events else run
    loaded = await store.log.load(run.id, fold_version=FOLD_VERSION)
    assert loaded is not None
    assert (loaded.snapshot is not None) == with_snapshot
    assert check_chain(begin, loaded.tail) == loaded.position == run.position


class Meanwhile:
    """A connection on which something happens before the last of what is asked together."""

    def __init__(self, wire: Wire, happens: Callable[[], Awaitable[object]]) -> None:
        self._wire, self._happens = wire, happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wire, name)

    async def run(self, *calls: Call) -> Sequence[Rows]:
        *first, last = calls
        answers = await self._wire.run(*first) if first else []
        await self._happens()
        return [*answers, *await self._wire.run(last)]


async def loaded_while(store: PostgresStore, run: Draft, happens: Callable[[], Awaitable[object]]) -> Loaded:
    """What is read of a run to which something happens after its row was read, and before its events are."""
    loaded = await store._connections.use(
        lambda wire: store.log._load(Meanwhile(wire, happens), run.id, FOLD_VERSION)  # type: ignore[arg-type]
    )
    assert loaded is not None
    return loaded


@pytest.mark.parametrize("had_snapshot", [False, True])
@pytest.mark.parametrize("gets_snapshot", [False, True])
async def test_a_run_that_moves_on_while_it_is_read_is_read_as_it_was(
    store: PostgresStore, *, had_snapshot: bool, gets_snapshot: bool
) -> None:
    """Events that its row does not know are left out; events that a newer snapshot holds are not missing."""
    run = await held(store)
    run = await stepped(store, await snapshotted(store, run) if had_snapshot else run)
    newest = run

    async def move_on() -> None:
        nonlocal newest
        newest = await snapshotted(store, newest) if gets_snapshot else newest
        newest = await stepped(store, newest)  # so that as many events follow the snapshot as did before

    loaded = await loaded_while(store, run, move_on)
    begin = ORIGIN
    if loaded.snapshot is not None:
        begin = Position(loaded.snapshot.seq, loaded.snapshot.hash)
    assert (loaded.snapshot is not None) == had_snapshot
    assert check_chain(begin, loaded.tail) == loaded.position == run.position
    assert newest.position.seq > run.position.seq
