"""Files of many steps, synced together: each step learns what became of its own, and none waits for ever."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from onward.engine.files.sync_group import SyncGroup

CLOSED = 2**30  # no process has so many descriptors


def opened(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT)


async def test_a_file_that_cannot_be_synced_fails_its_own_step_and_no_other(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as threads:
        group = SyncGroup(threads)
        files = [opened(tmp_path / name) for name in ("first", "second")]
        asked = [group.sync([files[0]]), group.sync([CLOSED]), group.sync([files[1]])]
        answers = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 10)
    assert [type(answer) for answer in answers] == [type(None), OSError, type(None)]
    for file in files:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(file)


async def test_a_batch_that_ends_by_a_defect_tells_everyone_who_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def defect(files: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("onward.engine.files.sync_group.sync_files", defect)
    with ThreadPoolExecutor(1) as threads, pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(SyncGroup(threads).sync([CLOSED]), 10)
