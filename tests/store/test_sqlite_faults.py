"""A disk that is full, broken or locked: one clear error each, and nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio
import random
import resource
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest

from onward.clock import SystemClock, SystemIds
from onward.engine.journal import Journal
from onward.errors import Refused, StoreError, StoreFull, StoreIO, StoreUnavailable
from onward.model.run import FOLD_VERSION
from onward.store.port.runs import RunQuery
from onward.store.sqlite.adapter import BUSY_S_MAX, SqliteStore
from tests.chance import places
from tests.conformance.drafts import ALL, Draft, held, stepped
from tests.store.disk import Disk, Onlooker

LARGE = "large " * 2_000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "onward.db"


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk(f"disk-{SystemIds().unique()}")
    yield disk
    disk.unregister()


async def found(path: Path) -> list[Draft]:
    """Every run that a new process finds, each as the fold of its whole log, in a sound database."""
    store = SqliteStore(str(path), connect=Onlooker)
    assert ("integrity", True, "ok") in await store.check()
    runs = []
    for listed in await store.runs.list(RunQuery(limit=ALL)):
        folded = await Journal(store.log, SystemClock()).load(listed.row.id)
        runs.append(Draft(folded.run, folded.position))
    await store.close()
    return runs


async def stepped_until_it_fails(store: SqliteStore, told: list[Draft]) -> None:
    """Append large values; `told` grows by what was acknowledged."""
    while len(told) < 1_000:
        told.append(await stepped(store, told[-1], text=text_of(len(told))))


def text_of(number: int) -> str:
    return random.Random(number).randbytes(4_000).hex()


def limited(path: str, opened: list[apsw.Connection]) -> apsw.Connection:
    opened.append(apsw.Connection(path))
    opened[-1].execute("PRAGMA max_page_count = 100")
    return opened[-1]


async def test_a_full_disk_is_told_as_such_and_goes_on_when_there_is_space(path: Path) -> None:
    """K20."""
    opened: list[apsw.Connection] = []
    store = SqliteStore(str(path), connect=partial(limited, opened=opened))
    told = [await held(store)]
    with pytest.raises(StoreFull, match="no space left"):
        await stepped_until_it_fails(store, told)
    run = told[-1]
    assert len(told) > 1, "some appends must have fitted in"
    assert await found(path) == [run]
    assert len(await store.log.read(run.id, after=0, limit=ALL)) == run.position.seq
    opened[-1].execute("PRAGMA max_page_count = 1000000")
    run = await stepped(store, run, text=text_of(len(told)))
    assert await found(path) == [run], "the value that did not fit in the first time must be there too"
    await store.close()


async def test_a_file_that_may_not_grow_is_a_clear_error(path: Path) -> None:
    store = SqliteStore(str(path))
    told = [await held(store)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    wal = path.with_name(f"{path.name}-wal")
    resource.setrlimit(resource.RLIMIT_FSIZE, (wal.stat().st_size + 20_000, hard))
    try:
        with pytest.raises((StoreFull, StoreIO), match="nothing acknowledged is lost"):
            await stepped_until_it_fails(store, told)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert await found(path) == told[-1:]
    run = await stepped(store, told[-1], text=text_of(len(told)))
    assert await found(path) == [run]
    await store.close()


async def story(store: SqliteStore, told: list[Draft]) -> None:
    """Some work; `told` is everything that was acknowledged, and what is in it is not done again."""
    if not told:
        told.append(await held(store, "run", context={"text": LARGE}))
    while len(told) < 5:
        told.append(await stepped(store, told[-1], text=LARGE + str(len(told) % 2)))


@pytest.mark.slow
# While SQLite tidies up after a failure it meets more of them, and only the first can be raised.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("failure", "ours"), [(apsw.FullError, StoreFull), (apsw.IOError, StoreIO)])
async def test_a_disk_that_fails_at_any_write_loses_nothing(
    tmp_path: Path, disk: Disk, failure: type[apsw.Error], ours: type[StoreError]
) -> None:
    disk.failure = failure
    for operations in places(3):
        path, told = tmp_path / f"{operations}.db", list[Draft]()
        store, error = None, None
        disk.count, disk.fails_at = 0, operations
        try:
            store = SqliteStore(str(path), connect=disk.connect)
            await story(store, told)
        except StoreError as raised:
            error = raised
        disk.fails_at = None
        store = store or SqliteStore(str(path), connect=disk.connect)
        await story(store, told)
        await store.close()
        assert await found(path) == told[-1:]
        if error is None:
            break
        assert type(error) is ours
        assert str(path) in str(error)
    assert operations > 50, "opening and four appends write more often than this"


async def test_a_connection_that_failed_to_write_is_not_used_again(path: Path, disk: Disk) -> None:
    opened: list[apsw.Connection] = []

    def connect(path: str) -> apsw.Connection:
        opened.append(disk.connect(path))
        return opened[-1]

    store = SqliteStore(str(path), connect=connect)
    run = await held(store)
    disk.fails_at = disk.count + 3
    with pytest.raises(StoreIO, match="the disk failed"):
        await stepped(store, run)
    with pytest.raises(StoreIO, match="the disk failed"):
        await stepped(store, run)
    disk.fails_at = None
    run = await stepped(store, run)
    assert len(opened) >= 2
    for connection in opened[:-1]:
        with pytest.raises(apsw.ConnectionClosedError):
            connection.execute("SELECT 1")
    await store.close()
    assert await found(path) == [run]


class Stuck(apsw.Connection):
    """A connection that cannot undo what it has begun."""

    def execute(self, statements: str, *arguments: Any, **options: Any) -> apsw.Cursor:
        if statements == "ROLLBACK":
            raise apsw.IOError("disk I/O error")
        return super().execute(statements, *arguments, **options)


async def test_a_refusal_is_told_as_such_even_if_it_cannot_be_undone_in_peace(path: Path) -> None:
    store = SqliteStore(str(path), connect=Stuck)
    run = await held(store)
    refusal = Refused("invalid_state", "not now.")

    def refuse(*_: object) -> None:
        raise refusal

    with pytest.raises(Refused) as raised:
        await store.log.control(run.id, since=0, append_id="request", decide=refuse)
    assert raised.value is refusal
    run = await stepped(store, run)
    await store.close()
    assert await found(path) == [run]


class Ticking(SystemClock):
    """A clock on which every look takes a second."""

    looks = 0

    def awake_s(self) -> float:
        self.looks += 1
        return float(self.looks)


@pytest.fixture
async def rival(path: Path) -> AsyncIterator[apsw.Connection]:
    """Another process that has the database locked for writing."""
    await SqliteStore(str(path)).close()
    rival = apsw.Connection(str(path))
    yield rival
    rival.close()


async def test_a_database_that_stays_locked_is_given_up_after_a_bounded_wait(
    path: Path, rival: apsw.Connection
) -> None:
    clock = Ticking()
    store = SqliteStore(str(path), clock=clock)
    run = await held(store)
    rival.execute("BEGIN IMMEDIATE")
    looks = clock.looks
    with pytest.raises(StoreUnavailable, match="stayed locked by another process"):
        await stepped(store, run)
    assert clock.looks - looks == BUSY_S_MAX + 1
    loaded = await store.log.load(run.id, fold_version=FOLD_VERSION)
    assert loaded is not None
    assert loaded.position == run.position, "reading does not wait for writers"
    rival.execute("ROLLBACK")
    run = await stepped(store, run)
    assert await found(path) == [run]
    await store.close()


async def test_many_appends_wait_for_a_lock_no_longer_than_one_alone(
    path: Path, rival: apsw.Connection
) -> None:
    clock = Ticking()
    store = SqliteStore(str(path), clock=clock)
    runs = [await held(store) for _ in range(10)]
    rival.execute("BEGIN IMMEDIATE")
    looks = clock.looks
    answers = await asyncio.gather(*(stepped(store, run) for run in runs), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 10
    # The first one alone, the others together, and one of them once more to see if it was at fault.
    assert clock.looks - looks <= 3 * (BUSY_S_MAX + 1)
    rival.execute("ROLLBACK")
    await asyncio.gather(*(stepped(store, run) for run in runs))
    await store.close()


async def test_an_append_that_waits_for_a_lock_goes_on_when_it_is_free(
    path: Path, rival: apsw.Connection
) -> None:
    store = SqliteStore(str(path))
    run = await held(store)
    rival.execute("BEGIN IMMEDIATE")
    waiting = asyncio.ensure_future(stepped(store, run))
    for _ in range(5):
        await asyncio.sleep(0)  # the loop is not held up
    assert not waiting.done()
    rival.execute("ROLLBACK")
    run = await waiting
    assert await found(path) == [run]
    await store.close()


async def test_a_request_looks_for_the_lock_more_than_a_thousand_times_a_second(
    path: Path, rival: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks less often than a busy holder commits gets the lock by luck, and may never be lucky.

    H3.
    """
    store = SqliteStore(str(path))
    run, waited, sleep = await held(store), list[float](), asyncio.sleep

    async def noted(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            rival.execute("ROLLBACK")
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)
    rival.execute("BEGIN IMMEDIATE")
    await store.log.control(run.id, since=0, append_id="request", decide=lambda *_: None)
    assert len(waited) == 3
    assert 0 < max(waited) < 0.001
    await store.close()


async def test_a_waiter_that_is_cancelled_leaves_nothing_behind(path: Path, rival: apsw.Connection) -> None:
    store = SqliteStore(str(path))
    run = await held(store)
    rival.execute("BEGIN IMMEDIATE")
    waiting = asyncio.ensure_future(
        store.log.control(run.id, since=0, append_id="request", decide=lambda *_: None)
    )
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    rival.execute("ROLLBACK")
    await stepped(store, run)
    await store.close()


async def test_a_database_that_is_locked_for_good_cannot_be_opened(
    path: Path, rival: apsw.Connection
) -> None:
    rival.execute("PRAGMA locking_mode = EXCLUSIVE")
    rival.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreUnavailable, match="stayed locked by another process"):
        SqliteStore(str(path), busy_s=0.05)
