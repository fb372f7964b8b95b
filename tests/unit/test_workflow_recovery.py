"""Document 004's unit tests, by their own names: recovery when a server starts, and resume.

Its words and ours: IN_PROGRESS is running, BLOCKED is waiting, PENDING is queued; FAILED by a restart is
interrupted, which can be resumed, and a worktree is an exclusive key.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from onward.engine.control.requests import StartRequest
from onward.errors import OnwardError, Refused
from onward.machine.lifecycle import RUN
from onward.model.events import RunClaimed, RunInterrupted, RunResumed
from onward.model.row import Offer
from onward.model.run import Run, RunStatus
from onward.store.port.log import Loaded, RunLog
from tests.conformance.faults import Around, FaultyStore
from tests.conformance.handlers import Doorway
from tests.world import Process, World, line

GATE = """digraph gate {
  start [shape=Mdiamond]; exit [shape=Msquare]; ask [shape=hexagon, label="Approve?"]
  start -> ask; ask -> exit [label="[A] Approve"]
}"""


async def interrupted(world: World, run_id: str = "run", **start: Any) -> Process:
    """A run whose server died inside its second step, and another process that starts up."""
    door = Doorway()
    dying = await world.process({"b": [door]})
    await dying.store.workers.register(Offer(("codergen",)))
    running = asyncio.create_task(dying.start(line("a", "b", "c"), run_id, **start))
    await door.entered()
    await dying.die()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return await world.process()


async def test_recover_in_progress_marks_failed(world: World, caplog: pytest.LogCaptureFixture) -> None:
    process = await interrupted(world)
    with caplog.at_level(logging.INFO, "onward.recovery"):
        swept = await process.engine.recover()
    (run,) = swept.stopped
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "restart")
    assert run.detail == "Server restarted while workflow was running"
    assert (await process.shown())["recoverable"] is True
    assert "RunInterrupted" in await process.kinds()
    assert any(record.levelno == logging.INFO and "run run" in record.message for record in caplog.records)
    assert caplog.messages[-1] == "Recovery complete: 1 workflows marked failed, 0 approvals restored."
    assert caplog.records[-1].interrupted == 1  # type: ignore[attr-defined]


async def test_recover_blocked_restores_approval(world: World, caplog: pytest.LogCaptureFixture) -> None:
    first = await world.process()
    assert (await first.start(GATE)).status is RunStatus.WAITING
    await first.die()
    process = await world.process()
    with caplog.at_level(logging.INFO, "onward.recovery"):
        swept = await process.engine.recover()
    (asking,) = swept.asking
    assert (asking.id, asking.pipeline, asking.gates) == ("run", "gate", ("ask#1",))
    assert (await process.load()).run.status is RunStatus.WAITING
    assert "run run waits for an answer at ask#1" in caplog.messages
    assert caplog.messages[-1] == "Recovery complete: 0 workflows marked failed, 1 approvals restored."


async def test_recover_pending_unchanged(world: World) -> None:
    process = await world.process()
    await process.engine.submit(process.pipeline(line("a")), StartRequest(run_id="run"))
    before = await process.log()
    swept = await process.engine.recover()
    assert (swept.stopped, swept.requeued) == ((), ())
    assert await process.log() == before
    assert (await process.load()).run.status is RunStatus.QUEUED


async def test_recover_no_active_workflows(world: World, caplog: pytest.LogCaptureFixture) -> None:
    process = await world.process()
    await process.start(line("a"))
    with caplog.at_level(logging.INFO, "onward.recovery"):
        swept = await process.engine.recover()
    assert (swept.stopped, swept.requeued, swept.asking, swept.broken) == ((), (), (), ())
    assert caplog.messages == ["Recovery complete: 0 workflows marked failed, 0 approvals restored."]


async def test_resume_validates_failed_status(world: World) -> None:
    process = await world.process()
    await process.start(line("a"))
    with pytest.raises(Refused) as refused:
        await process.resume()
    assert refused.value.code == "invalid_state"


async def test_resume_validates_checkpoint_exists(world: World) -> None:
    """There is a checkpoint from the run's creation on; a run without any history is not a run."""
    process = await world.process()
    with pytest.raises(OnwardError, match="no run"):
        await process.resume("nobody")
    crashed = await interrupted(world, "crashed")
    assert next(c["current_node"] for c in await crashed.checkpoints("crashed")) is None


async def test_resume_validates_worktree_available(world: World) -> None:
    process = await interrupted(world, "first", exclusive_key="tree")
    await process.engine.recover()
    door = Doorway()
    other = await world.process({"a": [door]})
    busy = asyncio.create_task(other.start(line("a"), "second", exclusive_key="tree"))
    await door.entered()
    with pytest.raises(Refused) as refused:
        await process.resume("first")
    assert refused.value.code == "occupied"
    assert "second" in str(refused.value)
    door.open()
    await busy
    assert (await process.resume("first")).status is RunStatus.COMPLETED


async def test_resume_transitions_to_in_progress(world: World) -> None:
    """B4-2."""
    process = await interrupted(world)
    await process.engine.recover()
    seen: list[Run] = []
    resuming = await world.process(observe=lambda run, events: seen.append(run))
    assert (await resuming.resume()).status is RunStatus.COMPLETED
    first = seen[0]
    assert (first.status, first.reason, first.detail, first.ended_at_us) == (RunStatus.RUNNING, "", "", None)


async def test_resume_emits_started_event(world: World) -> None:
    process = await interrupted(world)
    await process.engine.recover()
    await process.resume(by="ann")
    events = await process.events()
    resumed = next(event for event in events if isinstance(event, RunResumed))
    assert resumed.by == "ann"
    assert isinstance(events[events.index(resumed) + 1], RunClaimed)


def test_valid_transitions_includes_failed_to_in_progress() -> None:
    for status in (RunStatus.FAILED, RunStatus.INTERRUPTED, RunStatus.PAUSED):
        queued = RUN[status][RunResumed]
        assert RUN[queued][RunClaimed] is RunStatus.RUNNING
    assert RunInterrupted in RUN[RunStatus.RUNNING]


async def test_one_bad_run_does_not_keep_the_others_from_being_recovered(world: World) -> None:
    await interrupted(world, "bad")
    await interrupted(world, "good")
    process = await world.process(wrap=partial(FaultyStore, log=Damaged))
    swept = await process.engine.recover()
    assert [run.id for run in swept.stopped] == ["good"]
    assert [run_id for run_id, _ in swept.broken] == ["bad"]


class Damaged(Around[RunLog]):
    """A log that has lost the last event of the run `bad`."""

    async def load(self, run_id: str, *, fold_version: int) -> Loaded | None:
        loaded = await self.part.load(run_id, fold_version=fold_version)
        return replace(loaded, tail=loaded.tail[:-1]) if loaded and run_id == "bad" else loaded
