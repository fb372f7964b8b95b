"""Whoever follows the numbers of changes misses none and gets none twice, however many write at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from onward.model.events import RunCancelled, RunPaused, RunResumed
from onward.store.port.store import Store
from onward.wiring import open_store
from tests.conformance.drafts import created, held, requested, stepped

pytestmark = pytest.mark.anyio
WRITERS, RUNS = 6, 25


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "onward.db")
    url: str = request.getfixturevalue("postgres_ready_url")
    return url


class Follower:
    """Follows the changes of a database from a number on."""

    def __init__(self, store: Store, at: int) -> None:
        self.store, self.at = store, at
        self.seen: list[tuple[int, str]] = []

    async def look(self, limit: int = 7) -> int:
        """Read one page; returns how many runs it had."""
        page = await self.store.runs.changed(self.at, limit)
        self.seen += [(run.changed, run.listed.row.id) for run in page.runs]
        self.at = page.next
        return len(page.runs)

    async def follow(self, is_over: asyncio.Event) -> None:
        while not is_over.is_set():
            await self.look()
            await asyncio.sleep(0)  # a file is read without giving the loop away


async def write(store: Store, name: str) -> None:
    """Change runs as fast as possible, several at a time, so that they share transactions."""

    async def live(number: int) -> None:
        run = await created(store, f"{name}-{number}")
        for turn in range(3):
            run = await requested(store, run, RunPaused(reason="operator"), append_id=f"pause {turn}")
            run = await requested(store, run, RunResumed(by="tests"), append_id=f"resume {turn}")
        await requested(store, run, RunCancelled(reason="user"), append_id="cancel")

    for start in range(0, RUNS, 5):
        await asyncio.gather(*(live(number) for number in range(start, start + 5)))


async def test_a_follower_beside_many_writers_misses_nothing_and_repeats_nothing(db: str) -> None:
    stores = [await open_store(db) for _ in range(WRITERS)]
    reading = await open_store(db)
    follower, is_over = Follower(reading, await reading.runs.change_number()), asyncio.Event()
    following = asyncio.create_task(follower.follow(is_over))
    await asyncio.gather(*(write(store, f"writer-{number}") for number, store in enumerate(stores)))
    is_over.set()
    await following
    while await follower.look():
        pass
    assert follower.seen == sorted(follower.seen), "a number appeared below one that was given out"
    assert len(follower.seen) == len(set(follower.seen)), "a change came twice"
    last = {run_id: number for number, run_id in follower.seen}
    ids = [f"writer-{writer}-{number}" for writer in range(WRITERS) for number in range(RUNS)]
    heads = await reading.runs.heads(ids)
    assert last == {run_id: head.changed for run_id, head in heads.items()}
    assert len(last) == WRITERS * RUNS
    for store in (*stores, reading):
        await store.close()


@asynccontextmanager
async def unfinished(url: str, run_id: str) -> AsyncIterator[None]:
    """A transaction that has changed a run, and commits at the end of the block."""
    async with (
        await psycopg.AsyncConnection.connect(url) as connection,
        connection.transaction(),
    ):
        await connection.execute(
            "UPDATE run SET changed = pg_current_xact_id()::text::bigint WHERE id = %s", (run_id,)
        )
        yield


@pytest.mark.postgres
async def test_a_change_waits_for_older_transactions_that_still_write(postgres_ready_url: str) -> None:
    store = await open_store(postgres_ready_url)
    await created(store, "slow")
    follower = Follower(store, 0)
    await follower.look()
    async with unfinished(postgres_ready_url, "slow"):
        await created(store, "quick")
        before = follower.at
        assert await follower.look() == 0
        assert follower.at == await store.runs.change_number() >= before
    assert await follower.look() == 2
    assert [run_id for _, run_id in follower.seen] == ["slow", "slow", "quick"]
    assert follower.seen == sorted(set(follower.seen))
    await store.close()


@pytest.mark.postgres
async def test_a_step_in_passing_writes_no_index(postgres_ready_url: str) -> None:
    """The number is in an index, so it must not change with every step: all updates stay HOT."""
    store = await open_store(postgres_ready_url)
    run = await held(store)
    async with await psycopg.AsyncConnection.connect(postgres_ready_url, autocommit=True) as connection:

        async def updates() -> tuple[int, int]:
            found = await connection.execute(
                "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'run'"
            )
            row = await found.fetchone()
            assert row is not None
            return row[0], row[1]

        await stepped(store, run, times=100)
        await store.close()  # its sessions tell their numbers when they end
        while (await updates())[0] < 100:
            await connection.execute("SELECT pg_sleep(0.01)")
        updated, hot = await updates()
    assert updated - hot <= 5, (updated, hot)
