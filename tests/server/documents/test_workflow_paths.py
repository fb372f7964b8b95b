"""Document 004's paths: literal requests and replies, and every refusal with its words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from onward.engine.control.requests import StartRequest
from onward.engine.stop import StopSwitch
from tests.conformance.faults import FaultyStore
from tests.conformance.handlers import Doorway
from tests.server.door import Door, door_of
from tests.unit.test_workflow_recovery import GATE, Damaged, interrupted
from tests.world import World, in_memory, line

RESTARTED = "Server restarted while workflow was running"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with in_memory() as world:
        yield world


async def failed_by_a_restart(world: World, run: str = "wf-0", **how: Any) -> Door:
    """A server that has recovered a workflow of the one before it."""
    await interrupted(world, run, **how)
    door = await door_of(world)
    await door.process.engine.recover()
    return door


async def work(door: Door) -> None:
    """Execute what is due."""
    while taken := await door.process.engine.take(StopSwitch(clock=door.process.clock)):
        await taken[1]


async def test_a_workflow_is_shown_failed_and_resumed(world: World) -> None:
    """S4-4, S4-7, S4-16, S4-17, S4-19, S4-20, B4-11, B4-13: the reply is the workflow, and a worker continues
    it under the pipeline that it has."""
    door = await failed_by_a_restart(world)
    shown = (await door.get("/api/workflows/wf-0", role="viewer")).json
    assert (shown["status"], shown["failure_reason"], shown["recoverable"]) == ("FAILED", RESTARTED, True)
    reply = await door.post("/api/workflows/wf-0/resume", role="operator")
    assert reply.status == 200
    assert reply.json == {
        "id": "wf-0",
        "status": "IN_PROGRESS",
        "failure_reason": None,
        "recoverable": None,
        "pipeline": "line",
        "worktree_path": None,
        "started_at": shown["started_at"],
        "completed_at": None,
    }
    await work(door)
    done = (await door.get("/api/workflows/wf-0")).json
    assert (done["status"], done["recoverable"]) == ("COMPLETED", None)
    assert done["completed_at"] is not None
    assert world.ledger.steps == ["a#1", "b#1", "b#1", "c#1"]


async def test_an_absent_body_needs_no_content_type(world: World) -> None:
    door = await failed_by_a_restart(world)
    assert (await door.ask("POST", "/api/workflows/wf-0/resume")).status == 200


async def test_an_unknown_workflow_is_not_found(world: World) -> None:
    """S4-12, S4-26."""
    door = await door_of(world)
    for path in ("resume", "approve", "cancel"):
        reply = await door.post(f"/api/workflows/nobody/{path}")
        assert (reply.status, reply.code, reply.json["detail"]) == (
            404,
            "run_not_found",
            "Workflow not found",
        )
    assert (await door.get("/api/workflows/NO%20NAME")).json["detail"] == "Workflow not found"


async def test_only_a_failed_workflow_is_resumed_and_of_two_callers_one(world: World) -> None:
    """S4-13, B4-3."""
    door = await failed_by_a_restart(world)
    replies = await asyncio.gather(*(door.post("/api/workflows/wf-0/resume") for _ in range(8)))
    assert sorted(reply.status for reply in replies) == [200, *[409] * 7]
    refused = next(reply for reply in replies if reply.status == 409)
    assert refused.code == "invalid_state"
    assert refused.json["detail"] == "Workflow wf-0 is IN_PROGRESS, not FAILED"
    await work(door)
    reply = await door.post("/api/workflows/wf-0/resume")
    assert reply.json["detail"] == "Workflow wf-0 is COMPLETED, not FAILED"


async def test_the_same_key_gets_the_same_answer_again(world: World) -> None:
    door = await failed_by_a_restart(world)
    how = {"Idempotency-Key": "k1"}
    replies = [await door.post("/api/workflows/wf-0/resume", headers=how) for _ in range(2)]
    assert [(one.status, one.json["status"]) for one in replies] == [(200, "IN_PROGRESS")] * 2


async def test_a_pending_and_a_blocked_workflow_are_not_resumed(world: World) -> None:
    """S4-13, S4-3, S4-2."""
    door = await door_of(world)
    process = door.process
    await process.engine.submit(process.pipeline(line("a")), StartRequest(run_id="wf-new"))
    reply = await door.post("/api/workflows/wf-new/resume")
    assert (reply.status, reply.json["detail"]) == (409, "Workflow wf-new is PENDING, not FAILED")
    await process.start(GATE, "wf-gate")
    reply = await door.post("/api/workflows/wf-gate/resume")
    assert (reply.status, reply.json["detail"]) == (409, "Workflow wf-gate is BLOCKED, not FAILED")


async def test_a_workflow_is_not_resumed_in_a_work_tree_that_is_in_use(world: World) -> None:
    """S4-15: and afterwards it is."""
    door = await failed_by_a_restart(world, "wf-0", exclusive_key="/srv/tree")
    inside = Doorway()
    other = await world.process({"a": [inside]})
    busy = asyncio.create_task(other.start(line("a"), "wf-1", exclusive_key="/srv/tree"))
    await inside.entered()
    reply = await door.post("/api/workflows/wf-0/resume")
    assert (reply.status, reply.code) == (409, "occupied")
    assert "wf-1" in reply.json["detail"]
    assert (await door.get("/api/workflows/wf-0")).json["worktree_path"] == "/srv/tree"
    inside.open()
    await busy
    assert (await door.post("/api/workflows/wf-0/resume")).status == 200


async def test_a_workflow_whose_history_is_damaged_is_refused(world: World) -> None:
    """S4-14, B4-4: a clear error that names it, and no failure of the server."""
    await interrupted(world, "bad")
    door = await door_of(world, process=await world.process(wrap=partial(FaultyStore, log=Damaged)))
    reply = await door.post("/api/workflows/bad/resume")
    assert reply.status == 409
    assert reply.code in ("history_corrupt", "no_checkpoint")


async def test_a_blocked_workflow_is_approved_at_once_and_continued_by_a_worker(world: World) -> None:
    """S4-2, B4-14: the reply does not wait for the rest of the work."""
    door = await door_of(world)
    await door.process.start(GATE, "wf-gate")
    assert (await door.get("/api/workflows/wf-gate")).json["status"] == "BLOCKED"
    assert (await door.post("/api/workflows/wf-gate/approve", role="operator")).status == 403
    reply = await door.post("/api/workflows/wf-gate/approve", role="approver")
    assert (reply.status, reply.json["status"]) == (200, "IN_PROGRESS")
    second = await door.post("/api/workflows/wf-gate/reject", {"feedback": "no"}, role="approver")
    assert (second.status, second.code) == (409, "gate_decided")
    await work(door)
    assert (await door.get("/api/workflows/wf-gate")).json["status"] == "COMPLETED"


async def test_a_rejected_workflow_needs_a_reason_and_cannot_be_resumed(world: World) -> None:
    """B4-12, B4-8: by the API neither."""
    door = await door_of(world)
    await door.process.start(GATE, "wf-gate")
    for nothing in ({}, {"feedback": " "}):
        assert (await door.post("/api/workflows/wf-gate/reject", nothing, role="approver")).status == 422
    reply = await door.post("/api/workflows/wf-gate/reject", {"feedback": "wrong plan"}, role="approver")
    assert reply.status == 200
    await work(door)
    shown = (await door.get("/api/workflows/wf-gate")).json
    assert (shown["status"], shown["recoverable"]) == ("FAILED", False)
    refused = await door.post("/api/workflows/wf-gate/resume")
    assert (refused.status, refused.code) == (409, "invalid_state")


async def test_a_workflow_is_cancelled_for_good(world: World) -> None:
    door = await failed_by_a_restart(world)
    reply = await door.post("/api/workflows/wf-0/cancel", {"reason": "not needed"}, role="operator")
    assert (reply.status, reply.json["status"]) == (200, "CANCELLED")
    assert (await door.post("/api/workflows/wf-0/resume")).status == 409


async def test_workflows_are_listed_newest_first_page_by_page(world: World) -> None:
    """S4-1, S4-2, S4-3, B4-15: each with its status; one that nobody works on is not running."""
    door = await failed_by_a_restart(world)
    process = door.process
    process.clock.advance(1)
    await process.start(GATE, "wf-gate")
    process.clock.advance(1)
    await process.engine.submit(process.pipeline(line("a")), StartRequest(run_id="wf-new"))
    listed = (await door.get("/api/workflows", role="viewer")).json
    assert {one["id"]: one["status"] for one in listed["workflows"]} == {
        "wf-new": "PENDING",
        "wf-gate": "BLOCKED",
        "wf-0": "FAILED",
    }
    page = (await door.get("/api/workflows?limit=2")).json
    rest = (await door.get(f"/api/workflows?limit=2&cursor={page['cursor']}")).json
    assert len(page["workflows"] + rest["workflows"]) == 3
    assert (await door.get("/api/workflows?state=FAILED")).status == 422
