"""Receipts and handoffs: what every step leaves, when, and what becomes of one that was never committed."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onward import Result, RunStatus, StepContext
from onward.engine.control.requests import ForkRequest
from onward.engine.files.receipts import committed, rebuild
from onward.engine.files.run_files import RunFiles
from onward.engine.stop import StopSwitch
from onward.errors import StoreError
from onward.model.events import StepFinished
from onward.receipts.audit import ReceiptsFound, ResumePoint, find_resume_point, read_receipts
from onward.receipts.folder import Folder
from onward.receipts.receipt import Receipt, hash_of, read_handoff, read_receipt
from onward.store.port.store import Store
from tests.conformance.faults import WRITES, Died, Fault, FaultyStore
from tests.conformance.handlers import Doorway
from tests.world import Process, World, line

BUSY = """
digraph busy {
  start [shape=Mdiamond]; exit [shape=Msquare]
  plan [prompt="p", agent="planner", llm_model="m-1", max_retries=2]
  loop [prompt="l"]
  fan [shape=component]; left [prompt="l"]; right [type=work]; join [shape=tripleoctagon]
  slow [prompt="s", timeout="5s"]; rescue [prompt="r"]; ask [shape=hexagon, label="Ship?"]
  ship [prompt="s"]; drop [prompt="d"]
  start -> plan -> loop
  loop -> loop [label="again"]
  loop -> fan [label="on"]
  fan -> left -> join
  fan -> right -> join
  join -> slow
  slow -> rescue [condition="outcome=fail"]
  slow -> exit [condition="outcome=success"]
  rescue -> ask
  ask -> ship [label="[Y] Yes"]
  ask -> drop [label="[N] No"]
  ship -> exit
  drop -> exit
}
"""
SCRIPT = {
    "plan": [Result.retry("not yet"), Result(response="planned", notes="a plan", context_updates={"k": 1})],
    "loop": [Result(preferred_label="again"), Result(preferred_label="on")],
    "slow": [Result.fail("timed out after 5 s", retryable=False)],
}


def kept_at(root: Path) -> Callable[[Store], RunFiles]:
    return lambda store: RunFiles(str(root), store.identity, warn=pytest.fail)


def pages(root: Path, flow: str, kind: str = "receipts") -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted((root / "run" / flow / kind).iterdir())}


def receipts(root: Path, flow: str = "line") -> dict[str, Receipt]:
    """By step, each read by the closed schema."""
    found = [read_receipt(content, name) for name, content in pages(root, flow).items()]
    return {receipt.step_id: receipt for receipt in found}


async def by_the_log(process: Process, root: Path, flow: str = "line") -> ReceiptsFound:
    run = (await process.load()).run
    expected = await committed(process.store.log, process.engine.sources, run)
    return read_receipts(Folder(str(root)), ("run",), flow, expected)


async def again(process: Process, root: Path) -> None:
    run = (await process.load()).run
    await rebuild(process.store, process.engine.sources, run, Folder(str(root)), ("run",))


async def busy(world: World, root: Path) -> Process:
    """A run with retries, a loop, branches, a failure that leads on, and a gate."""
    process = await world.process(SCRIPT, files=kept_at(root))
    assert (await process.start(BUSY)).status is RunStatus.WAITING
    await process.engine.answer("run", "Y", by="me", text="go")
    assert (await process.load()).run.status is RunStatus.COMPLETED
    return process


async def test_every_step_leaves_a_valid_receipt_and_handoff(world: World, tmp_path: Path) -> None:
    """S1-3, S1-4: whatever kind of step it was, and however it ended."""
    process = await busy(world, tmp_path)
    found = receipts(tmp_path, "busy")
    assert sorted(found) == sorted(await process.completed())
    checked = await by_the_log(process, tmp_path, "busy")
    assert (checked.findings, len(checked.trusted)) == ([], len(found))
    for name, content in pages(tmp_path, "busy", "handoffs").items():
        handoff = read_handoff(content, name)
        assert handoff.receipt_hash == hash_of(pages(tmp_path, "busy")[name])
    assert {step: receipt.status for step, receipt in found.items() if receipt.status != "succeeded"} == {
        "slow#1": "timed_out"
    }
    assert {receipt.mode for receipt in found.values()} == {"sdk", "control"}


async def test_a_receipt_says_who_did_what_how_often_and_where_it_leads(world: World, tmp_path: Path) -> None:
    await busy(world, tmp_path)
    plan = receipts(tmp_path, "busy")["plan#1"]
    assert (plan.agent_key, plan.engine, plan.model, plan.run_id) == ("planner", "codergen", "m-1", "run")
    assert [(tried.attempt, tried.status, tried.reason) for tried in plan.attempts] == [
        (1, "failed", "not yet"),
        (2, "succeeded", ""),
    ]
    assert plan.routing is not None
    assert (plan.previous, plan.routing.to, plan.tokens) == ("start#1", "loop", None)
    assert plan.transcript_path == "plan/1/attempt-2/response.md"
    assert (tmp_path / "run" / plan.transcript_path).read_text() == "planned"
    assert plan.handoff_envelope_path == "busy/handoffs/plan-planner.json"
    handoff = json.loads((tmp_path / "run" / plan.handoff_envelope_path).read_bytes())
    assert handoff["summary"] == "a plan"
    assert handoff["verification"] == "UNVERIFIED", "an agent's word is no evidence"
    assert handoff["context_changes"] == ["k"]
    assert handoff["concerns"] == [{"severity": "low", "text": "attempt 1 failed: not yet"}]
    asked = json.loads((tmp_path / "run/busy/handoffs/ask-wait.human.json").read_bytes())
    assert asked["decisions_made"] == ["me chose '[Y] Yes': go"]
    slow = json.loads((tmp_path / "run/busy/handoffs/slow-codergen.json").read_bytes())
    assert (slow["verification"], slow["routing_signal"]["to"]) == ("BLOCKED", "rescue")


async def test_receipts_made_from_the_log_are_those_that_were_written(world: World, tmp_path: Path) -> None:
    process = await busy(world, tmp_path / "live")
    await again(process, tmp_path / "again")
    for kind in ("receipts", "handoffs"):
        assert pages(tmp_path / "again", "busy", kind) == pages(tmp_path / "live", "busy", kind)


async def test_a_run_without_a_directory_touches_no_disk_until_it_is_asked(
    world: World, tmp_path: Path
) -> None:
    process = await world.process(files=kept_at(tmp_path / "runs"))
    await process.start(line("a", "b", a="type=work", b="type=work"))
    assert not (tmp_path / "runs").exists()
    assert process.store.calls == ["log.create", "log.append", "log.append"], (
        "and no call of the store is made for it"
    )
    await again(process, tmp_path / "runs")
    assert list(receipts(tmp_path / "runs")) == ["a#1", "b#1", "exit#1", "start#1"]


async def test_what_is_off_leaves_nothing(world: World, tmp_path: Path) -> None:
    process = await world.process(files=kept_at(tmp_path))
    await process.start(line("a", "b", b="files=off"))
    assert "b#1" not in receipts(tmp_path)
    assert "a#1" in receipts(tmp_path)


def below(path: Path) -> list[str]:
    return sorted(str(found.relative_to(path)) for found in path.rglob("*") if found.is_file())


async def test_hostile_names_stay_inside_the_run_and_meet_nothing_else_there(
    world: World, tmp_path: Path
) -> None:
    """A flow called like the run's artifacts, and an agent called like a way out."""

    async def store(step: StepContext) -> Result:
        step.artifacts.store("receipts", "Receipts", b"content")
        return Result.success()

    process = await world.process({"a": [store]}, files=kept_at(tmp_path / "deep" / "runs"))
    source = line("a", a='agent="../../../evil"').replace("digraph line", "digraph artifacts")
    assert (await process.start(source)).status is RunStatus.COMPLETED
    made = below(tmp_path / "deep")
    assert all(path.startswith("runs/run/") for path in made)
    assert "runs/run/artifacts/receipts" in made
    assert "runs/run/artifacts-/receipts/a-%2E.%2F..%2F..%2Fevil.json" in made


async def test_a_step_that_failed_for_good_has_a_receipt_and_no_handoff(world: World, tmp_path: Path) -> None:
    """The routing decision was never made; made again, the step has another receipt in its place."""
    process = await world.process({"b": [Result.fail("no"), Result.success()]}, files=kept_at(tmp_path))
    assert (await process.start(line("a", "b"))).status is RunStatus.FAILED
    failed = receipts(tmp_path)["b#1"]
    assert (failed.status, failed.error, failed.routing, failed.is_finished) == ("failed", "no", None, False)
    assert "b-codergen.json" not in pages(tmp_path, "line", "handoffs")
    assert (await process.resume()).status is RunStatus.COMPLETED
    made = receipts(tmp_path)["b#1"]
    assert (made.status, [tried.status for tried in made.attempts]) == ("succeeded", ["failed", "succeeded"])
    assert (await by_the_log(process, tmp_path)).findings == []


async def test_a_step_that_was_interrupted_has_a_receipt_that_says_so(world: World, tmp_path: Path) -> None:
    """S1-18."""
    doorway, stop = Doorway(), StopSwitch()
    process = await world.process({"b": [doorway]}, files=kept_at(tmp_path))
    running = asyncio.ensure_future(process.start(line("a", "b"), stop=stop))
    await doorway.entered()
    stop.request("signal", now=True)
    assert (await running).status is RunStatus.PAUSED
    assert receipts(tmp_path)["b#1"].status == "interrupted"
    assert point(tmp_path, process, line("a", "b")).step == "b#1"


async def test_a_step_that_a_person_skipped_has_a_receipt_when_the_run_goes_on(
    world: World, tmp_path: Path
) -> None:
    process = await world.process({"b": [Result.fail("no")]}, files=kept_at(tmp_path))
    await process.start(line("a", "b", "c"))
    assert (await process.resume(action="skip")).status is RunStatus.COMPLETED
    assert receipts(tmp_path)["b#1"].status == "skipped"
    assert (await by_the_log(process, tmp_path)).findings == []


async def test_a_rejected_gate_has_a_receipt(world: World, tmp_path: Path) -> None:
    process = await world.process(files=kept_at(tmp_path))
    source = line("a", "b", b='shape=hexagon, human.type="yes_no"')
    assert (await process.start(source)).status is RunStatus.WAITING
    run = (await process.engine.answer("run", "n", by="me")).run
    assert run.status is RunStatus.FAILED
    gate = receipts(tmp_path)["b#1"]
    assert (gate.status, gate.agent_key) == ("failed", "wait.human")


# -- dying between the receipt and the commit ----------------------------------------------------------


def counting_appends(store: Store) -> FaultyStore:
    return FaultyStore(store, counted=WRITES)


async def test_a_receipt_without_a_commit_is_not_trusted_and_is_replaced(
    world: World, tmp_path: Path
) -> None:
    """The process dies when both files are on the disk and the step is not in the log."""
    answers = iter(("first", "second"))

    async def answer(step: StepContext) -> Result:
        return Result(notes=next(answers), artifacts={})

    dying = await world.process({"a": [answer]}, files=kept_at(tmp_path), wrap=counting_appends)
    dying.store.fail(Fault.DIE_BEFORE, within=2)  # the append that ends `a`
    with pytest.raises(Died):
        await dying.start(line("a", "b"))
    await dying.die()
    left = receipts(tmp_path)["a#1"]
    assert left.status == "succeeded"
    assert json.loads((tmp_path / "run/line/handoffs/a-codergen.json").read_bytes())["summary"] == "first"
    second = await world.process({"a": [answer]}, files=kept_at(tmp_path))
    found = await by_the_log(second, tmp_path)
    assert [(finding.kind, finding.file) for finding in found.findings] == [("partial", "a-codergen.json")]
    assert await second.completed() == ["start#1"]
    assert point(tmp_path, second, line("a", "b")).step == "b#1", "files alone can be one append ahead"
    expected = await committed(second.store.log, second.engine.sources, (await second.load()).run)
    graph = second.pipeline(line("a", "b")).graph
    told = find_resume_point(tmp_path / "run/line/receipts", graph, committed=expected)
    assert (told.step, [finding.kind for finding in told.findings]) == ("a#1", ["partial"])
    assert (await second.resume()).status is RunStatus.COMPLETED
    assert json.loads((tmp_path / "run/line/handoffs/a-codergen.json").read_bytes())["summary"] == "second"
    assert [tried.status for tried in receipts(tmp_path)["a#1"].attempts] == ["lost", "succeeded"]
    assert (await by_the_log(second, tmp_path)).findings == []


async def test_dying_at_every_append_leaves_nothing_that_a_resume_does_not_put_right(
    world: World, tmp_path: Path
) -> None:
    """Before and after each write: when the run is done, every receipt is what the log says."""
    source = BUSY.replace('ask [shape=hexagon, label="Ship?"]', 'ask [prompt="a"]')
    calm = await world.process(SCRIPT, files=kept_at(tmp_path / "calm"), wrap=counting_appends)
    assert (await calm.start(source, "calm")).status is RunStatus.COMPLETED
    for at in range(1, len(calm.store.calls) + 1):
        for fault in (Fault.DIE_BEFORE, Fault.DIE_AFTER):
            run_id, root = f"r{at}-{fault.name[4:].lower()}", tmp_path / "runs"
            dying = await world.process(SCRIPT, files=kept_at(root), wrap=counting_appends)
            dying.store.fail(fault, within=at)
            try:
                await dying.start(source, run_id)
            except Died:
                await dying.die()
            last = await world.process(SCRIPT, files=kept_at(root))
            if not await last.store.runs.find(run_id):
                continue
            if not (await last.load(run_id)).run.is_final:
                await last.resume(run_id)
            run = (await last.load(run_id)).run
            assert run.status is RunStatus.COMPLETED
            expected = await committed(last.store.log, last.engine.sources, run)
            found = read_receipts(Folder(str(root)), (run_id,), "busy", expected)
            assert [f for f in found.findings if f.kind != "missing"] == []
            await rebuild(last.store, last.engine.sources, run, Folder(str(root)), (run_id,))
            assert read_receipts(Folder(str(root)), (run_id,), "busy", expected).findings == []


async def test_files_that_a_power_failure_took_are_back_before_the_next_step(
    world: World, tmp_path: Path
) -> None:
    """The commit of `a` reached the disk, and its files did not: one is gone, one is empty."""
    receipt, handoff = (tmp_path / "run/line" / name / "a-codergen.json" for name in ("receipts", "handoffs"))
    dying = await world.process({}, files=kept_at(tmp_path), wrap=counting_appends)
    dying.store.fail(Fault.DIE_AFTER, within=2)  # the append that ends `a`
    with pytest.raises(Died):
        await dying.start(line("a", "b"))
    await dying.die()
    written = receipt.read_bytes(), handoff.read_bytes()
    receipt.unlink()
    handoff.write_bytes(b"")
    found: list[tuple[bytes, bytes]] = []

    async def look(step: StepContext) -> Result:
        found.append((receipt.read_bytes(), handoff.read_bytes()))
        return Result.success()

    second = await world.process({"b": [look]}, files=kept_at(tmp_path))
    assert await second.completed() == ["start#1", "a#1"]
    assert (await second.resume()).status is RunStatus.COMPLETED
    assert found == [written]
    assert (await by_the_log(second, tmp_path)).findings == []


async def test_what_was_prepared_for_an_append_that_was_refused_is_never_taken_for_committed(
    world: World, tmp_path: Path
) -> None:
    """The same process goes on, and other events take the places that the refused ones would have had."""

    def refusing(store: Store) -> FaultyStore:
        return FaultyStore(store, error=StoreError("the disk is full; this is a test."), counted=WRITES)

    process = await world.process({}, files=kept_at(tmp_path), wrap=refusing)
    process.store.fail(Fault.REFUSE, within=3)  # the append of three events that ends `b`, and the run
    with pytest.raises(StoreError, match="the disk is full"):
        await process.start(line("a", "b"))
    await process.engine.dropped.settle()  # else the resume may come before the release, or after it
    assert (await process.kinds())[-2:] == ["RunClaimed", "RunInterrupted"], "they have the places"
    assert (await process.resume()).status is RunStatus.COMPLETED
    assert (await by_the_log(process, tmp_path)).findings == []
    assert [tried.status for tried in receipts(tmp_path)["b#1"].attempts] == ["lost", "succeeded"]


@dataclass
class SlowDisk:
    """A disk that takes its time: it says that it is at it, and ends when it may."""

    is_syncing: threading.Event = field(default_factory=threading.Event)
    may_end: threading.Event = field(default_factory=threading.Event)
    sync: Callable[[int], None] = os.fsync

    def __call__(self, file: int) -> None:
        self.is_syncing.set()
        # On the loop's own thread nobody could ever say that this may end.
        assert self.may_end.wait(20), "the event loop stood still"
        self.sync(file)


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    disk = SlowDisk()
    monkeypatch.setattr("onward.receipts.folder.os.fsync", disk)
    return disk


async def test_a_slow_disk_holds_up_its_own_step_and_nothing_else(
    world: World, tmp_path: Path, slow_disk: SlowDisk
) -> None:
    """The event loop continues while a receipt is synced, and the run does not end before that."""
    process = await world.process({}, files=kept_at(tmp_path))
    going = asyncio.create_task(process.start(line("a")))
    await asyncio.to_thread(slow_disk.is_syncing.wait, 20)
    await process.until_completed("a#1")
    assert not going.done()
    slow_disk.may_end.set()
    assert (await going).status is RunStatus.COMPLETED
    assert (await by_the_log(process, tmp_path)).findings == []


async def test_a_write_under_way_is_done_before_its_run_is_given_up(
    world: World, tmp_path: Path, slow_disk: SlowDisk
) -> None:
    """A cancelled run leaves no thread that puts an old receipt over a newer one."""
    process = await world.process({}, files=kept_at(tmp_path))
    going = asyncio.create_task(process.start(line("a")))
    await asyncio.to_thread(slow_disk.is_syncing.wait, 20)
    for _ in range(3):
        going.cancel()
        await asyncio.sleep(0)
    assert not going.done()
    slow_disk.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert sorted(pages(tmp_path, "line")) == ["a-codergen.json", "exit-exit.json", "start-start.json"]
    await process.engine.dropped.settle()  # else the resume may come before the release, or after it
    if (await process.load()).run.status is not RunStatus.COMPLETED:  # it was cancelled before the commit
        await process.resume()
    assert (await by_the_log(process, tmp_path)).findings == []


# -- what files alone tell -----------------------------------------------------------------------------


def point(root: Path, process: Process, source: str, flow: str = "line") -> ResumePoint:
    return find_resume_point(root / "run" / flow / "receipts", process.pipeline(source).graph)


async def test_a_run_directory_alone_tells_what_happened(world: World, tmp_path: Path) -> None:
    """Order and outcomes, without the database and without this program: plain JSON is enough."""
    process = await busy(world, tmp_path)
    log = await process.events()
    expected = [(e.step, e.outcome.status.value) for e in log if isinstance(e, StepFinished)]
    directory = tmp_path / "run"
    manifest = json.loads((directory / "manifest.json").read_bytes())
    found: list[dict[str, Any]] = [
        json.loads(file.read_bytes()) for file in (directory / manifest["name"] / "receipts").glob("*.json")
    ]
    assert {receipt["run_id"] for receipt in found} == {manifest["run_id"]}
    found.sort(key=lambda receipt: receipt["sequence"])
    told = {"success": "succeeded", "fail": "timed_out"}
    assert [(receipt["step_id"], receipt["status"]) for receipt in found] == [
        (step, told[status]) for step, status in expected
    ]
    by_step = {receipt["step_id"]: receipt for receipt in found}
    for receipt in found:
        before = by_step.get(receipt["previous"])
        if before is not None:
            assert before["routing"]["to"] == receipt["node"], "each leads to the one behind it"


async def test_the_resume_point_of_a_run_without_a_way_on_is_not_its_end(
    world: World, tmp_path: Path
) -> None:
    """I38: the receipt says that nothing led on, and the plan has edges there."""
    source = line("a", "b").replace("-> a -> b", '-> a; a -> b [condition="context.flag=on"]; b')
    process = await world.process(files=kept_at(tmp_path))
    assert (await process.start(source)).reason == "no_way_on"
    told = point(tmp_path, process, source)
    assert (told.step, told.action, told.behind) == (None, "stuck", "a#1")
    assert told.reason == "a#1 has finished, and none of its edges could be followed"


async def test_the_resume_point_follows_the_way_taken_through_loops(world: World, tmp_path: Path) -> None:
    """B1-1, B1-2, B1-4: named steps, loops and routes, and a completed run has none."""
    process = await busy(world, tmp_path)
    done = point(tmp_path, process, BUSY, "busy")
    assert (done.step, done.action, done.behind) == (None, "done", "exit#1")
    for gone in ("exit-exit", "ship-codergen", "ask-wait.human"):
        (tmp_path / f"run/busy/receipts/{gone}.json").unlink()
    assert point(tmp_path, process, BUSY, "busy").step == "ask#1"
    (tmp_path / "run/busy/receipts/loop.2-codergen.json").unlink()
    gap = point(tmp_path, process, BUSY, "busy")
    assert (gap.step, gap.action, gap.behind) == ("loop#2", "continue", "loop#1"), "later ones do not count"


async def test_the_resume_point_of_branches_under_way_is_in_the_branches(
    world: World, tmp_path: Path
) -> None:
    process = await busy(world, tmp_path)
    below = tmp_path / "run/busy/receipts"
    kept = {"start-start.json", "plan-planner.json", "loop-codergen.json", "loop.2-codergen.json"}
    for file in below.iterdir():
        if file.name not in {*kept, "fan-1.left+left-codergen.json"}:
            file.unlink()
    told = point(tmp_path, process, BUSY, "busy")
    assert (told.step, told.open) == ("fan#1.right/right#1", ("fan#1.right/right#1",))
    (below / "fan-1.left+left-codergen.json").unlink()
    assert point(tmp_path, process, BUSY, "busy").step == "fan#1"


async def test_without_receipts_a_run_starts_at_its_start(world: World, tmp_path: Path) -> None:
    process = await world.process()
    (tmp_path / "run").mkdir()
    told = point(tmp_path, process, line("a"))
    assert (told.step, told.action) == ("start#1", "start")


async def test_file_times_mean_nothing(world: World, tmp_path: Path) -> None:
    process = await world.process(files=kept_at(tmp_path))
    await process.start(line("a", "b"))
    (tmp_path / "run/line/receipts/exit-exit.json").unlink()
    os.utime(tmp_path / "run/line/receipts/start-start.json", (2**32, 2**32))
    assert point(tmp_path, process, line("a", "b")).step == "exit#1"


def changed(receipt: Receipt, **fields: Any) -> bytes:
    return msgspec.json.encode({**msgspec.to_builtins(receipt), **fields})


@pytest.mark.spoils_receipts
@pytest.mark.parametrize(
    ("kind", "name", "fields"),
    [
        ("foreign", "b-codergen.json", {"run_id": "other"}),
        ("wrong_schema", "b-codergen.json", {"schema_version": 2}),
        ("wrong_schema", "b-codergen.json", {"status": "fine"}),
        ("wrong_schema", "b-codergen.json", {"more": 1}),
        ("wrong_schema", "b-codergen.json", {"duration_ms": -1}),
        ("wrong_schema", "b-codergen.json", {"started_at": "2026-13-99T00:00:00.000000Z"}),
        ("misnamed", "b-codergen.json", {"step_id": "c#1"}),
        ("partial", "b-codergen.json", {"error": "changed by hand"}),
        ("duplicate", "b-other.json", {"agent_key": "other"}),
    ],
)
async def test_what_does_not_fit_is_named_and_not_trusted(
    world: World, tmp_path: Path, kind: str, name: str, fields: dict[str, Any]
) -> None:
    process = await world.process(files=kept_at(tmp_path))
    await process.start(line("a", "b"))
    path = tmp_path / "run/line/receipts" / name
    path.write_bytes(changed(receipts(tmp_path)["b#1"], **fields))
    told = point(tmp_path, process, line("a", "b"))
    assert told.step == "b#1"
    assert kind in {finding.kind for finding in told.findings if finding.file == name}


async def test_the_log_says_how_a_receipt_disagrees_with_it(world: World, tmp_path: Path) -> None:
    process = await world.process({"b": [Result.fail("no"), Result.success()]}, files=kept_at(tmp_path))
    await process.start(line("a", "b"))
    before = pages(tmp_path, "line")["b-codergen.json"]
    await process.resume()
    where = tmp_path / "run/line/receipts"
    a, b = receipts(tmp_path)["a#1"], receipts(tmp_path)["b#1"]
    (where / "b-codergen.json").write_bytes(before)
    (where / "a-codergen.json").write_bytes(changed(a, error="x"))
    (where / "b-twin.json").write_bytes(changed(b, agent_key="twin"))
    (where / "start-start.json").unlink()
    found = {finding.file: finding.kind for finding in (await by_the_log(process, tmp_path)).findings}
    assert found == {
        "b-codergen.json": "stale",
        "a-codergen.json": "altered",
        "b-twin.json": "duplicate",
        "start-start.json": "missing",
    }
    await again(process, tmp_path)
    left = (await by_the_log(process, tmp_path)).findings
    assert [finding.file for finding in left] == ["b-twin.json"], "what the log stands for is put right"


async def test_a_link_in_place_of_a_receipt_is_not_read(world: World, tmp_path: Path) -> None:
    process = await world.process(files=kept_at(tmp_path / "runs"))
    await process.start(line("a"))
    path = tmp_path / "runs/run/line/receipts/a-codergen.json"
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    told = point(tmp_path / "runs", process, line("a"))
    assert (told.step, [finding.kind for finding in told.findings]) == ("a#1", ["unreadable"])


async def test_artifacts_are_on_disk_before_the_commit(world: World, tmp_path: Path) -> None:
    """S1-3: the order in which a step is kept."""

    async def store(step: StepContext) -> Result:
        step.artifacts.store("report", "Report", b"content")
        return Result.success()

    dying = await world.process({"a": [store]}, files=kept_at(tmp_path), wrap=counting_appends)
    dying.store.fail(Fault.DIE_BEFORE, within=2)
    with pytest.raises(Died):
        await dying.start(line("a"))
    await dying.die()
    assert (tmp_path / "run/artifacts/report").read_bytes() == b"content"
    (evidence,) = receipts(tmp_path)["a#1"].artifacts
    assert (evidence.path, evidence.size_bytes) == ("artifacts/report", 7)


async def test_a_fork_has_receipts_of_what_it_shares(world: World, tmp_path: Path) -> None:
    process = await world.process(files=kept_at(tmp_path))
    await process.start(line("a", "b"))
    seq = receipts(tmp_path)["a#1"].sequence
    fork = await process.engine.fork("run", ForkRequest(seq, new_id="fork"))
    assert (await process.resume(fork.run.id)).status is RunStatus.COMPLETED
    run = (await process.load("fork")).run
    expected = await committed(process.store.log, process.engine.sources, run)
    found = read_receipts(Folder(str(tmp_path)), ("fork",), "line", expected)
    assert found.findings == []
    told = {receipt.step_id: receipt.recorded_in for receipt in found.trusted.values()}
    assert told == {"start#1": "run", "a#1": "run", "b#1": "fork", "exit#1": "fork"}
