"""The paths of documents 003 and 002."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from onward.engine.stop import StopSwitch
from tests.server.door import Door, door_of
from tests.unit.test_workflow_recovery import interrupted
from tests.world import in_memory

SOURCE = """digraph site {
  start [shape=Mdiamond]; exit [shape=Msquare]
  write [prompt="$topic"]; ask [shape=hexagon, label="Ship it?"]
  start -> write -> ask
  ask -> exit [label="[Y] Yes"]; ask -> write [label="[N] No"]
}"""


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    async with in_memory() as world:
        door = await door_of(world)
        assert (await door.ask("PUT", "/api/pipelines/site", {"source": SOURCE})).status == 200
        yield door


async def started(door: Door) -> str:
    reply = await door.post("/pipelines", {"pipeline": "site", "inputs": {"topic": "cake"}}, role="operator")
    assert reply.status == 201, reply.body
    id: str = reply.json["id"]
    assert reply.header("location") == f"/pipelines/{id}"
    while taken := await door.process.engine.take(StopSwitch(clock=door.process.clock)):
        await taken[1]
    return id


async def test_a_pipeline_is_started_watched_answered_and_finished(door: Door) -> None:
    """S3-1, S3-4, S3-7, S3-12."""
    id = await started(door)
    shown = (await door.get(f"/pipelines/{id}", role="viewer")).json
    assert (shown["id"], shown["status"]) == (id, "waiting")
    assert shown["completed_nodes"] == ["start", "write"]
    (asked,) = (await door.get(f"/pipelines/{id}/questions")).json["questions"]
    assert (asked["id"], [one["key"] for one in asked["options"]]) == ("ask#1", ["Y", "N"])
    point = (await door.get(f"/pipelines/{id}/checkpoint")).json
    assert (point["current_node"], point["completed_nodes"]) == ("write", ["start", "write"])
    assert (await door.get(f"/pipelines/{id}/context")).json["context"]["topic"] == "cake"
    graph = await door.get(f"/pipelines/{id}/graph")
    assert graph.header("content-type") == "image/svg+xml; charset=utf-8"
    assert graph.body.startswith(b"<svg")
    assert "sandbox" in (graph.header("content-security-policy") or "")
    kinds = [one["kind"] for one in (await door.get(f"/pipelines/{id}/events")).json["events"]]
    assert kinds[0] == "PipelineStarted"
    assert "InterviewStarted" in kinds
    said = await door.post(f"/pipelines/{id}/answer", {"question": "ask#1", "choice": "Y"}, role="approver")
    assert said.status == 200
    while taken := await door.process.engine.take(StopSwitch(clock=door.process.clock)):
        await taken[1]
    assert (await door.get(f"/pipelines/{id}")).json["status"] == "completed"


async def test_events_come_in_pages_that_end_with_an_event_of_the_log(door: Door) -> None:
    """Two names of one event are never on two pages, and an index counts from the first step on."""
    id = await started(door)
    whole = (await door.get(f"/pipelines/{id}/events")).json
    assert whole["cursor"] is None
    seqs = [one["seq"] for one in whole["events"]]
    assert len(set(seqs)) < len(seqs)
    for after in sorted(set(seqs)):
        page = (await door.get(f"/pipelines/{id}/events?after={after}")).json
        assert page["events"] == [one for one in whole["events"] if one["seq"] > after]
    assert (await door.get(f"/pipelines/{id}/events?after=-1")).status == 422


async def test_a_question_can_be_named_in_the_path_and_a_run_cancelled(door: Door) -> None:
    id = await started(door)
    wrong = await door.post(f"/pipelines/{id}/questions/nothing/answer", {"choice": "Y"}, role="approver")
    assert wrong.status == 409
    said = await door.post(f"/pipelines/{id}/questions/ask%231/answer".replace("%23", "#"), {"choice": "N"})
    assert said.status == 200
    gone = await door.post(f"/pipelines/{id}/cancel", role="operator")
    assert (gone.status, gone.json["status"]) == (200, "cancelled")


async def test_a_source_cannot_be_sent(door: Door) -> None:
    reply = await door.post("/pipelines", {"dot": SOURCE}, role="operator")
    assert (reply.status, reply.code) == (403, "not_over_http")


async def test_the_progress_of_a_run_is_that_of_its_open_steps() -> None:
    """S2-6."""
    async with in_memory() as world:
        await interrupted(world, "run")
        door = await door_of(world)
        reply = await door.get("/api/runs/run/progress", role="viewer")
        assert (reply.status, reply.json) == (200, []), "its step has recorded no call"
        assert (await door.get("/api/runs/nobody/progress")).status == 404
