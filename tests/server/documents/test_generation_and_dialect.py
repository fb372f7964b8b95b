"""Document 002's progress and document 003's pipelines, from real runs."""

from __future__ import annotations

import asyncio
import json

import pytest

from onward.model.chat import message_id
from onward.operations.local.look import LocalLook
from onward.operations.requests import GetRun, ShowRun
from onward.server.documents.dialect import pipeline_state, questions
from onward.server.documents.generation import generation_checkpoints
from tests.agents.test_agent_step import NAME, at
from tests.operations.test_progress import SOURCE, Standing
from tests.unit.test_workflow_recovery import GATE, interrupted
from tests.world import Process, World

pytestmark = pytest.mark.anyio


def look_of(process: Process) -> LocalLook:
    engine = process.engine
    return LocalLook(process.store, process.clock, lambda: engine.leftovers, lambda: engine.sources)


async def test_an_open_generation_has_its_checkpoint_while_it_streams_and_after_a_crash(
    world: World,
) -> None:
    """S2-6, S2-11, S2-16, S2-20: locked by the process that generates; what is there when that dies stays."""
    scripted = Standing()
    first = await at(world, scripted, clock=scripted._clock)
    driving = asyncio.create_task(first.start(SOURCE))
    await scripted.stands[0].wait()
    scripted.goes_on[0].set()
    await scripted.stands[1].wait()
    (shown,) = generation_checkpoints(await look_of(first).show_run(ShowRun(run="run")))
    assert shown["lockedBy"] is not None
    assert shown["lockedAt"] is not None
    expected = {
        "id": "run/write#1",
        "workspaceId": "run/run",
        "messageId": message_id("run", "write#1", "m2", 1),
        "stepNumber": 1,
        "textCollected": "Once upon a time, there was",
        "toolCalls": "[]",
        "toolResults": "[]",
        "reasoning": "A story. And its end. ",
        "status": "processing",
        "model": NAME,
        "maxSteps": 4,
    }
    assert {name: value for name, value in shown.items() if not name.startswith("locked")} == expected
    driving.cancel()
    await first.die()
    await asyncio.gather(driving, return_exceptions=True)
    second = await at(world, scripted)
    (left,) = generation_checkpoints(await look_of(second).show_run(ShowRun(run="run")))
    assert left == {**expected, "status": "pending", "lockedBy": None, "lockedAt": None}


async def test_tool_calls_and_their_results_are_json(world: World) -> None:
    """S2-6, S2-11."""
    process = await interrupted(world)
    page = await look_of(process).show_run(ShowRun(run="run"))
    tool = {"call": "m1.t1", "type": "tool", "name": "search", "state": "ok", "result": {"found": 3}}
    asked = {**tool, "call": "m1.t2", "state": "open", "result": None}
    page["progress"] = [
        {
            "step": "b#1",
            "attempt": 1,
            "state": "open",
            "model": "m",
            "rounds": 1,
            "rounds_max": None,
            "message": None,
            "text": "",
            "reasoning": "",
            "calls": [tool, asked],  # type: ignore[list-item]
            "held_by": None,
            "held_since": None,
        }
    ]
    (shown,) = generation_checkpoints(page)
    assert json.loads(shown["toolCalls"]) == [
        {"toolCallId": "m1.t1", "toolName": "search"},
        {"toolCallId": "m1.t2", "toolName": "search"},
    ]
    assert json.loads(shown["toolResults"]) == [
        {"toolCallId": "m1.t1", "toolName": "search", "result": {"found": 3}}
    ]


async def test_a_pipeline_says_what_it_has_done_and_what_it_asks(world: World) -> None:
    """S3-7, S3-9."""
    process = await world.process()
    await process.start(GATE)
    run = await look_of(process).get_run(GetRun(run="run"))
    state = pipeline_state(run)
    assert (state["id"], state["pipeline"], state["status"]) == ("run", "gate", "waiting")
    assert state["completed_nodes"] == ["start"]
    (asked,) = questions(run)
    assert (asked["id"], asked["text"], asked["stage"]) == ("ask#1", "Approve?", "ask")
    assert asked["options"] == [{"key": "A", "label": "[A] Approve"}]
    assert asked["timeout_seconds"] is None
