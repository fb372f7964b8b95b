"""A second store, read in a thread of its own: whatever is read there, the engine's loop goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import psycopg
import pytest

from bench.rows import POSTGRES_ROWS, SQLITE_ROWS, finished
from onward.errors import InvalidInput, StoreError, StoreReadOnly, StoreUnavailable
from onward.operations.local.lists import LocalLists
from onward.operations.requests import ListRuns
from onward.store.port.store import Store
from onward.store.reader import Reader
from onward.threads import in_thread
from onward.wiring import open_reader, open_store
from tests.conformance.drafts import created, held

pytestmark = pytest.mark.anyio
ROWS, TURNS_MIN = 10_000, 20


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "onward.db")
    url: str = request.getfixturevalue("postgres_ready_url")
    return url


@pytest.fixture
async def store(db: str) -> AsyncIterator[Store]:
    store = await open_store(db)
    yield store
    await store.close()


@pytest.fixture
async def reader(db: str, store: Store) -> AsyncIterator[Reader[Store]]:
    reader = await open_reader(db, lambda reading: reading)
    yield reader
    await reader.close()


async def turns_during(work: asyncio.Task[int]) -> int:
    """How often this loop goes round until `work` is done."""
    turns = 0
    while not work.done():
        await asyncio.sleep(0)
        turns += 1
    await work
    return turns


def fill(db: str, rows: int) -> None:
    """Add so many finished runs, behind every store's back."""
    if db.startswith("postgres"):
        with psycopg.connect(db, autocommit=True) as connection:
            connection.execute(POSTGRES_ROWS.encode(), finished(rows))
    else:
        file = apsw.Connection(db)
        file.execute(SQLITE_ROWS, finished(rows))
        file.close()


async def test_a_list_of_10000_runs_does_not_hold_the_loop(
    db: str, store: Store, reader: Reader[Store]
) -> None:
    """Where nothing else waits, so only the reader's thread takes the time of this one."""
    await created(store, "first")
    fill(db, ROWS)
    request = ListRuns(limit=2 * ROWS)

    async def listed() -> int:
        found = await reader.ask(lambda reading: LocalLists(reading).list_runs(request))
        return len(found["runs"])

    listing = asyncio.create_task(listed())
    turns = await turns_during(listing)
    assert listing.result() == ROWS + 1
    assert turns >= TURNS_MIN, turns


async def test_a_reader_sees_what_was_committed_and_who_holds_it(store: Store, reader: Reader[Store]) -> None:
    run = await held(store, "run")
    assert await reader.ask(lambda reading: reading.runs.find("run")) == await store.runs.find("run")
    heads = await reader.ask(lambda reading: reading.runs.heads(["run"]))
    assert heads == await store.runs.heads(["run"])
    assert heads["run"].holder is not None
    assert heads["run"].holder.is_alive
    assert await reader.ask(
        lambda reading: reading.log.read(run.id, after=0, limit=9)
    ) == await store.log.read(run.id, after=0, limit=9)


async def test_what_is_asked_is_done_in_the_thread_of_the_reader(reader: Reader[Store]) -> None:
    async def where(_: Store) -> int:
        return threading.get_ident()

    there = await reader.ask(where)
    assert there != threading.get_ident()
    assert await asyncio.gather(*(reader.ask(where) for _ in range(3))) == [there] * 3


async def test_an_error_comes_to_whoever_asked(reader: Reader[Store]) -> None:
    async def fail(_: Store) -> None:
        raise InvalidInput("no")

    with pytest.raises(InvalidInput, match=r"^no$"):
        await reader.ask(fail)


async def test_a_cancelled_question_is_cancelled_there_too(reader: Reader[Store]) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def wait(_: Store) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    asking = asyncio.create_task(reader.ask(wait))
    assert await in_thread(begun.wait, 10)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await in_thread(cancelled.wait, 10)


async def test_a_closed_reader_refuses_and_what_was_under_way_is_cancelled(db: str, store: Store) -> None:
    reader = await open_reader(db, lambda reading: reading)

    async def wait(_: Store) -> None:
        await asyncio.Event().wait()

    asking = asyncio.create_task(reader.ask(wait))
    await reader.ask(lambda reading: reading.runs.count())
    await reader.close()
    await reader.close()
    with pytest.raises(asyncio.CancelledError):
        await asking
    with pytest.raises(StoreUnavailable, match="was closed"):
        await reader.ask(wait)
    await created(store, "still-there")


async def test_a_reader_that_cannot_be_opened_or_built_says_why(tmp_path: Path) -> None:
    path = tmp_path / "onward.db"
    path.write_text("this is no database, and long enough to be told from one" * 100)
    with pytest.raises(StoreError, match="not a SQLite database"):
        await open_reader(str(path), lambda reading: reading)
    path.unlink()
    await (await open_store(str(path))).close()

    def build(_: Store) -> None:
        raise InvalidInput("nothing can be built")

    with pytest.raises(InvalidInput, match="nothing can be built"):
        await open_reader(str(path), build)
    with pytest.raises(InvalidInput, match="in memory"):
        await open_reader(":memory:", build)


async def test_a_file_cannot_be_written_through_a_reader(tmp_path: Path) -> None:
    path = str(tmp_path / "onward.db")
    store = await open_store(path)
    reader = await open_reader(path, lambda reading: reading)

    async def write(reading: Store) -> None:
        await created(reading, "run")

    with pytest.raises(StoreReadOnly):
        await reader.ask(write)
    await reader.close()
    assert await store.runs.count() == {}
    await store.close()


async def test_a_file_says_cheaply_whether_anything_was_written(tmp_path: Path) -> None:
    path = str(tmp_path / "onward.db")
    store = await open_store(path)
    reader = await open_reader(path, lambda reading: reading)
    versions: list[int | None] = []
    for name in ("", "first", "second"):
        if name:
            await created(store, name)
        found = {await reader.ask(lambda reading: reading.version()) for _ in range(3)}
        assert len(found) == 1
        versions += found
    assert None not in versions
    assert len(set(versions)) == 3
    before = await store.version()
    await created(store, "third")
    assert await store.version() != before
    await reader.close()
    await store.close()
