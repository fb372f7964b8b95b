"""Requests that only this machine can answer: executed, written and checked here."""

from __future__ import annotations

import io
from collections import Counter
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

import pytest

from onward.clock import SystemClock
from onward.engine.control.requests import Interviewer, QueueInterviewer
from onward.engine.control.retention import Collector
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput, Refused
from onward.operations.here import replies
from onward.operations.here.database import check_installation, export_runs, import_runs, spool_of
from onward.operations.here.directories import RunDirectories, collect_runs, verify_runs
from onward.operations.here.execute import Execution
from onward.operations.here.requests import (
    CollectRuns,
    ExportRuns,
    ImportRuns,
    VerifyRuns,
    WriteFiles,
    WriteReceipts,
)
from onward.operations.local.operations import LocalOperations
from onward.operations.requests import AnswerGate, GetRun, ResumeRun, SubmitRun
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.store import Store
from onward.testing.clock import ManualClock
from tests.engine.test_asking import FAN, asks, fan, held_once
from tests.engine.test_resume_doors import crashed
from tests.operations.test_replies import check
from tests.operations.test_requests import work
from tests.test_pause import GATED
from tests.world import Process, World, line


def here(process: Process, interviewer: Interviewer | None = None) -> Execution:
    return Execution(process.engine, process.clock, StopSwitch(), interviewer)


# -- executing -----------------------------------------------------------------------------------------


async def test_a_request_that_is_executed_here_ends_as_one_that_is_left_to_a_worker(world: World) -> None:
    process = await world.process()
    asking = SubmitRun(source=line("a", "b"), run_id="here")
    execution, operations = here(process), LocalOperations(process.engine, process.clock)
    mine = await execution.start_run(asking, await execution.prepare(asking))
    await operations.start.submit_run(SubmitRun(source=line("a", "b"), run_id="left"))
    assert await work(process) == "completed"
    theirs = await operations.look.get_run(GetRun(run="left"))
    for key in ("status", "completed", "context", "pipeline_hash", "visited_outcomes"):
        assert mine[key] == theirs[key]
    assert world.ledger.steps == ["a#1", "b#1", "a#1", "b#1"]


async def test_a_crashed_run_is_looked_at_and_then_continued_here(world: World) -> None:
    await crashed(world, line("a", "b"))
    execution = here(await world.process())
    ahead = await execution.look_ahead(ResumeRun(run="run"))
    check(ahead, replies.ResumeOutlook)
    assert ahead["checkpoint"] is not None
    assert (ahead["is_asking"], ahead["holder"], ahead["checkpoint"]["step"]) == (False, None, "start#1")
    assert (await execution.resume_run(ResumeRun(run="run")))["status"] == "completed"


async def test_a_run_with_a_branch_that_is_due_is_continued_before_it_is_asked(world: World) -> None:
    clock, entered = ManualClock(), Counter[str]()
    until_us = clock.now_us() + 3_600_000_000
    right = held_once("limit", until_us, entered)

    process = await world.process(handlers=fan(asks, right), clock=clock)
    await process.start(FAN)
    assert (await here(process).look_ahead(ResumeRun(run="run")))["is_asking"]
    clock.advance(3_601)
    assert not (await here(process).look_ahead(ResumeRun(run="run")))["is_asking"]
    assert (await here(process).resume_run(ResumeRun(run="run")))["status"] == "waiting"
    assert entered["right"] == 2


async def test_a_question_is_asked_once_and_its_answer_continues_the_run(world: World) -> None:
    process = await world.process()
    await process.start(GATED)
    assert (await here(process).look_ahead(ResumeRun(run="run")))["is_asking"]
    assert await here(process).ask(AnswerGate(run="run")) is None
    waiting = await here(process).attend_run(GetRun(run="run"))
    assert (waiting["status"], waiting["completed"]) == ("waiting", ["start#1", "work#1"])
    asked = await here(process, QueueInterviewer([True], name="me")).ask(AnswerGate(run="run"))
    assert asked is not None
    assert (asked.by, asked.verdict) == ("me", "approve")
    assert (await here(process).answer_gate(asked))["status"] == "completed"


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
