"""Another copy of the SQLite library in the same process: it cannot take away what was acknowledged.

Closing a file drops all POSIX locks that the process has on it, whichever library took them. Whoever closes
the database next then believes that it is alone, and deletes the log to which a store still writes.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from onward.errors import StoreGone
from onward.store.sqlite.adapter import SqliteStore
from tests.conformance.drafts import created, held, log_of, queued, stepped

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has locks that belong to an open file"),
]
VISIT = """
import asyncio, sys
from onward.store.sqlite.adapter import SqliteStore
from tests.conformance.drafts import created, log_of
async def main(path, run_id, make):
    store = SqliteStore(path)
    for number in range(int(make)):
        await created(store, f"{run_id}-{number}")
    print(len(await log_of(store, run_id)))
    await store.close()
asyncio.run(main(*sys.argv[1:]))
"""


def visit(path: Path, run_id: str, make: int = 0) -> int:
    """Open the database in another process, make runs, close it; how many events of the run it has seen."""
    command = [sys.executable, "-c", VISIT, str(path), run_id, str(make)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


async def test_a_run_that_becomes_due_is_heard_of_by_every_process_at_the_file(tmp_path: Path) -> None:
    """A worker need not wait for its next look; a run that is due later does not hide one that is due now."""
    path = tmp_path / "onward.db"
    stores = [SqliteStore(str(path)) for _ in range(2)]
    await queued(stores[0], "later", wait_us=10**12)
    heard = [asyncio.Event(), asyncio.Event()]
    unwatch = [await store.watch(event.set) for store, event in zip(stores, heard, strict=True)]
    for number, store in enumerate(stores):
        await queued(store, f"now-{number}")
        for event in heard:
            await event.wait()
            event.clear()
    for stop in unwatch:
        await stop()
    for store in stores:
        await store.close()


def look_with_another_library(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("SELECT count(*) FROM run").fetchone()
    db.close()


async def test_what_is_acknowledged_after_another_library_closed_the_file_is_there(tmp_path: Path) -> None:
    """I1."""
    path = tmp_path / "onward.db"
    store = SqliteStore(str(path))
    run = await stepped(store, await held(store))
    look_with_another_library(path)
    assert visit(path, run.id) == run.position.seq
    run = await stepped(store, run)
    assert visit(path, run.id) == run.position.seq
    await store.close()
    assert visit(path, run.id) == run.position.seq


async def test_the_last_to_close_leaves_one_file(tmp_path: Path) -> None:
    """I1."""
    path = tmp_path / "onward.db"
    first, second = SqliteStore(str(path)), SqliteStore(str(path))
    run = await created(first)
    await first.close()
    look_with_another_library(path)
    assert "onward.db-wal" in os.listdir(tmp_path)
    assert len(await log_of(second, run.id)) == run.position.seq
    await second.close()
    assert os.listdir(tmp_path) == ["onward.db"]


async def test_closing_a_store_whose_log_is_gone_writes_over_nothing_that_others_wrote_since(
    tmp_path: Path,
) -> None:
    """I1."""
    path = tmp_path / "onward.db"
    visit(path, "earlier", make=20)
    store = SqliteStore(str(path))
    await created(store, "lost")
    os.unlink(f"{path}-wal")
    os.unlink(f"{path}-shm")
    visit(path, "since", make=20)
    with pytest.raises(StoreGone):
        await created(store)
    await store.close()
    again = SqliteStore(str(path))
    assert [await again.runs.find(f"since-{number}") == [] for number in range(20)] == [False] * 20
    assert await again.runs.find("lost") == []  # it was only in the log that was deleted by hand
    assert [is_well for subject, is_well, _ in await again.check() if subject == "integrity"] == [True]
    await again.close()
