"""Document 000's replies, from real chats: its status row, checkpoints and limits."""

from __future__ import annotations

import json

import msgspec
import pytest

from onward.errors import InvalidInput
from onward.operations.local.chats import LocalChats
from onward.operations.local.database import LocalLimits
from onward.operations.local.look import LocalLook
from onward.operations.requests import ListLimits, SendMessage, ShowChat, ShowRun
from onward.replies.documents import AgentsStatus
from onward.replies.runs import ChoiceOffered
from onward.server.documents.agents import (
    NOTHING,
    RESTARTED,
    AgentWork,
    LimitsWanted,
    agents_status,
    checkpoint_open,
    choice_at,
    limit_changes,
    limit_resets,
    message_taken,
    settings_shown,
)
from tests.chats.desk import GATED, Desk, desk_of
from tests.chats.test_dispatch import killed
from tests.world import World

pytestmark = pytest.mark.anyio


async def status_of(desk: Desk) -> AgentsStatus:
    """How the chat stands, in document 000's words."""
    engine = desk.process.engine
    page = await LocalChats(engine, desk.process.clock, desk.settings).show_chat(ShowChat(chat="talk"))
    look = LocalLook(desk.process.store, desk.process.clock, lambda: engine.leftovers, lambda: engine.sources)
    shown = await look.show_run(ShowRun(run=page["runs"][0]["id"]))
    works = [AgentWork(step, "do it", "done") for step in shown["steps"] if step["node"] != "start"]
    stopped = next((run for run in page["runs"] if run["id"] == page["interrupted_run"]), None)
    return agents_status(page, works, stopped)


async def test_after_a_restart_the_status_names_the_run_the_reason_and_what_each_agent_came_to(
    world: World,
) -> None:
    """S0-16, S0-20, S0-44, B0-9, O0-2, O0-18: what was running has failed by the restart, and what was
    completed is untouched."""
    desk, run = await killed(world, "check")
    await desk.process.engine.recover()
    found = await status_of(desk)
    assert (found["running"], found["interruptedPipelineId"]) == (False, run)
    assert (found["interruptedReason"], found["pendingCheckpoint"]) == ("restart", None)
    rows = {row["agent_name"]: row for row in found["executions"]}
    assert {name: row["status"] for name, row in rows.items()} == {
        "research": "completed",
        "design": "completed",
        "check": "failed",
    }
    research, check = rows["research"], rows["check"]
    assert (research["id"], research["chat_id"]) == (f"{run}/research#1", "talk")
    assert json.loads(research["output"] or "") == {"content": "done"}
    assert (research["error"], research["retry_count"]) == (None, 0)
    assert research["started_at"] is not None
    assert research["started_at"] <= (research["completed_at"] or 0)
    assert (check["error"], check["completed_at"]) == (RESTARTED, None)


async def test_a_dismissed_run_is_not_offered_any_more(world: World) -> None:
    """B0-2."""
    desk, run = await killed(world, "check")
    await desk.process.engine.recover()
    await desk.process.engine.dismiss(run)
    found = await status_of(desk)
    assert (found["interruptedPipelineId"], found["interruptedReason"]) == (None, None)


async def test_an_open_checkpoint_is_in_the_status(world: World) -> None:
    """S0-12, O0-11: with its options in order."""
    desk = await desk_of(world, source=GATED)
    await desk.say("build")
    await desk.work()
    found = (await status_of(desk))["pendingCheckpoint"]
    assert found is not None
    assert (found["id"], found["label"], found["type"]) == ("ask#1", "Which direction?", "approve")
    assert [one["name"] for one in found["options"]] == ["[B] Bold", "[C] Calm"]


async def test_an_option_is_selected_by_its_place(world: World) -> None:
    desk = await desk_of(world, source=GATED)
    await desk.say("build")
    await desk.work()
    page = await LocalChats(desk.process.engine, desk.process.clock, desk.settings).show_chat(
        ShowChat(chat="talk")
    )
    (gate,) = page["runs"][0]["gates"]
    assert [choice_at(gate, index) for index in (0, 1)] == ["B", "C"]
    for none_such in (2, -1):
        with pytest.raises(InvalidInput, match="use 0 to 1"):
            choice_at(gate, none_such)
    colours: ChoiceOffered = {**gate["choices"][0], "data": {"description": "loud", "colors": ["#f00"]}}
    shown = checkpoint_open({**gate, "choices": [colours], "deadline": "2999-01-01T00:00:00Z"})
    assert (shown["type"], shown["options"][0]["description"]) == ("design_direction", "loud")
    assert (shown["timeoutMs"] or 0) > 0


def test_of_a_chat_that_nobody_knows_nothing_is_said() -> None:
    assert NOTHING["executions"] == []
    assert not NOTHING["running"]


async def test_a_message_is_answered_with_its_run_and_its_own_id(world: World) -> None:
    """S0-40, S0-43, O0-14."""
    desk = await desk_of(world)
    chats = LocalChats(desk.process.engine, desk.process.clock, desk.settings)
    first = await chats.send_message(SendMessage(chat="talk", text="build me a site"))
    (run,) = await desk.runs()
    assert message_taken(first) == {
        "status": "started",
        "chatId": "talk",
        "pipelineRunId": run.id,
        "messageId": first["message"],
    }
    waits = message_taken(await chats.send_message(SendMessage(chat="talk", text="and another")))
    assert (waits["status"], waits["pipelineRunId"]) == ("queued", run.id)
    assert "waits until it has ended" in waits["notice"]


async def test_the_settings_are_the_limits_that_count_for_everybody(world: World) -> None:
    """O0-5: some are changed, in dollars; a reset brings the defaults back."""
    desk = await desk_of(world)
    limits = LocalLimits(desk.process.store, desk.process.clock)
    shown = settings_shown(await limits.list_limits(ListLimits()))
    first = {
        "maxTokensPerChat": 500_000,
        "maxAgentCallsPerRun": 30,
        "maxCostPerDay": 0,
        "maxCostPerProject": 0,
    }
    assert shown == {"limits": first, "defaults": first}
    wanted = msgspec.json.decode(b'{"maxTokensPerChat": 7, "maxCostPerDay": 2.5}', type=LimitsWanted)
    for change in limit_changes(wanted, by="ann"):
        await limits.set_limit(change)
    shown = settings_shown(await limits.list_limits(ListLimits()))
    assert shown == {
        "limits": {**first, "maxTokensPerChat": 7, "maxCostPerDay": 2.5},
        "defaults": first,
    }
    for reset in limit_resets(by="ann"):
        await limits.reset_limits(reset)
    assert settings_shown(await limits.list_limits(ListLimits()))["limits"] == first


@pytest.mark.parametrize("cost", [-1.0, 1e300])
def test_a_cost_that_cannot_be_a_limit_is_refused(cost: float) -> None:
    with pytest.raises(InvalidInput):
        limit_changes(LimitsWanted(max_cost_per_day=cost), by="ann")
