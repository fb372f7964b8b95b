"""Runs as others see them: what a list says about each, whoever drives it and whatever became of it."""

from __future__ import annotations

import asyncio

import pytest

from onward.engine.control.requests import StartRequest
from onward.engine.stop import StopSwitch
from onward.errors import AmbiguousRun, Refused, RunNotFound
from onward.handlers.port import StepContext
from onward.model.ids import display_id
from onward.model.result import Result
from onward.model.run import RunStatus
from onward.read.lookup import find_run
from onward.replies.runs import RunListed
from onward.store.port.runs import RunQuery
from tests.conformance.handlers import Doorway
from tests.test_pause import GATED
from tests.world import Process, World, line


async def test_session_created(world: World) -> None:
    """S3-10: running a pipeline makes a run, whose id is the session's id, before the first step begins."""
    process = await world.process()
    folded = await process.engine.start(process.pipeline(line("a")), StartRequest())
    run_id = folded.run.id
    assert len(run_id) == 26
    shown = await process.shown(run_id)
    assert (shown["id"], shown["pipeline"]) == (run_id, "line")
    assert shown["display_id"] == display_id(run_id)
    assert len(shown["display_id"]) == 6


async def test_session_created_before_its_first_step_begins(world: World) -> None:
    seen: list[RunListed] = []
    other = await world.process()

    async def look(step: StepContext) -> Result:
        seen.append(await other.shown(step.run_id))
        return Result.success()

    process = await world.process({"a": [look]})
    await process.start(line("a", "b"))
    assert (seen[0]["status"], seen[0]["next"], seen[0]["steps_finished"]) == ("running", "a", 1)


async def test_session_completed(world: World) -> None:
    """K17, S3-7."""
    process = await world.process()
    await process.start(line("a"))
    shown = await (await world.process()).shown()
    assert (shown["status"], shown["reason"], shown["recoverable"]) == ("completed", "", False)
    assert (shown["next"], shown["holder"]) == (None, None)
    assert shown["ended_at"] is not None


async def test_session_paused(world: World) -> None:
    """K17, S3-7."""
    stop = StopSwitch()
    stop.request("signal")
    process = await world.process()
    await process.start(line("a"), stop=stop)
    shown = await (await world.process()).shown()
    assert (shown["status"], shown["reason"], shown["recoverable"]) == ("paused", "signal", True)
    assert (shown["holder"], shown["next"]) == (None, "start")
    assert shown["detail"] == "stopped by Ctrl-C or a termination signal"


async def test_session_failed(world: World) -> None:
    """K17, S3-7."""
    process = await world.process({"a": [Result.fail("the disk is on fire")]})
    await process.start(line("a"))
    shown = await (await world.process()).shown()
    assert (shown["status"], shown["reason"], shown["recoverable"]) == ("failed", "step_failed", True)
    assert shown["detail"] == "step a#1: the disk is on fire"
    assert shown["next"] == "a"


async def test_session_running_names_its_holder(world: World) -> None:
    """K17, S3-7."""
    door = Doorway()
    process, other = await world.process({"b": [door]}), await world.process()
    driving = asyncio.create_task(process.start(line("a", "b")))
    await door.entered()
    shown = await other.shown()
    assert (shown["status"], shown["next"]) == ("running", "b")
    assert (shown["holder"] or "").startswith("process ")
    door.open()
    await driving


async def test_session_waiting(world: World) -> None:
    """K17."""
    process = await world.process()
    await process.start(GATED)
    shown = await (await world.process()).shown()
    assert (shown["status"], shown["next"], shown["holder"]) == ("waiting", "ask", None)


async def test_session_queued(world: World) -> None:
    process = await world.process()
    await process.engine.submit(process.pipeline(line("a")), StartRequest(run_id="run"))
    shown = await process.shown()
    assert (shown["status"], shown["holder"]) == ("queued", None)
    assert shown["wake_at"] == shown["created_at"]


async def test_session_interrupted_is_a_running_one_whose_owner_died(world: World) -> None:
    """K17, O3, S3-7. Nobody wrote that the owner died: whoever looks, sees it."""
    door = Doorway()
    process = await world.process({"b": [door]})
    driving = asyncio.create_task(process.start(line("a", "b")))
    await door.entered()
    other = await world.process()
    assert (await other.shown())["status"] == "running"
    await process.die()
    shown = await other.shown()
    assert (shown["status"], shown["reason"], shown["recoverable"]) == ("interrupted", "crash", True)
    assert shown["holder"] is None
    assert "died while it held the run" in shown["detail"]
    assert (await other.load()).run.status is RunStatus.RUNNING
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)


async def test_session_cancelled(world: World) -> None:
    process = await world.process()
    await process.start(GATED)
    await process.engine.cancel("run", by="ann")
    shown = await process.shown()
    assert (shown["status"], shown["reason"], shown["recoverable"]) == ("cancelled", "user", False)


async def test_sessions_are_listed_newest_first_and_by_status(world: World) -> None:
    process = await world.process({"b": [Result.fail("no")]})
    for number, node in enumerate(["a", "b", "a"]):
        process.clock.advance(1)
        await process.start(line(node), f"run-{number}")
    listed = await process.store.runs.list(RunQuery())
    assert [found.row.id for found in listed] == ["run-2", "run-1", "run-0"]
    failed = await process.store.runs.list(RunQuery(statuses=(RunStatus.FAILED,)))
    assert [found.row.id for found in failed] == ["run-1"]
    assert await process.store.runs.count() == {RunStatus.COMPLETED: 2, RunStatus.FAILED: 1}


async def test_a_session_answers_to_its_display_id_its_id_and_a_prefix(world: World) -> None:
    """S3-9."""
    process = await world.process()
    await process.start(line("a"), "review-of-monday")
    for wanted in (display_id("review-of-monday"), "review-of-monday", "review-of"):
        assert (await find_run(process.store.runs, wanted)).row.id == "review-of-monday"


async def test_a_prefix_of_two_sessions_is_refused_with_both(world: World) -> None:
    process = await world.process()
    await process.start(line("a"), "review-1")
    await process.start(line("a"), "review-2")
    with pytest.raises(AmbiguousRun, match=r"review-1.*review-2"):
        await find_run(process.store.runs, "review")


async def test_an_unknown_session_is_said_to_be_unknown(world: World) -> None:
    process = await world.process()
    with pytest.raises(RunNotFound, match="no run 'nobody'"):
        await find_run(process.store.runs, "nobody")
    for door in (process.resume, process.engine.pause, process.engine.cancel):
        with pytest.raises(RunNotFound):
            await door("nobody")
    with pytest.raises(RunNotFound):
        await process.engine.answer("nobody", "yes", by="ann")


async def test_a_session_id_of_ones_own_is_refused_if_it_exists(world: World) -> None:
    process = await world.process()
    await process.start(line("a"), "mine")
    before = await process.log("mine")
    with pytest.raises(Refused) as refused:
        await process.start(line("a"), "mine")
    assert refused.value.code == "run_exists"
    assert await process.log("mine") == before
    assert world.ledger.steps == ["a#1"]


async def test_many_sessions_at_once_do_not_mix(world: World) -> None:
    async def tell(step: StepContext) -> Result:
        return Result.success(said=step.run_id)

    process = await world.process({"a": [tell]})
    runs = await asyncio.gather(*(process.start(line("a", "b"), f"run-{n}") for n in range(20)))
    assert [run.context["said"] for run in runs] == [f"run-{n}" for n in range(20)]
    assert all([await is_whole(process, run.id) for run in runs])


async def is_whole(process: Process, run_id: str) -> bool:
    completed = await process.completed(run_id)
    return completed == ["start#1", "a#1", "b#1", "exit#1"] and await process.is_sound(run_id)
