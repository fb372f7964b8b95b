"""What a page of a chat is sent over document 000's socket, from the log of real runs."""

from __future__ import annotations

from typing import Any

import pytest

from onward.model.gate import Answer
from onward.model.result import Result
from onward.operations.local.chats import LocalMessages
from onward.operations.local.look import LocalLook
from onward.operations.requests import ReadEvents, ReadMessages
from onward.server.documents.agent_feed import AgentFeed, ChatWords
from tests.chats.desk import GATED, SITE, Desk, desk_of
from tests.chats.test_dispatch import killed
from tests.world import World

pytestmark = pytest.mark.anyio
PLAN = ["research", "design", "check"]


async def heard(desk: Desk, run: str, feed: AgentFeed | None = None) -> tuple[AgentFeed, list[Any]]:
    """The feed after the whole log of a run, and what it said."""
    feed, said = feed or AgentFeed("talk", run), list[Any]()
    engine = desk.process.engine
    look = LocalLook(desk.process.store, desk.process.clock, lambda: engine.leftovers, lambda: engine.sources)
    async for event in look.read_events(ReadEvents(run=run)):
        said += feed.event(event)
    return feed, said


def short(messages: list[Any]) -> list[tuple[Any, ...]]:
    """Messages in short: their types, and what they are about."""
    about = ("agentName", "status", "reason", "resumed", "errorType", "checkpointId", "selectedIndex")
    return [(one["type"], *(one[name] for name in about if name in one)) for one in messages]


async def test_a_run_is_told_from_its_plan_to_its_end(world: World) -> None:
    """S0-24."""
    source = SITE.replace('design [prompt="design"]', 'design [prompt="design", max_retries=1]')
    desk = await desk_of(world, {"design": [Result.retry("not yet"), Result.success()]}, source)
    said = await desk.say("build me a site")
    await desk.work()
    while (await desk.runs())[0].ended_at_us is None:
        desk.process.clock.advance(60)
        await desk.work()
    feed, told = await heard(desk, said.run_id)
    assert told[0] == {
        "type": "pipeline_plan",
        "chatId": "talk",
        "pipelineRunId": said.run_id,
        "intent": "build",
        "scope": "full",
        "agents": PLAN,
        "resumed": False,
    }
    assert feed.is_over
    assert short(told)[1:3] == [
        ("agent_status", "research", "running"),
        ("agent_status", "research", "completed"),
    ]
    assert short(told)[-2:] == [
        ("agent_status", "check", "completed"),
        ("agent_status", "orchestrator", "completed"),
    ]
    retried = [(one["status"], one["retryCount"]) for one in told if one.get("agentName") == "design"]
    assert retried == [("running", 0), ("retrying", 0), ("running", 1), ("completed", 1)]


async def test_a_page_that_opens_after_a_restart_is_told_what_is_done_and_why_it_stopped(
    world: World,
) -> None:
    """S0-24, S0-16, B0-9: the plan, the finished agents, and a restart that is no limit."""
    desk, run = await killed(world, "check")
    await desk.process.engine.recover()
    feed, _ = await heard(desk, run)
    redrawn = list(feed.redraw())
    assert short(redrawn) == [
        ("pipeline_plan", False),
        ("agent_status", "research", "completed"),
        ("agent_status", "design", "completed"),
        ("agent_status", "check", "stopped"),
        ("pipeline_interrupted", "restart"),
    ]
    assert redrawn[-1]["completedAgents"] == ["research", "design"]
    assert redrawn[-1]["skippedAgents"] == ["check"]
    assert redrawn[-1]["tokensUsed"] is None
    await desk.say("continue?")
    await desk.work()
    feed, told = await heard(desk, run, feed)
    assert short(told) == [
        ("pipeline_plan", True),
        ("agent_status", "research", "completed"),
        ("agent_status", "design", "completed"),
        ("agent_status", "check", "running"),
        ("agent_status", "check", "completed"),
        ("agent_status", "orchestrator", "completed"),
    ]


async def test_a_checkpoint_is_told_and_so_is_its_answer(world: World) -> None:
    """S0-12, S0-14: by the place of the option, as the document names it."""
    desk = await desk_of(world, source=GATED)
    said = await desk.say("build")
    await desk.work()
    feed, told = await heard(desk, said.run_id)
    asked = told[-1]["checkpoint"]
    assert (asked["id"], asked["nodeId"], asked["label"]) == ("ask#1", "ask", "Which direction?")
    assert asked["type"] == "approve"
    assert [option["name"] for option in asked["options"]] == ["[B] Bold", "[C] Calm"]
    assert list(feed.redraw())[-1]["type"] == "pipeline_checkpoint", "a page that opens now is asked, too"
    await desk.process.engine.answer(said.run_id, Answer("C"), by="ann", run=False)
    await desk.work()
    feed, told = await heard(desk, said.run_id, feed)
    assert short(told)[0] == ("pipeline_checkpoint_resolved", "ask#1", 1)
    assert told[0]["timedOut"] is False
    assert "pipeline_checkpoint" not in [one["type"] for one in feed.redraw()]


async def test_a_failed_agent_is_told_with_its_error(world: World) -> None:
    """S0-9."""
    desk = await desk_of(world, {"design": [Result.fail("no idea")]})
    said = await desk.say("build me a site")
    await desk.work()
    _, told = await heard(desk, said.run_id)
    (error,) = (one for one in told if one["type"] == "agent_error")
    assert (error["agentName"], error["errorType"]) == ("design", "agent_failed")
    assert "no idea" in error["error"]
    assert short(told)[-1] == ("agent_status", "orchestrator", "failed")


def event(seq: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"seq": seq, "kind": kind, "at": "2026-11-18T10:00:00Z", **fields}


def test_a_limit_is_told_once_and_as_a_limit_when_it_stops_the_run() -> None:
    """S0-31, S0-32, B0-9, O0-13: a held agent alone says nothing, as its limit may be raised meanwhile."""
    feed = AgentFeed("c1", "r1")
    hit = {"scope": "chat/c1", "measure": "tokens", "limit": 500_000, "spent": 500_120, "wanted": 1}
    context = {"planned_agents": ["research", "frontend"], "intent": "build", "scope": "full"}
    log = [
        event(1, "RunCreated", context=context),
        event(2, "StepStarted", step="research#1", node="research", attempt=1),
        event(
            3,
            "CallFinished",
            step="research#1",
            type="model",
            usage={"input": 812, "output": 340},
            cost_micro=4100,
        ),
        event(
            4,
            "StepFinished",
            step="research#1",
            node="research",
            attempt=1,
            outcome={"status": "success"},
        ),
        event(5, "StepStarted", step="frontend#1", node="frontend", attempt=1),
        event(6, "AttemptHeld", step="frontend#1", attempt=1, reason="limit", limit=hit),
        event(7, "RunInterrupted", reason="limit", detail="…"),
    ]
    told = [message for one in log for message in feed.event(one)]
    assert told[3:] == [
        {
            "type": "agent_status",
            "chatId": "c1",
            "pipelineRunId": "r1",
            "agentName": "research",
            "status": "completed",
            "retryCount": 0,
        },
        *told[4:6],
        {
            "type": "agent_error",
            "chatId": "c1",
            "pipelineRunId": "r1",
            "agentName": "frontend",
            "errorType": "cost_limit",
            "error": "Token limit reached. Pipeline paused.",
        },
        {
            "type": "pipeline_interrupted",
            "chatId": "c1",
            "pipelineRunId": "r1",
            "reason": "cost_limit",
            "completedAgents": ["research"],
            "skippedAgents": ["frontend"],
            "tokensUsed": 500_120,
            "tokenLimit": 500_000,
        },
    ]
    assert told[2] == {
        "type": "token_usage",
        "chatId": "c1",
        "pipelineRunId": "r1",
        "agentName": "research",
        "inputTokens": 812,
        "outputTokens": 340,
        "costMicro": 4100,
    }
    assert list(feed.redraw())[-2:] == told[-2:], "a page that opens later is told the same"
    assert [*feed.event(log[-1])] == [], "nothing is told twice"


async def test_what_is_said_in_a_chat_is_told_as_it_comes(world: World) -> None:
    """O0-16, S0-43: a user's message, and Onward's own, are stored and told whole."""
    desk = await desk_of(world)
    await desk.say("build me a site")
    words, told = ChatWords("talk"), list[Any]()
    async for piece in LocalMessages(desk.process.store, desk.process.clock).read_messages(
        ReadMessages(of="talk")
    ):
        told += words.said(piece)
    assert [(one["type"], one["role"]) for one in told] == [
        ("chat_message", "user"),
        ("chat_message", "system"),
    ]
    assert told[0]["content"] == "build me a site"


def test_an_agents_text_is_told_in_pieces_and_its_thoughts_apart() -> None:
    words = ChatWords("c1")
    piece: dict[str, Any] = {
        "position": 57,
        "message": "cd2b",
        "kind": "text",
        "text": "abc ",
        "parts": [],
        "state": None,
        "chat": "c1",
        "run": "r1",
        "step": "fan#1.b/frontend#1",
        "call": "m1",
        "number": 1,
        "role": "assistant",
        "model": "m",
    }
    streamed = {
        "type": "agent_stream",
        "chatId": "c1",
        "agentName": "frontend",
        "messageId": "cd2b",
        "position": 57,
        "content": "abc ",
    }
    assert [*words.said(piece)] == [streamed]  # type: ignore[arg-type]
    assert [*words.said({**piece, "kind": "start"})] == []  # type: ignore[typeddict-item]
    thought = [*words.said({**piece, "kind": "reasoning"})]  # type: ignore[typeddict-item]
    assert thought == [{**streamed, "type": "agent_thinking"}]
    whole = [*words.said({**piece, "kind": "reset"})]  # type: ignore[typeddict-item]
    assert whole == [{**streamed, "replaces": True}]
