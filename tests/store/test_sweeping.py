"""A sweep and a writer that meet half-way, in every order: content that an event names is never deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from onward.clock import SystemClock
from onward.engine.journal import Journal
from onward.model.events import RunCompleted
from onward.store.codec import VALUE_BYTES_MAX, content_hash
from onward.store.port.retention import Kin
from onward.store.port.store import Store
from onward.store.postgres.adapter import PostgresStore
from onward.store.postgres.pool import Wire
from onward.store.postgres.statements import BEGIN, COMMIT, call, parse, texts
from onward.store.sqlite.adapter import SqliteStore
from onward.store.transactions import Member, new_mark
from tests.conformance.drafts import START_US, Draft, held, step, stepped

pytestmark = pytest.mark.anyio
LATER_US = START_US + 3_600 * 1_000_000
LARGE = "x" * VALUE_BYTES_MAX * 2
NAME = content_hash(f'"{LARGE}"'.encode())


class Sweep:
    """The steps of a sweep, one at a time."""

    def __init__(self, store: Store) -> None:
        assert isinstance(store, SqliteStore | PostgresStore)
        self._blobs, self._mark = store.blobs, new_mark()

    async def look(self, before_us: int = LATER_US) -> list[str]:
        return list(await self._blobs.unused(before_us, 10))

    async def mark(self, names: Sequence[str]) -> None:
        await self._blobs.mark(names, before_us=LATER_US, mark=self._mark)

    async def delete(self, names: Sequence[str]) -> int:
        return (await self._blobs.delete(names, mark=self._mark)).blobs


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store_kind(request: pytest.FixtureRequest) -> str:
    """Those that sweep in several transactions; memory does it at once."""
    return str(request.param)


async def content_without_a_run(store: Store) -> None:
    """Content that `store` has stored and used, and that nothing refers to any more."""
    run = await stepped(store, await held(store), text=LARGE)
    write, over = run.then(RunCompleted())
    await store.log.append(write, run.lease)
    await store.retention.delete([Kin(id=over.id, head=over.position.seq, status=over.run.status)])


async def is_whole(store: Store, run: Draft) -> bool:
    return bool((await Journal(store.log, SystemClock()).load(run.id)).run.context["text"] == LARGE)


async def test_content_that_is_used_after_it_was_found_stays(store: Store, other: Store) -> None:
    await content_without_a_run(store)
    sweep = Sweep(other)
    found = await sweep.look()
    assert found == [NAME]
    run = await stepped(store, await held(store), text=LARGE)  # by a clock of an hour ago
    await sweep.mark(found)
    assert await sweep.look(0) == []
    assert await is_whole(other, run)


async def test_content_that_is_used_after_it_was_marked_stays(store: Store, other: Store) -> None:
    await content_without_a_run(store)
    sweep = Sweep(other)
    await sweep.mark(await sweep.look())
    unused = await sweep.look(0)
    run = await stepped(store, await held(store), text=LARGE)
    assert await sweep.delete(unused) == 0
    assert await is_whole(other, run)


async def test_a_write_that_relies_on_marked_content_takes_the_mark_off(store: Store, other: Store) -> None:
    await content_without_a_run(store)
    sweep = Sweep(other)
    await sweep.mark(await sweep.look())
    unused = await sweep.look(0)
    run = await held(store)
    write, after = run.then(*step(run, text=LARGE), with_row=False)
    write.blobs.clear()
    await store.log.append(write, run.lease)
    assert await sweep.delete(unused) == 0
    assert await is_whole(other, after)


async def test_of_two_sweeps_one_deletes_only_what_it_marked_last_itself(store: Store, other: Store) -> None:
    await content_without_a_run(store)
    first, second = Sweep(other), Sweep(store)
    found = await first.look()
    await first.mark(found)
    unused = await first.look(0)
    await second.mark(found)
    run = await stepped(store, await held(store), text=LARGE)
    await second.mark(found)  # its writer's clock is behind; the second look tells that it is in use
    assert await first.delete(unused) == 0
    assert await second.look(0) == []
    assert await is_whole(other, run)


async def test_what_a_killed_sweep_marked_goes_with_the_next_one(store: Store, other: Store) -> None:
    await content_without_a_run(store)
    killed = Sweep(other)
    await killed.mark(await killed.look())
    assert (await store.blobs.sweep(LATER_US, 10)).blobs == 1
    assert await other.blobs.find(NAME) is None


WAITING = parse("waiting", "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")


async def until_one_waits(wire: Wire) -> None:
    async with asyncio.timeout(30):
        while (await wire.run(WAITING.call()))[0][0][0] == 0:
            pass


@pytest.mark.postgres
@pytest.mark.parametrize("store_kind", ["postgres"])
async def test_a_sweep_passes_over_what_an_open_transaction_uses(store: Store, other: Store) -> None:
    assert isinstance(store, PostgresStore)
    await content_without_a_run(store)
    run = await held(store)
    write, after = run.then(*step(run, text=LARGE), with_row=False)

    async def writing(wire: Wire) -> None:
        await wire.run(BEGIN)
        assert await store.log._writer.write(wire, [Member(write, run.lease[1:])]) == [None]
        assert (await other.blobs.sweep(LATER_US, 10)).blobs == 0
        await wire.run(COMMIT)

    await store._connections.use(writing)
    assert (await other.blobs.sweep(LATER_US, 10)).blobs == 0
    assert await is_whole(other, after)


@pytest.mark.postgres
@pytest.mark.parametrize("store_kind", ["postgres"])
@pytest.mark.parametrize("is_gone", [False, True])
async def test_a_writer_that_waits_for_a_sweep_stores_its_content_again(
    store: Store, other: Store, is_gone: bool
) -> None:
    assert isinstance(other, PostgresStore)
    await content_without_a_run(store)
    run, mark = await held(store), new_mark()

    async def sweeping(wire: Wire) -> asyncio.Task[Draft]:
        await wire.run(BEGIN)
        await wire.run(call("blob_mark", hashes=texts([NAME]), before_us=LATER_US, mark=mark))
        if is_gone:
            assert len((await wire.run(call("blob_delete", hash=NAME, mark=mark)))[0]) == 1
        writer = asyncio.create_task(stepped(store, run, text=LARGE))
        await until_one_waits(wire)
        await wire.run(COMMIT)
        return writer

    after = await (await other._connections.use(sweeping))
    assert (await other.blobs.delete([NAME], mark=mark)).blobs == 0
    assert await is_whole(other, after)
