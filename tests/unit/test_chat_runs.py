"""The tests of runs that document 000 lists, under clear names: each says what must hold of a chat's runs."""

from __future__ import annotations

import asyncio

import pytest

from onward.chats.runs import runs_of
from onward.engine.control.requests import StartRequest
from onward.model.chat import facts_of
from onward.model.events import AttemptInterrupted
from onward.model.result import Result
from onward.model.run import RunStatus
from onward.operations.local.chats import LocalChats
from onward.operations.requests import ShowChat
from onward.replies.chats import ChatPage
from tests.chats.desk import SITE, Desk, desk_of
from tests.chats.test_dispatch import killed
from tests.conformance.handlers import Act, Doorway
from tests.world import World

pytestmark = pytest.mark.anyio


async def shown(desk: Desk) -> ChatPage:
    """The chat as a client is shown it."""
    chats = LocalChats(desk.process.engine, desk.process.clock, desk.settings)
    return await chats.show_chat(ShowChat(chat="talk"))


async def test_the_row_of_a_run_has_its_fields(world: World) -> None:
    """S0-1, S0-2: one row for each execution, and both times."""
    desk = await desk_of(world)
    await desk.say("build me a site")
    await desk.work()
    (listed,) = await runs_of(desk.process.engine, "talk", tuple(RunStatus))
    row, facts = listed.row, facts_of((await desk.runs())[0])
    assert (row.chat, row.status, row.pipeline) == ("talk", RunStatus.COMPLETED, "site")
    assert row.created_at_us <= (row.ended_at_us or 0)
    assert facts.planned_agents == ("research", "design", "check")


async def test_without_an_interrupted_run_none_is_found(world: World) -> None:
    """S0-16, S0-28."""
    desk = await desk_of(world)
    await desk.say("build me a site")
    await desk.work()
    assert (await shown(desk))["interrupted_run"] is None


async def test_the_interrupted_run_of_a_chat_is_found(world: World) -> None:
    """S0-16, S0-18: also before a sweep has marked it."""
    desk, run_id = await killed(world, "check")
    assert (await shown(desk))["interrupted_run"] == run_id
    await desk.process.engine.sweep()
    assert (await shown(desk))["interrupted_run"] == run_id


async def test_the_most_recent_interrupted_run_is_found(world: World) -> None:
    """S0-18."""
    desk, old = await killed(world, "check")
    await desk.process.engine.sweep()
    desk.process.clock.advance(5)
    start = desk.process.pipeline(SITE)
    newer = (await desk.process.engine.submit(start, StartRequest(run_id="newer", chat="talk"))).run
    await desk.process.engine.pause(newer.id)
    assert (await shown(desk))["interrupted_run"] == "newer"
    await desk.process.engine.dismiss("newer")
    assert (await shown(desk))["interrupted_run"] == old


async def test_results_of_finished_agents_are_there_again_and_the_plan_leaves_them_out(world: World) -> None:
    """S0-20, S0-21, S0-23, S0-24: known by agent, in what a client is shown."""
    door = Doorway()
    script: dict[str, list[Act]] = {
        "research": [Result.success(**{"research.found": "much"})],
        "check": [door],
    }
    first = await desk_of(world, script)
    await first.say("build me a site")
    working = asyncio.create_task(first.work())
    await door.entered()
    await first.process.die()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    desk = Desk(await world.process())
    (run,) = (await shown(desk))["runs"]
    assert run["planned_agents"] == ["research", "design", "check"]
    assert run["agents_left"] == ["check"]
    assert run["context"]["research.found"] == "much"
    await desk.say("continue?")
    await desk.work()
    assert (await desk.runs())[0].context["research.found"] == "much"
    assert world.ledger.steps == ["research#1", "design#1", "check#1", "check#1"]


async def test_if_every_agent_is_done_nothing_is_left_but_the_end(world: World) -> None:
    """S0-29: the plan is empty, and the run goes straight to what closes it."""
    source = SITE.replace('check [prompt="check"]', 'check [shape=parallelogram, tool_command="true"]')
    desk, run_id = await killed(world, "check", source)
    (run,) = (await shown(desk))["runs"]
    assert run["agents_left"] == []
    await desk.say("continue?")
    (ended,) = await desk.work()
    assert (ended.id, ended.status) == (run_id, RunStatus.COMPLETED)


async def test_a_sweep_closes_what_was_running_and_nothing_else(world: World) -> None:
    """S0-10, S0-15, B0-3: the attempt is closed, the run is interrupted; what had ended stays as it was."""
    desk = await desk_of(world)
    await desk.say("build me a site", "done")
    await desk.work()
    other, run_id = await killed(world, "design")
    swept = await other.process.engine.sweep()
    assert [run.id for run in swept.stopped] == [run_id]
    assert await other.statuses("done") == [("completed", "")]
    assert (await other.process.engine.sweep()).stopped == ()
    kinds = await other.process.kinds(run_id)
    assert kinds.count("RunInterrupted") == 1
    assert AttemptInterrupted.__name__ not in kinds  # the same attempt is executed again


async def test_a_sweep_without_dead_processes_does_nothing(world: World) -> None:
    desk = await desk_of(world)
    await desk.say("build me a site")
    swept = await desk.process.engine.sweep()
    assert (swept.stopped, swept.requeued) == ((), ())


async def test_one_message_in_the_chat_says_that_a_run_was_interrupted(world: World) -> None:
    """O0-2 in the words of the document: one, however often it is looked at."""
    desk, _ = await killed(world, "design")
    for _ in range(3):
        for run in (await desk.process.engine.sweep()).stopped:
            await desk.dispatcher.tell_stop(run)
    await desk.say("continue?")
    assert len([text for text in await desk.spoken() if "is interrupted" in text]) == 1
