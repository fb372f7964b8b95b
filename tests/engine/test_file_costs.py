"""What the files of a step cost: counted in system calls and bytes, which no busy machine can change."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onward import Result, RunStatus, StepContext
from onward.engine.files.run_files import RunFiles
from onward.handlers.function import FunctionHandler
from onward.receipts.homes import Homes
from onward.store.port.log import RunLog
from onward.store.port.record import Record
from onward.store.port.store import Store
from onward.testing.clock import ManualClock
from onward.testing.faults import Around, FaultyStore
from tests.world import Process, World, in_memory, line, until

OPENS_MAX, SYNCS_MAX = 6.5, 2
LEASE_S = 30.0
OPENING = {"open", "os.listdir", "os.scandir"}


@pytest.fixture
async def leased() -> AsyncIterator[World]:
    """Owners are alive until the time of their lease is over."""
    async with in_memory(LEASE_S) as world:
        yield world


@dataclass
class Calls:
    """How often the interpreter was asked to open or to sync, since the count began."""

    paths: list[str] = field(default_factory=list)
    syncs: list[int] = field(default_factory=list)


_counting: list[Calls] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _counting and event in OPENING:
        _counting[-1].paths.append(f"{event} {arguments[0]}")


@pytest.fixture(scope="session")
def audited() -> None:
    """A hook cannot be removed: one for all tests, which does nothing while no test counts."""
    sys.addaudithook(_audit)


def agents(count: int) -> str:
    return line(*(f"n{number}" for number in range(count)), **{f"n{n}": "files=full" for n in range(count)})


def loop(visits: int) -> str:
    """One agent, visited again and again."""
    return (
        f"digraph line {{ max_visits={visits + 10}; max_steps={3 * visits + 100}; start [shape=Mdiamond]; "
        'exit [shape=Msquare]; a [prompt="p"]; start -> a; a -> a [label="again"]; a -> exit [label="on"] }'
    )


def looping(visits: int) -> Any:
    async def answer(step: StepContext) -> Result:
        return Result(response="said", preferred_label="on" if step.step == f"a#{visits}" else "again")

    return answer


async def calls_of(world: World, root: Path, steps: int, monkeypatch: pytest.MonkeyPatch) -> Calls:
    process = await world.process(files=lambda store: RunFiles(str(root), store.identity, warn=pytest.fail))
    calls = Calls()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", calls.syncs.append)
        _counting.append(calls)
        try:
            run = await process.start(agents(steps), f"run-{steps}")
        finally:
            _counting.pop()
    assert run.status is RunStatus.COMPLETED
    return calls


async def test_a_step_with_files_costs_two_syncs_and_hardly_more_opens_than_it_has_files(
    memory: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, audited: None
) -> None:
    """What one step more costs: the difference between a run of forty steps and one of ten.

    It has a directory and five files.
    """
    await calls_of(memory, tmp_path, 5, monkeypatch)  # modules are imported once
    few = await calls_of(memory, tmp_path, 10, monkeypatch)
    many = await calls_of(memory, tmp_path, 40, monkeypatch)
    opens = (len(many.paths) - len(few.paths)) / 30
    told = "\n".join(f"{count}: {path}" for path, count in Counter(many.paths).most_common(20))
    assert opens <= OPENS_MAX, f"{opens} opens a step, of {len(many.paths)}:\n{told}"
    assert (len(many.syncs) - len(few.syncs)) / 30 <= SYNCS_MAX


async def test_the_files_of_a_new_run_are_written_without_reading_its_log(
    memory: World, tmp_path: Path
) -> None:
    """The steps before the first with a directory are known to the process that started the run."""
    reads: list[str] = []

    class Counting(Around[RunLog]):
        async def read(self, run_id: str, *, after: int, limit: int) -> Sequence[Record]:
            reads.append(run_id)
            return await self.part.read(run_id, after=after, limit=limit)

    process = await memory.process(
        wrap=partial(FaultyStore, log=Counting),
        files=lambda store: RunFiles(str(tmp_path), store.identity, warn=pytest.fail),
    )
    assert (await process.start(line("a", "b"))).status is RunStatus.COMPLETED
    assert reads == []
    receipts = sorted(path.name for path in (tmp_path / "run" / "line" / "receipts").iterdir())
    assert receipts == ["a-codergen.json", "b-codergen.json", "exit-exit.json", "start-start.json"]
    assert checkpoint(tmp_path)["completed_nodes"] == ["start", "a", "b", "exit"]


def counting(root: Path, written: list[int]) -> Callable[[Store], RunFiles]:
    class Counting(Homes):
        """Notes how many bytes each file has that is written."""

        __slots__ = ()

        def write(self, parts: Any, name: str, content: bytes, **how: Any) -> bool:
            written.append(len(content))
            return Homes.write(self, parts, name, content, **how)

    def files(store: Store) -> RunFiles:
        made = RunFiles(str(root), store.identity, warn=pytest.fail)
        made.folder = Counting(made.folder.root, made.folder.identity, held=made.folder.held)
        return made

    return files


async def bytes_a_step(world: World, root: Path, visits: int) -> float:
    written: list[int] = []
    process = await world.process(
        {"a": [looping(visits)]}, clock=ManualClock(autojump=False), files=counting(root, written)
    )
    assert (await process.start(loop(visits), f"run-{visits}")).status is RunStatus.COMPLETED
    return sum(written) / visits


@pytest.fixture
def without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is counted here are bytes and lines."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.mark.usefixtures("without_syncs")
async def test_what_a_step_writes_does_not_grow_with_the_length_of_its_run(
    memory: World, tmp_path: Path
) -> None:
    short, long = await bytes_a_step(memory, tmp_path, 60), await bytes_a_step(memory, tmp_path, 240)
    assert long <= 1.25 * short, f"{long:,.0f} bytes a step of a long run, {short:,.0f} of a short one"


async def test_a_function_that_blocks_its_thread_does_not_hold_up_the_files_of_other_runs(
    memory: World, tmp_path: Path
) -> None:
    """Handlers that are plain functions have threads; the syncs of receipts have others."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    is_blocking, may_end = threading.Event(), threading.Event()

    def block(step: StepContext) -> None:
        is_blocking.set()
        assert may_end.wait(20), "the other run waited for this function"

    async def quick(step: StepContext) -> str:
        return "done"

    handlers = {"codergen": FunctionHandler(quick), "work": FunctionHandler(block)}
    process = await memory.process(
        handlers=handlers, files=lambda store: RunFiles(str(tmp_path), store.identity, warn=pytest.fail)
    )
    blocked = asyncio.create_task(process.start(line("a", a="type=work"), "blocked"))
    await until(is_blocking.is_set)
    try:
        run = await asyncio.wait_for(process.start(line("a"), "quick"), 10)
        assert run.status is RunStatus.COMPLETED
    finally:
        may_end.set()
    assert (await blocked).status is RunStatus.COMPLETED


async def test_steps_of_different_runs_do_not_wait_for_each_others_syncs(
    memory: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run's files are on a disk that hangs; the other's steps are committed meanwhile."""
    is_hanging, may_end, sync = threading.Event(), threading.Event(), os.fsync

    def hang(file: int) -> None:
        if "/slow/" in os.readlink(f"/proc/self/fd/{file}"):
            is_hanging.set()
            assert may_end.wait(20), "the other run waited for this sync"
        sync(file)

    monkeypatch.setattr(os, "fsync", hang)
    process = await memory.process(
        files=lambda store: RunFiles(str(tmp_path), store.identity, warn=pytest.fail)
    )
    slow = asyncio.create_task(process.start(line("a"), "slow"))
    await until(is_hanging.is_set)
    try:
        assert (await process.start(line("a", "b"), "quick")).status is RunStatus.COMPLETED
        assert "a#1" not in await process.completed("slow"), "and its own step is committed after its sync"
    finally:
        may_end.set()
    assert (await slow).status is RunStatus.COMPLETED


async def test_a_disk_that_cannot_sync_costs_a_warning_and_no_step(
    memory: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it leave anything open."""

    def fail(file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    warnings: list[str] = []
    process = await memory.process(
        files=lambda store: RunFiles(str(tmp_path), store.identity, warn=warnings.append)
    )
    assert (await process.start(line("a", "b"), "warm")).status is RunStatus.COMPLETED
    before = len(os.listdir("/proc/self/fd"))
    assert (await process.start(line("a", "b"))).status is RunStatus.COMPLETED
    assert len(os.listdir("/proc/self/fd")) == before
    assert ["Input/output error" in warning for warning in warnings] == [True, True], "one for each run"
    assert await process.completed() == ["start#1", "a#1", "b#1", "exit#1"]


async def test_a_run_that_has_stopped_holds_nothing_open(memory: World, tmp_path: Path) -> None:
    made: list[RunFiles] = []

    def files(store: Store) -> RunFiles:
        made.append(RunFiles(str(tmp_path), store.identity, warn=pytest.fail))
        return made[0]

    process = await memory.process(files=files)
    for number in range(3):
        await process.start(line("a", "b"), f"run-{number}")
        assert made[0].folder.held is not None
        assert len(made[0].folder.held) == 0


def checkpoint(root: Path) -> Any:
    return json.loads((root / "run" / "checkpoint.json").read_bytes())


async def looked_at(memory: World, root: Path, visits: int, look: Callable[[Process, int], None]) -> None:
    """Go around a loop, and look at the files at the beginning of every visit."""
    last = looping(visits)

    async def visit(step: StepContext) -> Result:
        look(process, int(step.step.partition("#")[2]))
        result: Result = await last(step)
        return result

    process = await memory.process(
        {"a": [visit]},
        clock=ManualClock(autojump=False),
        files=lambda store: RunFiles(str(root), store.identity, warn=pytest.fail),
    )
    assert (await process.start(loop(visits))).status is RunStatus.COMPLETED


@pytest.mark.usefixtures("without_syncs")
async def test_a_checkpoint_is_written_a_second_after_a_step_and_when_the_run_stops(
    memory: World, tmp_path: Path
) -> None:
    """However long the next step takes, and however long the run is: quick steps share one."""
    found: list[tuple[int, int]] = []

    def look(process: Process, visit: int) -> None:
        if visit % 40 == 0:
            process.clock.advance(1.0)
            found.append((visit, len(checkpoint(tmp_path)["completed_nodes"])))
        elif visit > 40:
            assert len(checkpoint(tmp_path)["completed_nodes"]) == found[-1][1]

    await looked_at(memory, tmp_path, 120, look)
    assert found == [(40, 40), (80, 80), (120, 120)], "the start and all visits before"
    assert checkpoint(tmp_path)["completed_nodes"] == ["start", *["a"] * 120, "exit"]


@pytest.mark.usefixtures("without_syncs")
async def test_a_process_that_may_have_lost_its_run_does_not_write_the_checkpoint(
    leased: World, tmp_path: Path
) -> None:
    """Another may have written a newer one by then."""
    seen: list[bool] = []

    def look(process: Process, visit: int) -> None:
        if visit == 3 and not seen:
            process.clock.advance(LEASE_S * 0.85)
            seen.append((tmp_path / "run" / "checkpoint.json").exists())

    await looked_at(leased, tmp_path, 4, look)
    assert seen == [False]
    assert checkpoint(tmp_path)["completed_nodes"] == ["start", *["a"] * 4, "exit"], "it still was the holder"


@pytest.mark.usefixtures("without_syncs")
async def test_a_run_of_quick_steps_replaces_no_file(memory: World, tmp_path: Path) -> None:
    """A replaced file is a deleted one, and those make a file system slow."""
    written: list[int] = []
    process = await memory.process(
        {"a": [looping(3)]}, clock=ManualClock(autojump=False), files=counting(tmp_path, written)
    )
    assert (await process.start(loop(3))).status is RunStatus.COMPLETED
    there = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(written) == len(there) - 1, "every file was written once; the manifest in another way"
