"""What a stopped run says of itself: each banner of a real run, its sentence, its stops and its ticks."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from onward.engine.control.requests import StartRequest
from onward.engine.stop import StopSwitch
from onward.model.gate import Answer, Verdict
from onward.model.result import Result
from onward.model.row import Offer
from onward.model.run import RunStatus
from onward.operations.local.look import LocalLook
from onward.operations.requests import GetRun, ShowRun
from onward.replies.runs import BannerShown, RunState
from onward.replies.steps import RunPage
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.store import Store
from onward.testing.clock import ManualClock
from onward.testing.script import ScriptedReply, ScriptRule
from tests.agents.test_agent_step import at, model
from tests.conformance.faults import Died, Fault, FaultyStore
from tests.conformance.handlers import Doorway, Scripted
from tests.world import Process, World, line

LIMITED = ScriptedReply(status=429, retry_after="38")


def look_of(process: Process) -> LocalLook:
    engine = process.engine
    return LocalLook(process.store, process.clock, lambda: engine.leftovers, lambda: engine.sources)


async def state(process: Process, run_id: str = "run") -> RunState:
    """The run as a page reads it; its row and its log say the same."""
    listed, shown = await process.shown(run_id), await look_of(process).get_run(GetRun(run=run_id))
    plain: dict[str, object] = {**shown}
    if shown["status"] == "queued":  # who could take it is read apart
        plain |= {"now": listed["now"], "waiting_for": None}
    assert {name: plain[name] for name in listed} == listed
    return shown


async def page(process: Process) -> RunPage:
    return await look_of(process).show_run(ShowRun(run="run"))


def banner(shown: RunState) -> BannerShown:
    found = shown["banner"]
    assert found is not None
    return found


async def died_in(world: World, node: str, *, is_server: bool = False) -> Process:
    """Another process than the one that died in this step, behind an answered one."""
    rule = ScriptRule(contains=node, times=1, reply=ScriptedReply(text="cut"))
    first = await at(world, model(rule), wrap=partial(FaultyStore, fault=Fault.DIE_BEFORE, at=9))
    if is_server:
        await first.store.store.workers.register(Offer(("codergen",)))
    with contextlib.suppress(Died):
        await first.start(line("a", "b", "c"))
    await first.die()
    return await at(world, model())


async def die_inside(process: Process, running: asyncio.Future[Any], doorway: Doorway) -> None:
    """End the process while it is inside a step."""
    await doorway.entered()
    await process.die()
    running.cancel()
    with contextlib.suppress(Died, asyncio.CancelledError):
        await running


@contextlib.asynccontextmanager
async def stuck(
    world: World, source: str, node: str, clock: ManualClock | None = None, **start: Any
) -> AsyncIterator[Process]:
    """A process that is inside a step of this node, and dies there at the end."""
    doorway = Doorway()
    process = await world.process(handlers={"codergen": Scripted({node: [doorway]})}, clock=clock)
    running = asyncio.create_task(process.start(source, **start))
    await doorway.entered()
    yield process
    await die_inside(process, running, doorway)


async def test_a_run_that_is_well_has_no_banner_and_says_what_it_did(world: World) -> None:
    process = await at(world, model())
    await process.start(line("a", "b"))
    shown = await state(process)
    assert (shown["banner"], shown["stops"], shown["now"]) == (None, [], "Completed 4 steps.")
    assert shown["steps_planned"] == 4
    assert [tick["step"] for tick in shown["ticks"]] == ["start", "a", "b", "exit"]
    assert {tick["state"] for tick in shown["ticks"]} == {"finished"}
    answered = (await look_of(process).show_run(ShowRun(run="run")))["timeline"]
    assert shown["tokens"] == sum(row["tokens"] for row in answered if row["kind"] == "call") > 0
    assert shown["cost"] == sum(row["cost"] or 0 for row in answered if row["kind"] == "step") > 0
    assert [row["cost"] for row in answered if row["label"] in ("start", "exit")] == [None, None]
    assert shown["kept"] == {"steps": 4, "answers": 2, "cost": shown["cost"], "again": 0}


async def test_a_run_whose_process_died_says_what_is_kept_and_what_is_asked_again(world: World) -> None:
    """S0-1: decided from what is stored, before anybody has looked after the run, and after."""
    process = await died_in(world, "b")
    before = await state(process)
    shown = banner(before)
    assert (shown["kind"], shown["colour"]) == ("crash", "amber")
    assert shown["title"] == "Process died. Pipeline interrupted."
    assert shown["actions"] == ["resume", "fresh", "dismiss"]
    assert "Kept: " in shown["line"]
    await process.engine.sweep()
    after = await state(process)
    assert banner(after) == shown
    (stop,) = after["stops"]
    assert (stop["reason"], stop["ended_at"]) == ("crash", None)
    assert before["now"] == after["now"]
    await process.resume(by="ines")
    again = await state(process)
    assert again["banner"] is None
    (stop,) = again["stops"]
    assert stop["ended_at"] is not None
    assert stop["by"] == "ines"
    assert await process.is_sound()


async def test_a_step_that_was_cut_off_is_interrupted_and_starts_again(world: World) -> None:
    async with stuck(world, line("a", "b"), "b") as process:
        shown = await state(process)
        assert shown["now"] == "b is running."
        assert [tick["state"] for tick in shown["ticks"]] == ["finished", "finished", "open", "planned"]
    shown = await state(await world.process())
    assert [tick["state"] for tick in shown["ticks"]] == ["finished", "finished", "interrupted", "planned"]
    assert banner(shown)["line"].endswith("Kept: 2 steps. Resume starts b again.")
    assert shown["now"].endswith(" died in b · 2 steps kept.")


async def test_a_server_that_restarted_says_so(world: World) -> None:
    process = await died_in(world, "b", is_server=True)
    await process.engine.recover()
    shown = await state(process)
    assert banner(shown)["title"] == "Server restarted. Pipeline interrupted."
    assert (banner(shown)["kind"], banner(shown)["step"]) == ("restart", "b#1")


@pytest.mark.parametrize(
    ("limits", "title"),
    [
        ({"calls": 1}, "Call limit reached. Pipeline paused."),
        ({"tokens": 10}, "Token limit reached. Pipeline paused."),
        ({"cost": 10}, "Cost limit reached. Pipeline paused."),
    ],
)
async def test_a_limit_is_named_with_what_is_spent_of_it(
    world: World, limits: dict[str, int | None], title: str
) -> None:
    """S0-11: Resume is offered once the saved limit leaves room."""
    process = await at(world, model())
    await process.store.limits.change("chat/c", limits)
    run = await process.start(line("a", "b"), chat="c")
    assert run.reason == "limit"
    found = banner(await state(process))
    assert (found["kind"], found["title"]) == ("limit", title)
    assert found["line"].startswith("This chat used ")
    assert found["actions"] == ["raise_limit", "dismiss"]
    assert found["limit"] is not None
    (measure,) = limits
    await process.store.limits.change("chat/c", {measure: 10_000_000})
    assert banner(await state(process))["actions"] == ["raise_limit", "resume", "dismiss"]


async def test_a_provider_that_says_later_gets_a_countdown(world: World) -> None:
    clock = ManualClock()
    process = await at(world, model(ScriptRule(nth=1, reply=LIMITED), clock=clock), clock=clock)
    await process.engine.submit(
        process.pipeline(line("a")), StartRequest(run_id="run", on_owner_loss="requeue")
    )
    assert (await state(process))["now"].startswith("Waits for a worker")
    taken = await process.engine.take(StopSwitch())
    assert taken is not None
    assert (await taken[1]).run.reason == "rate_limit"
    found = banner(await state(process))
    assert found["title"].startswith("The provider asks to wait. Resumes by itself in 0:")
    assert (found["kind"], found["actions"]) == ("rate_limit", ["try_now"])
    assert found["until"] is not None
    assert re.match(r"[a-z]+:", found["line"]), "a model is written as it is called"


async def test_a_step_in_doubt_comes_before_everything_else(world: World) -> None:
    async with stuck(world, line("pay", pay="repeatable=false"), "pay"):
        pass
    other = await world.process()
    shown = await state(other)
    found = banner(shown)
    assert (found["kind"], found["title"]) == ("in_doubt", "pay may or may not have run.")
    assert found["actions"] == ["retry", "skip", "continue", "abort"]
    assert found["step"] == "pay#1"
    assert shown["now"] == "pay may or may not have run; it must not be repeated blindly."


async def test_a_step_that_failed_says_after_how_many_attempts_and_why(world: World) -> None:
    refusing = Scripted({"b": [Result.fail("no such file")]})
    process = await world.process(handlers={"codergen": refusing})
    run = await process.start(line("a", "b", b="max_retries=2"))
    assert run.status is RunStatus.FAILED
    found = banner(await state(process))
    assert found["kind"] == "failed"
    assert found["title"].startswith("b failed after ")
    assert "o such file" in found["line"]
    assert (found["colour"], found["actions"]) == ("red", ["resume", "dismiss"])


GATE = """digraph g { start [shape=Mdiamond] exit [shape=Msquare]
    ask [shape=hexagon, label="Ship?"] start -> ask ask -> exit [label="[Y] Yes"] }"""


async def test_a_run_that_was_rejected_can_only_be_forked(world: World) -> None:
    process = await world.process()
    await process.start(GATE)
    waiting = await state(process)
    assert (waiting["banner"], waiting["now"]) == (None, "Waits for an answer at ask.")
    assert [tick["state"] for tick in waiting["ticks"]] == ["finished", "waiting", "planned"]
    await process.engine.answer("run", Answer(verdict=Verdict.REJECT, text="not like this"), by="ines")
    found = banner(await state(process))
    assert (found["kind"], found["colour"], found["actions"]) == ("final", "red", ["fork"])
    assert found["title"].endswith(".")


async def test_a_process_that_dies_again_and_again_is_stopped_with_a_number() -> None:
    clock = ManualClock()
    database = MemoryDatabase(clock.now_us)

    async def connect() -> Store:
        return database.connect()

    world = World(connect, "memory")
    async with stuck(world, line("a"), "a", clock=clock, on_owner_loss="requeue"):
        pass
    for _ in range(4):
        doorway = Doorway()
        process = await world.process(handlers={"codergen": Scripted({"a": [doorway]})}, clock=clock)
        await process.engine.sweep()
        clock.advance(100)
        taken = await process.engine.take(StopSwitch())
        assert taken is not None
        await die_inside(process, asyncio.ensure_future(taken[1]), doorway)
    other = await world.process(clock=clock)
    await other.engine.sweep()
    shown = await state(other)
    found = banner(shown)
    assert found["title"] == "Stopped: its process died 5 times at the same step."
    assert (found["kind"], found["colour"]) == ("crash_loop", "red")
    assert found["actions"] == ["open_log", "resume"]
    assert len(shown["stops"]) == 5
    await world.close()


async def test_a_pause_says_by_whom_and_after_which_step(world: World) -> None:
    doorway = Doorway()
    process = await world.process(handlers={"codergen": Scripted({"b": [doorway]})})
    running = asyncio.create_task(process.start(line("a", "b", "c")))
    await doorway.entered()
    await process.engine.pause("run", by="ines")
    doorway.open()
    assert (await running).status is RunStatus.PAUSED
    shown = await state(process)
    found = banner(shown)
    assert (found["kind"], found["title"]) == ("paused", "Paused by ines after b.")
    assert (found["colour"], found["actions"]) == ("slate", ["resume", "dismiss"])
    assert found["line"] == "Kept: 3 steps. Nothing is done again."
    assert shown["now"] == "Paused by ines after b."
    assert [stop["says"] for stop in shown["stops"]] == ["Paused by ines."]
    await process.engine.dismiss("run", by="ines")
    assert (await state(process))["banner"] is None
