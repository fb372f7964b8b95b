"""What the files of a step cost: counted in system calls and bytes, which no busy machine can change."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onward import Result, RunStatus, StepContext
from onward.engine.files.run_files import RunFiles
from onward.handlers.function import FunctionHandler
from onward.model.events import StepFinished
from onward.receipts.run_directory import Homes
from onward.store.port.leases import Lease
from onward.store.port.log import RunLog, StoredEvent, Write
from onward.store.port.store import Store
from onward.testing.clock import ManualClock
from tests.conformance.faults import Around, FaultyStore
from tests.world import Process, World, in_memory, line, until

OPENS_MAX, SYNCS_MAX = 6.5, 2
LEASE_S = 30.0
OPENING = {"open", "os.listdir", "os.scandir"}
CHANGING = {"os.mkdir", "os.rename", "os.link", "os.remove"}


@pytest.fixture
async def leased() -> AsyncIterator[World]:
    """Owners are alive until the time of their lease is over."""
    async with in_memory(LEASE_S) as world:
        yield world


@dataclass
class Calls:
    """How often the interpreter was asked to open or to sync, since the count began.

    `by_loop` is what the event loop's own thread asked for, changes of directories too.
    """

    paths: list[str] = field(default_factory=list)
    syncs: list[int] = field(default_factory=list)
    by_loop: list[str] = field(default_factory=list)


_counting: list[Calls] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _counting or event not in OPENING | CHANGING:
        return
    asked = f"{event} {arguments[0]}"
    if event in OPENING:
        _counting[-1].paths.append(asked)
    if threading.current_thread() is threading.main_thread():
        _counting[-1].by_loop.append(asked)


@pytest.fixture(scope="session")
def audited() -> None:
    """A hook cannot be removed: one for all tests, which does nothing while no test counts."""
    sys.addaudithook(_audit)


def in_full(count: int, more: str = "") -> str:
    names = [f"n{number}" for number in range(count)]
    return line(*names, **dict.fromkeys(names, f"files=full{more}"))


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


async def calls_of(
    world: World, root: Path, steps: int, monkeypatch: pytest.MonkeyPatch, more: str = ""
) -> Calls:
    # No time passes, so that how often the checkpoint is written does not depend on how busy the machine is.
    process = await world.process(
        clock=ManualClock(autojump=False),
        files=lambda store: RunFiles(str(root), store.identity, warn=pytest.fail),
    )
    calls = Calls()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", calls.syncs.append)
        _counting.append(calls)
        try:
            run = await process.start(in_full(steps, more), f"run-{steps}")
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


async def test_the_event_loop_leaves_the_disk_to_others_unless_a_step_uses_its_directory(
    memory: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, audited: None
) -> None:
    """Neither for the step nor for the run as a whole; all files are there when the run has ended."""
    await calls_of(memory, tmp_path, 1, monkeypatch, ", type=work")  # modules are imported once
    calls = await calls_of(memory, tmp_path, 3, monkeypatch, ", type=work")
    assert calls.by_loop == []
    there = {path.name for path in (tmp_path / "run-3").rglob("*") if path.is_file()}
    assert there >= {"manifest.json", "checkpoint.json", "n2-work.json", "status.json"}
    assert sorted(path.parent.parent.name for path in (tmp_path / "run-3").glob("*/1/status.json")) == [
        "n0",
        "n1",
        "n2",
    ]


async def test_the_files_of_the_steps_before_are_there_when_a_step_knows_its_directory(
    memory: World, tmp_path: Path
) -> None:
    found: list[list[str]] = []

    async def answer(step: StepContext) -> str:
        return "said"

    async def look(step: StepContext) -> None:
        found.append(sorted(os.listdir(f"{step.run_directory}/a/1")))

    handlers = {"work": FunctionHandler(answer), "look": FunctionHandler(look)}
    process = await memory.process(
        handlers=handlers, files=lambda store: RunFiles(str(tmp_path), store.identity, warn=pytest.fail)
    )
    run = await process.start(line("a", "b", a="type=work, files=full", b="type=look, files=full"))
    assert run.status is RunStatus.COMPLETED
    assert found == [["response.md", "status.json"]]


async def test_the_files_of_a_step_do_not_wait_for_the_end_of_the_next(memory: World, tmp_path: Path) -> None:
    async def look(step: StepContext) -> None:
        if step.node.id == "b":
            await until((tmp_path / "run" / "a" / "1" / "status.json").exists)

    process = await memory.process(
        handlers={"work": FunctionHandler(look)},
        files=lambda store: RunFiles(str(tmp_path), store.identity, warn=pytest.fail),
    )
    run = await process.start(line("a", "b", a="type=work, files=full", b="type=work, files=full"))
    assert run.status is RunStatus.COMPLETED


async def test_files_that_wait_are_not_written_when_the_run_may_be_anothers(
    memory: World, tmp_path: Path
) -> None:
    process = await memory.process()
    await process.start(line("a", a="shape=hexagon"))
    run = (await process.load()).run
    for is_ours in (False, True):
        files = RunFiles(str(tmp_path), process.store.identity, warn=pytest.fail)
        files.register(run, "a#1", ("a", "1"))
        files.settled(run.id, "a#1", {}, response="said")
        await files.close(run, is_ours=is_ours)
        assert (tmp_path / "run").exists() is is_ours
        assert not files.is_on_disk(run.id)


async def test_the_files_of_a_new_run_are_written_without_reading_its_log(
    memory: World, tmp_path: Path
) -> None:
    """The steps before the first with a directory are known to the process that started the run."""
    reads: list[str] = []

    class Counting(Around[RunLog]):
        async def read(self, run_id: str, *, after: int, limit: int) -> Sequence[StoredEvent]:
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


def counting(root: Path, written: list[tuple[str, int]]) -> Callable[[Store], RunFiles]:
    class Counting(Homes):
        """Notes the name of each file that is written, and how many bytes it has."""

        __slots__ = ()

        def write(self, parts: Any, name: str, content: bytes, **how: Any) -> bool:
            written.append((name, len(content)))
            return Homes.write(self, parts, name, content, **how)

    def files(store: Store) -> RunFiles:
        made = RunFiles(str(root), store.identity, warn=pytest.fail)
        made.folder = Counting(made.folder.root, made.folder.identity, held=made.folder.held)
        return made

    return files


async def bytes_a_step(world: World, root: Path, visits: int) -> float:
    written: list[tuple[str, int]] = []
    process = await world.process(
        {"a": [looping(visits)]}, clock=ManualClock(autojump=False), files=counting(root, written)
    )
    assert (await process.start(loop(visits), f"run-{visits}")).status is RunStatus.COMPLETED
    return sum(size for _, size in written) / visits


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


@dataclass
class HangingDisk:
    """Takes its time with the files below a directory of this name, until the test lets it end."""

    name: str
    is_hanging: threading.Event = field(default_factory=threading.Event)
    may_end: threading.Event = field(default_factory=threading.Event)
    sync: Callable[[int], None] = os.fsync

    def __call__(self, file: int) -> None:
        if f"/{self.name}/" in os.readlink(f"/proc/self/fd/{file}"):
            self.is_hanging.set()
            assert self.may_end.wait(20), "something waited for this sync that should not"
        self.sync(file)


async def test_steps_of_different_runs_do_not_wait_for_each_others_syncs(
    memory: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run's files are on a disk that hangs; the other's steps are committed meanwhile."""
    disk = HangingDisk("slow")
    monkeypatch.setattr(os, "fsync", disk)
    process = await memory.process(
        files=lambda store: RunFiles(str(tmp_path), store.identity, warn=pytest.fail)
    )
    slow = asyncio.create_task(process.start(line("a"), "slow"))
    await until(disk.is_hanging.is_set)
    try:
        assert (await process.start(line("a", "b"), "quick")).status is RunStatus.COMPLETED
    finally:
        disk.may_end.set()
    assert (await slow).status is RunStatus.COMPLETED


async def test_the_commit_does_not_wait_for_the_disk_but_all_that_follows_does(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S1-3: a committed step has its files. Until the disk has them, no one is told of the step, and the
    next does not begin."""
    disk, told, found = HangingDisk("run"), list[str](), list[bool]()
    monkeypatch.setattr(os, "fsync", disk)

    class Looking(Around[RunLog]):
        async def append(self, write: Write, lease: Lease) -> None:
            names = ("receipts/a-codergen.json", "handoffs/a-codergen.json")
            found.append(all((tmp_path / "run" / "line" / name).exists() for name in names))
            await self.part.append(write, lease)

    process = await world.process(
        wrap=partial(FaultyStore, log=Looking),
        observe=lambda run, events: told.extend(e.step for e in events if isinstance(e, StepFinished)),
        files=lambda store: RunFiles(str(tmp_path), store.identity, warn=pytest.fail),
    )
    running = asyncio.create_task(process.start(line("a", "b")))
    await until(disk.is_hanging.is_set)
    try:
        await process.until_completed("a#1")
        assert found == [True], "both files have their names when the step is committed"
        assert world.ledger.steps == ["a#1"]
        assert told == ["start#1"]
    finally:
        disk.may_end.set()
    assert (await running).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1"]
    assert told == ["start#1", "a#1", "b#1", "exit#1"]


async def test_an_artifact_is_on_the_disk_before_its_step_is_committed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S1-3: a resume writes receipts again that a power failure took, but no artifacts."""
    disk = HangingDisk("artifacts")
    monkeypatch.setattr(os, "fsync", disk)

    async def store(step: StepContext) -> Result:
        step.artifacts.store("report", "Report", b"content")
        return Result.success()

    process = await world.process(
        {"a": [store]}, files=lambda made: RunFiles(str(tmp_path), made.identity, warn=pytest.fail)
    )
    running = asyncio.create_task(process.start(line("a", "b")))
    await until(disk.is_hanging.is_set)
    try:
        for _ in range(100):
            await asyncio.sleep(0)
        assert await process.completed() == ["start#1"]
    finally:
        disk.may_end.set()
    assert (await running).status is RunStatus.COMPLETED


async def test_a_defect_in_writing_files_ends_the_run_before_the_commit(
    memory: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defect(*arguments: object, **named: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("onward.engine.files.receipts.put", defect)
    process = await memory.process(
        files=lambda store: RunFiles(str(tmp_path), store.identity, warn=pytest.fail)
    )
    with pytest.raises(ZeroDivisionError):
        await process.start(line("a"))
    assert await process.completed() == ["start#1"]


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


def checkpoints(written: Sequence[tuple[str, int]]) -> int:
    """How often one was written."""
    return sum(name == "checkpoint.json" for name, _ in written)


def completed(root: Path) -> int:
    """How many steps the checkpoint has."""
    is_there = (root / "run" / "checkpoint.json").exists()
    return len(checkpoint(root)["completed_nodes"]) if is_there else 0


def checkpoint(root: Path) -> Any:
    return json.loads((root / "run" / "checkpoint.json").read_bytes())


async def looked_at(
    memory: World,
    visits: int,
    look: Callable[[Process, int], Awaitable[None]],
    files: Callable[[Store], RunFiles],
) -> None:
    """Go around a loop, and look at the files at the beginning of every visit."""
    last = looping(visits)

    async def visit(step: StepContext) -> Result:
        await look(process, int(step.step.partition("#")[2]))
        result: Result = await last(step)
        return result

    process = await memory.process({"a": [visit]}, clock=ManualClock(autojump=False), files=files)
    assert (await process.start(loop(visits))).status is RunStatus.COMPLETED


@pytest.mark.usefixtures("without_syncs")
async def test_a_checkpoint_is_written_a_second_after_a_step_and_when_the_run_stops(
    memory: World, tmp_path: Path
) -> None:
    """However long the next step takes, and however long the run is: quick steps share one."""
    written: list[tuple[str, int]] = []

    async def look(process: Process, visit: int) -> None:
        if visit % 40 == 0:
            process.clock.advance(1.0)
            await until(lambda: completed(tmp_path) == visit)  # the start and all visits before
            assert checkpoints(written) == visit // 40

    await looked_at(memory, 120, look, counting(tmp_path, written))
    assert checkpoints(written) == 4, "and the last one when the run stopped"
    assert checkpoint(tmp_path)["completed_nodes"] == ["start", *["a"] * 120, "exit"]


@pytest.mark.usefixtures("without_syncs")
async def test_a_process_that_may_have_lost_its_run_does_not_write_the_checkpoint(
    leased: World, tmp_path: Path
) -> None:
    """Another may have written a newer one by then."""
    late: list[int] = []

    async def look(process: Process, visit: int) -> None:
        if visit == 3 and not late:
            late.append(visit)
            process.clock.advance(LEASE_S * 0.85)

    written: list[tuple[str, int]] = []
    await looked_at(leased, 4, look, counting(tmp_path, written))
    assert late == [3]
    assert checkpoints(written) == 1, "only the one at the end: it still was the holder"
    assert checkpoint(tmp_path)["completed_nodes"] == ["start", *["a"] * 4, "exit"]


@pytest.mark.usefixtures("without_syncs")
async def test_a_run_of_quick_steps_replaces_no_file(memory: World, tmp_path: Path) -> None:
    """A replaced file is a deleted one, and those make a file system slow."""
    written: list[tuple[str, int]] = []
    process = await memory.process(
        {"a": [looping(3)]}, clock=ManualClock(autojump=False), files=counting(tmp_path, written)
    )
    assert (await process.start(loop(3))).status is RunStatus.COMPLETED
    there = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(written) == len(there) - 1, "every file was written once; the manifest in another way"
