"""Files of many steps, synced together: each step learns what became of its own, and none waits for ever."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onward.engine.files.run_files import SyncGroup, Write
from tests.world import until

CLOSED = 2**30  # no process has so many descriptors


def opened(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT)


def handing(file: int) -> Write:
    """A write whose file is to be synced."""
    return lambda unsynced: unsynced.add(file)


async def test_a_file_that_cannot_be_synced_fails_its_own_step_and_no_other(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads:
        group = SyncGroup(threads)
        files = [opened(tmp_path / name) for name in ("first", "second")]
        asked = [group.write([handing(file)]) for file in (files[0], CLOSED, files[1])]
        answers = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 10)
    assert [type(answer) for answer in answers] == [type(None), OSError, type(None)]
    for file in files:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(file)


async def test_a_file_that_cannot_be_written_fails_its_own_step_and_ends_what_comes_behind_it(
    tmp_path: Path,
) -> None:
    """What the step had written before that is synced and closed."""
    done: list[str] = []
    first = opened(tmp_path / "first")

    def fail(unsynced: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with ThreadPoolExecutor(1) as threads:
        group = SyncGroup(threads)
        asked = [
            group.write([lambda unsynced: done.append("other")]),
            group.write([handing(first), fail, lambda unsynced: done.append("behind")]),
            group.write([lambda unsynced: done.append("third")]),
        ]
        answers = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 10)
    assert [type(answer) for answer in answers] == [type(None), OSError, type(None)]
    assert done == ["other", "third"]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(first)


async def test_the_next_batch_is_written_while_the_one_before_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_syncing, may_end = threading.Event(), threading.Event()

    def hang(file: int) -> None:
        is_syncing.set()
        assert may_end.wait(20), "the next batch waited for this sync"

    monkeypatch.setattr(os, "fsync", hang)
    monkeypatch.setattr("onward.engine.files.run_files.SLOW_S", 3_600)
    with ThreadPoolExecutor(2) as threads:
        group = SyncGroup(threads)
        synced = group.write([handing(opened(tmp_path / "first"))])
        await until(is_syncing.is_set)
        try:
            await asyncio.wait_for(group.write([lambda unsynced: None]), 10)
            assert not synced.done()
        finally:
            may_end.set()
        await asyncio.wait_for(synced, 10)


async def test_a_thread_that_is_ended_while_it_writes_keeps_no_one_waiting() -> None:
    """Neither those of its batch nor those who come later."""

    def end(unsynced: object) -> None:
        raise SystemExit(3)

    with ThreadPoolExecutor(1) as threads:
        group = SyncGroup(threads)
        asked = [group.ask([end]), group.ask([lambda unsynced: None])]
        assert await asyncio.wait_for(asked[0].written, 10) is False
        with pytest.raises(SystemExit):
            await asyncio.wait_for(asked[0].synced, 10)
        await asyncio.wait_for(asked[1].synced, 10)
        await asyncio.wait_for(group.write([lambda unsynced: None]), 10)


async def test_without_a_thread_the_caller_is_told_and_the_next_one_is_not_kept_waiting() -> None:
    threads = ThreadPoolExecutor(1)
    threads.shutdown()
    group = SyncGroup(threads)
    for _ in range(2):
        asked = group.ask([lambda unsynced: None])
        assert await asyncio.wait_for(asked.written, 10) is False
        with pytest.raises(RuntimeError, match="after shutdown"):
            await asyncio.wait_for(asked.synced, 10)


async def test_a_batch_that_ends_by_a_defect_tells_everyone_who_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def defect(files: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("onward.receipts.folder.sync_files", defect)
    with ThreadPoolExecutor(1) as threads, pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(SyncGroup(threads).write([handing(CLOSED)]), 10)
