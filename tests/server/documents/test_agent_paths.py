"""Document 000's paths: literal requests and replies, without a socket or a page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.chats.desk import GATED, SITE, Desk
from tests.conformance.handlers import Doorway
from tests.server.door import Door, door_of
from tests.world import World, in_memory

CHAT = "c1"
MESSAGE = "build me a site"


@dataclass
class Talk:
    """A chat with a server, and what executes its runs."""

    door: Door
    desk: Desk

    async def say(self, body: dict[str, Any], path: str = "/agents/run", role: str = "operator") -> Any:
        reply = await self.door.post(path, {"chatId": CHAT, **body}, role=role)
        return {**reply.json, "http": reply.status}

    async def status(self, chat: str = CHAT) -> Any:
        reply = await self.door.get(f"/agents/status?chatId={chat}", role="viewer")
        assert reply.status == 200, reply.body
        return reply.json

    async def killed_in(self, node: str) -> str:
        """A run whose server died in this agent, as the next server finds it."""
        said = await self.say({"message": MESSAGE})
        inside = Doorway()
        other = await self.door.process.world.process({node: [inside]})
        working = asyncio.create_task(Desk(other).work())
        await inside.entered()
        await other.die()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await self.door.process.engine.recover()
        run: str = said["pipelineRunId"]
        return run


@pytest.fixture
async def talk() -> AsyncIterator[Talk]:
    async with in_memory() as world:
        yield await talk_of(world, SITE)


async def talk_of(world: World, source: str) -> Talk:
    door = await door_of(world, process=await world.process())
    desk = Desk(door.process)
    await desk.register(source)
    return Talk(door, desk)


async def test_a_message_starts_a_pipeline_whichever_path_it_comes_by(talk: Talk) -> None:
    """S0-40, S0-42, S0-43, O0-14: `/messages/send` is the same; both store the message."""
    said = await talk.say({"message": MESSAGE})
    (run,) = await talk.desk.runs(CHAT)
    assert said == {
        "status": "started",
        "chatId": CHAT,
        "pipelineRunId": run.id,
        "messageId": said["messageId"],
        "http": 200,
    }
    await talk.desk.work()
    second = await talk.say({"message": MESSAGE, "resume": False}, "/messages/send")
    assert (second["status"], second["http"]) == ("started", 200)
    assert len(await talk.desk.runs(CHAT)) == 2


async def test_resume_without_anything_stopped_is_a_start(talk: Talk) -> None:
    """S0-28, S0-41."""
    assert (await talk.say({"message": MESSAGE, "resume": True}))["status"] == "started"


async def test_a_stopped_pipeline_is_found_by_its_chat_and_resumed(talk: Talk) -> None:
    """S0-16, S0-17, S0-18, S0-25, S0-41, S0-44, B0-13, O0-12, O0-14."""
    run = await talk.killed_in("design")
    found = await talk.status()
    assert (found["running"], found["interruptedPipelineId"]) == (False, run)
    assert (found["interruptedReason"], found["pendingCheckpoint"]) == ("restart", None)
    assert [(row["agent_name"], row["status"]) for row in found["executions"]] == [
        ("research", "completed"),
        ("design", "failed"),
    ]
    said = await talk.say({"message": "continue", "resume": True})
    assert (said["status"], said["pipelineRunId"]) == ("resumed", run)
    assert (await talk.status())["running"] is True
    await talk.desk.work()
    found = await talk.status()
    assert (found["running"], found["interruptedPipelineId"]) == (False, None)
    assert [row["status"] for row in found["executions"]] == ["completed"] * 3
    assert talk.door.process.agent.ledger.steps == ["research#1", "design#1", "design#1", "check#1"]


async def test_a_follow_up_resumes_without_the_flag_and_a_button_needs_no_words(talk: Talk) -> None:
    """S0-42, S0-6."""
    run = await talk.killed_in("design")
    assert (await talk.say({"message": "continue?"}))["status"] == "resumed"
    await talk.desk.work()
    (done,) = await talk.desk.runs(CHAT)
    assert (done.id, done.context["user_message"]) == (run, MESSAGE)


async def test_the_resume_button_sends_no_message(talk: Talk) -> None:
    """S0-17."""
    run = await talk.killed_in("design")
    said = await talk.say({"resume": True})
    assert (said["status"], said["pipelineRunId"]) == ("resumed", run)


async def test_a_retry_from_scratch_is_a_new_run_with_the_same_message(talk: Talk) -> None:
    """B0-1, O0-14: the old run is superseded, and no message is needed."""
    old = await talk.killed_in("design")
    said = await talk.say({"fresh": True})
    assert said["status"] == "started"
    new, superseded = sorted(await talk.desk.runs(CHAT), key=lambda run: run.id == old)
    assert new.context["user_message"] == MESSAGE
    assert (superseded.status.value, superseded.reason) == ("cancelled", "superseded")


async def test_a_wish_to_resume_and_to_start_anew_contradict_each_other(talk: Talk) -> None:
    said = await talk.say({"message": "go", "fresh": True, "resume": True})
    assert (said["http"], said["code"]) == (422, "invalid_input")


async def test_a_dismissed_run_is_neither_offered_nor_resumed(talk: Talk) -> None:
    """B0-2: it is stored, so the next message starts anew."""
    run = await talk.killed_in("design")
    assert (await talk.door.post(f"/api/runs/{run}/dismiss", role="operator")).status == 200
    assert (await talk.status())["interruptedPipelineId"] is None
    assert (await talk.say({"message": "something else"}))["status"] == "started"


async def test_a_resume_over_its_limit_is_refused_in_the_reply_and_told_in_the_chat(talk: Talk) -> None:
    """S0-30, S0-36, B0-16: after all checks, not before them, and it survives a refresh."""
    run = await talk.killed_in("design")
    from tests.chats.test_limits import memory_of, scope

    memory_of(talk.door.process.store)[f"chat/{CHAT}"] = scope(f"chat/{CHAT}", tokens=100, spent=(100, 0))
    said = await talk.say({"message": "continue", "resume": True})
    assert (said["http"], said["errorType"], said["chatId"]) == (409, "cost_limit", CHAT)
    assert "raise the limit" in said["detail"].lower()
    assert said["messageId"]
    assert said["detail"] in await talk.desk.spoken(chat=CHAT)
    assert (await talk.status())["interruptedPipelineId"] == run, "it can still be resumed"


async def test_of_a_chat_that_nobody_knows_nothing_is_running(talk: Talk) -> None:
    """S0-44."""
    assert await talk.status("nobody") == {
        "running": False,
        "executions": [],
        "interruptedPipelineId": None,
        "interruptedReason": None,
        "pendingCheckpoint": None,
    }


async def test_what_runs_in_a_chat_is_stopped_and_can_be_resumed(talk: Talk) -> None:
    """B0-13, O0-12."""
    said = await talk.say({"message": MESSAGE})
    reply = await talk.door.post("/agents/stop", {"chatId": CHAT}, role="operator")
    run = said["pipelineRunId"]
    assert reply.json == {"status": "stopped", "chatId": CHAT, "pipelineRunId": run}
    assert (await talk.status())["interruptedPipelineId"] == run
    again = await talk.door.post("/agents/stop", {"chatId": CHAT}, role="operator")
    assert (again.status, again.code) == (409, "invalid_state")


async def test_a_checkpoint_is_answered_once_by_the_place_of_the_option() -> None:
    """S0-12, S0-14, O0-11, B0-8: whoever comes second is told that it is resolved."""
    async with in_memory() as world:
        talk = await talk_of(world, GATED)
        await talk.say({"message": MESSAGE})
        await talk.desk.work()
        checkpoint = (await talk.status())["pendingCheckpoint"]
        assert checkpoint["id"] == "ask#1"
        answer = {"chatId": CHAT, "checkpointId": "ask#1", "selectedIndex": 1}
        refused = await talk.door.post("/agents/checkpoint", answer, role="operator")
        assert (refused.status, refused.code) == (403, "wrong_role")
        none_such = await talk.door.post(
            "/agents/checkpoint", {**answer, "selectedIndex": 7}, role="approver"
        )
        assert (none_such.status, none_such.code) == (422, "invalid_input")
        reply = await talk.door.post("/agents/checkpoint", answer, role="approver")
        assert (reply.status, reply.json) == (200, {"status": "resolved"})
        second = await talk.door.post("/agents/checkpoint", answer, role="approver")
        assert (second.status, second.code) == (404, "checkpoint_not_found")
        unknown = await talk.door.post("/agents/checkpoint", {**answer, "chatId": "x"}, role="approver")
        assert unknown.status == 404
        await talk.desk.work()
        (run,) = await talk.desk.runs(CHAT)
        assert run.status.value == "completed"


async def test_a_message_answers_a_checkpoint_only_for_somebody_who_may() -> None:
    """Without the approver's role it shows the checkpoint instead."""
    async with in_memory() as world:
        talk = await talk_of(world, GATED)
        run = (await talk.say({"message": MESSAGE}))["pipelineRunId"]
        await talk.desk.work()
        shown = await talk.say({"message": "C"})
        assert (shown["status"], shown["pipelineRunId"]) == ("gate", run)
        await talk.door.token("operator", "approver")
        answered = await talk.say({"message": "C"}, role="operator-approver")
        assert answered["status"] == "answered"


async def test_the_limits_of_everybody_are_read_changed_and_reset(talk: Talk) -> None:
    """O0-5."""
    shown = await talk.door.get("/settings", role="viewer")
    assert shown.json["limits"]["maxTokensPerChat"] == 500_000
    wish = {"maxTokensPerChat": 600_000, "maxCostPerDay": 12.5}
    assert (await talk.door.ask("PUT", "/settings/limits", wish, role="operator")).status == 403
    changed = await talk.door.ask("PUT", "/settings/limits", wish)
    assert changed.json["limits"] == {
        "maxTokensPerChat": 600_000,
        "maxAgentCallsPerRun": 30,
        "maxCostPerDay": 12.5,
        "maxCostPerProject": 0,
    }
    assert changed.json["defaults"]["maxTokensPerChat"] == 500_000
    wrong = await talk.door.ask("PUT", "/settings/limits", {"maxTokensPerChat": 1, "maxCostPerDay": -1})
    assert wrong.status == 422
    assert (await talk.door.get("/settings")).json["limits"]["maxTokensPerChat"] == 600_000, "nothing is set"
    reset = await talk.door.ask("DELETE", "/settings/limits")
    assert reset.json["limits"] == reset.json["defaults"]


@pytest.mark.parametrize(
    ("body", "status"),
    [({"chatId": CHAT, "messages": "x"}, 422), ({"message": "x"}, 422), ({"chatId": CHAT}, 422)],
)
async def test_a_message_with_other_fields_or_without_words_is_refused(
    talk: Talk, body: dict[str, Any], status: int
) -> None:
    assert (await talk.door.post("/agents/run", body, role="operator")).status == status


async def test_a_message_under_one_key_is_said_once(talk: Talk) -> None:
    how = {"Idempotency-Key": "k1"}
    body = {"chatId": CHAT, "message": MESSAGE}
    replies = [await talk.door.post("/agents/run", body, headers=how) for _ in range(2)]
    assert replies[0].json["messageId"] == replies[1].json["messageId"]
    assert len(await talk.desk.runs(CHAT)) == 1
