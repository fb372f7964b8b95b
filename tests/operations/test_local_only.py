"""Requests that only this machine can answer: written and checked here."""

from __future__ import annotations

import io
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

import pytest

from onward.clock import SystemClock
from onward.engine.control.retention import Collector
from onward.errors import InvalidInput, Refused
from onward.operations.local_only import replies
from onward.operations.local_only.carry import export_runs, import_runs, spool_of
from onward.operations.local_only.collect import collect_runs
from onward.operations.local_only.doctor import check_installation
from onward.operations.local_only.files import RunDirectories
from onward.operations.local_only.requests import (
    CollectRuns,
    ExportRuns,
    ImportRuns,
    VerifyRuns,
    WriteFiles,
    WriteReceipts,
)
from onward.operations.local_only.verify import verify_runs
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.store import Store
from tests.operations.test_replies import check
from tests.test_pause import GATED
from tests.world import World, line

# -- files ---------------------------------------------------------------------------------------------


async def test_files_and_receipts_of_a_run_are_written_from_its_log(world: World, tmp_path: Path) -> None:
    process = await world.process()
    await process.start(line("a"))
    engine = process.engine
    directories = RunDirectories(engine.store, process.clock, engine.sources, None)
    with pytest.raises(InvalidInput, match="no directory for runs; name one with --out"):
        await directories.write_files(WriteFiles(run="run"))
    target = str(tmp_path / "files")
    written = await directories.write_files(WriteFiles(run="run", directory=target))
    check(written, replies.FilesWritten)
    assert (tmp_path / "files" / "manifest.json").is_file()
    receipts = await directories.write_receipts(WriteReceipts(run="run", directory=target))
    check(receipts, replies.ReceiptsWritten)
    assert (receipts["left"], receipts["resume_point"]["action"]) == ([], "done")
    assert [receipt["step_id"] for receipt in receipts["receipts"]] == ["start#1", "a#1", "exit#1"]


# -- the database --------------------------------------------------------------------------------------


async def test_an_export_is_imported_verified_and_collected(world: World) -> None:
    process = await world.process()
    await process.start(line("a"))
    process.clock.advance(1)
    await process.start(GATED, "asking")
    written = io.BytesIO()
    exported = await export_runs(process.engine.store, ExportRuns(), nullcontext(written.write))
    check(exported, replies.Exported)
    assert [run["status"] for run in exported["at_work"]] == ["waiting"]

    other = MemoryDatabase().connect()
    request = ImportRuns(name="the input")
    spool = spool_of(io.BytesIO(written.getvalue()), request)
    imported = await import_runs(request, spool, nullcontext(other), process.clock)
    check(imported, replies.Imported)
    assert imported["imported"] == ["run", "asking"]
    verified = [one async for one in verify_runs(other, None, VerifyRuns())]
    for one in verified:
        check(one, replies.RunVerified)
    assert sum(len(one["problems"]) for one in verified) == 0

    process.clock.advance(40 * 86_400)
    collector = Collector(other, process.clock, None, lambda text: None)
    collected = await collect_runs(collector, CollectRuns())
    check(collected, replies.RunsCollected)
    assert collected["runs"] == ["run"]
    check(await check_installation(other, None), list[replies.Check])


async def test_a_file_that_is_no_export_opens_no_database() -> None:
    opened: list[str] = []

    class Opening(AbstractAsyncContextManager[Store]):
        async def __aenter__(self) -> Store:
            opened.append("store")
            raise AssertionError

        async def __aexit__(self, *error: object) -> None: ...

    request = ImportRuns(name="notes.txt")
    with pytest.raises(Refused, match=r"notes\.txt .*; nothing was imported"):
        await import_runs(request, spool_of(io.BytesIO(b"hello\n"), request), Opening(), SystemClock())
    assert opened == []


def test_runs_that_are_not_over_cannot_be_collected() -> None:
    with pytest.raises(InvalidInput, match="only completed, cancelled, failed; `onward cancel`"):
        CollectRuns(statuses=("completed", "running"))
