"""Document 004's workflows and what is announced of them, from real runs."""

from __future__ import annotations

from typing import Any

import pytest

from onward.engine.control.requests import StartRequest
from onward.model.gate import Answer
from onward.operations.local.lists import LocalLists
from onward.operations.requests import ListGates, ListRuns
from onward.replies.runs import RunListed
from onward.server.documents.workflows import WorkflowFeed, not_failed, workflow_state
from tests.unit.test_workflow_recovery import GATE, interrupted
from tests.world import Process, World, line

pytestmark = pytest.mark.anyio
RESTARTED = "Server restarted while workflow was running"


async def listed(process: Process, run: str = "run") -> RunListed:
    (found,) = (await LocalLists(process.store).list_runs(ListRuns(run=run)))["runs"]
    return found


async def test_a_run_without_its_server_is_failed_and_can_be_resumed_before_and_after_the_sweep(
    world: World,
) -> None:
    """S4-1, S4-7, S4-8, B4-11: it is a field of what is stored, so whoever asks later is told, too."""
    process = await interrupted(world)
    before = workflow_state(await listed(process), is_asking=False)
    await process.engine.recover()
    after = workflow_state(await listed(process), is_asking=False)
    for state in (before, after):
        assert (state["status"], state["recoverable"]) == ("FAILED", True)
        assert state["failure_reason"] == RESTARTED
        assert (state["id"], state["pipeline"], state["completed_at"]) == ("run", "line", None)


async def test_a_resumed_workflow_is_in_progress_and_has_no_failure_any_more(world: World) -> None:
    """S4-16, S4-17, B4-2."""
    process = await interrupted(world)
    await process.engine.recover()
    await process.resume(run=False)
    state = workflow_state(await listed(process), is_asking=False)
    assert (state["status"], state["failure_reason"], state["recoverable"]) == ("IN_PROGRESS", None, None)
    assert not_failed(await listed(process), is_asking=False) == "Workflow run is IN_PROGRESS, not FAILED"


async def test_a_workflow_that_nobody_has_begun_is_pending(world: World) -> None:
    """S4-3."""
    process = await world.process()
    await process.engine.submit(process.pipeline(line("a")), StartRequest(run_id="run"))
    await process.engine.recover()
    assert workflow_state(await listed(process), is_asking=False)["status"] == "PENDING"
    assert not_failed(await listed(process), is_asking=False) == "Workflow run is PENDING, not FAILED"


async def test_a_rejected_workflow_is_failed_for_good(world: World) -> None:
    """B4-12."""
    process = await world.process()
    await process.start(GATE)
    await process.engine.answer("run", Answer.reject("not like this"), by="ann")
    state = workflow_state(await listed(process), is_asking=False)
    assert (state["status"], state["recoverable"]) == ("FAILED", False)
    assert "not like this" in (state["failure_reason"] or "")
    assert state["completed_at"] is not None


async def test_a_client_that_connects_is_told_of_every_stopped_workflow_and_every_open_approval(
    world: World,
) -> None:
    """S4-2, S4-8, S4-10, B4-11: however long ago that was announced for the first time."""
    process = await interrupted(world, "wf-1")
    await process.start(GATE, "wf-gate")
    await process.engine.recover()
    lists = LocalLists(process.store)
    feed = WorkflowFeed()
    gates = (await lists.list_gates(ListGates()))["gates"]
    told = list(feed.opening([await listed(process, "wf-1")], gates))
    assert told == [
        {
            "type": "WORKFLOW_FAILED",
            "workflow_id": "wf-1",
            "data": {"recoverable": True, "failure_reason": RESTARTED},
        },
        {
            "type": "APPROVAL_REQUIRED",
            "workflow_id": "wf-gate",
            "data": {"gate": "ask#1", "text": "Approve?"},
        },
    ]
    assert list(feed.opening([await listed(process, "wf-1")], gates)) == [], "nothing is told twice"


async def test_a_resume_is_announced_as_one_and_a_start_as_a_start(world: World) -> None:
    """S4-18."""
    process = await interrupted(world, "wf-1")
    await process.engine.recover()
    feed, told = WorkflowFeed(), list[Any]()
    told += feed.changed(await listed(process, "wf-1"))
    await process.resume("wf-1", run=False)
    told += feed.changed(await listed(process, "wf-1"))
    await process.resume("wf-1")
    told += feed.changed(await listed(process, "wf-1"))
    await process.engine.submit(process.pipeline(line("a")), StartRequest(run_id="wf-2"))
    told += feed.changed(await listed(process, "wf-2"))
    await process.resume("wf-2")
    told += feed.changed(await listed(process, "wf-2"))
    assert [(one["type"], one["workflow_id"], one["data"].get("resumed")) for one in told] == [
        ("WORKFLOW_FAILED", "wf-1", None),
        ("WORKFLOW_STARTED", "wf-1", True),
        ("WORKFLOW_COMPLETED", "wf-1", None),
        ("WORKFLOW_COMPLETED", "wf-2", None),
    ]


def row(status: str, claims: int, **more: Any) -> Any:
    return {
        "id": "r",
        "status": status,
        "claims": claims,
        "reason": "",
        "detail": "",
        "recoverable": False,
        **more,
    }


def test_a_first_claim_is_a_start_and_a_later_one_of_an_unknown_run_is_none() -> None:
    """A run that was under way when the client connected, and only waited for a while, does not start."""
    assert [one["data"] for one in WorkflowFeed().changed(row("running", 1))] == [{"resumed": False}]
    assert [*WorkflowFeed().changed(row("running", 4))] == []
    feed = WorkflowFeed()
    assert [*feed.changed(row("queued", 0))] == []
    assert [one["data"] for one in feed.changed(row("running", 1))] == [{"resumed": False}]
    assert [*feed.changed(row("queued", 1))] == []
    assert [one["type"] for one in feed.changed(row("cancelled", 1))] == ["WORKFLOW_CANCELLED"]


def test_an_approval_that_was_closed_may_be_asked_again() -> None:
    feed, gate = WorkflowFeed(), {"run": "r", "gate": "ask#1", "text": "Ship it?"}
    assert len([*feed.asked(gate)]) == 1  # type: ignore[arg-type]
    feed.closed("r", "ask#1")
    assert len([*feed.asked(gate)]) == 1  # type: ignore[arg-type]
