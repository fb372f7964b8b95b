"""Functions and MCP servers in whole runs: uses are recorded, and those in doubt wait for people."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onward import Onward, ToolUse
from onward.agents.model import ToolResult
from onward.agents.prices import read_prices
from onward.agents.step.handler import AgentHandler
from onward.agents.tools.functions import FunctionTools, function_tool
from onward.agents.tools.port import ToolRules, ToolSource
from onward.agents.tools.toolbox import Toolbox
from onward.machine.decide.calls import calls_in_doubt
from onward.model.gate import Answer
from onward.model.run import RunStatus
from onward.redact.redactor import NOTHING_SECRET, Redactor
from onward.testing.clock import ManualClock, SeededDice
from tests.agents.test_agent_step import NAME, Scripted, calls, model
from tests.agents.test_tool_loop import shown
from tests.agents.tooling import asks, wish
from tests.agents.tools.mcp_servers import program
from tests.world import Process, World, line


async def working(
    world: World,
    scripted: Scripted,
    *sources: ToolSource,
    redactor: Redactor = NOTHING_SECRET,
    clock: ManualClock | None = None,
    **changed: Any,
) -> Process:
    """A process whose agents have the tools of these sources."""
    clock = clock or ManualClock(autojump=False)  # real threads and programs take their own time
    toolbox = Toolbox(sources, changed, default=("*",))
    prices = read_prices({NAME: {"input": 1, "output": 2}})
    agent = AgentHandler(scripted, prices, clock, SeededDice(1), toolbox)
    return await world.process(handlers={"codergen": agent}, clock=clock, redactor=redactor)


async def test_an_agent_uses_functions_and_sees_what_they_answer(world: World) -> None:
    app, keys = Onward(":memory:"), list[str]()

    @app.tool
    def add(a: int, b: int, use: ToolUse) -> dict[str, int]:
        """Add two numbers."""
        keys.append(use.key)
        return {"sum": a + b}

    @app.tool
    async def fail(why: str) -> None:
        """Fail."""
        raise ValueError(why)

    wishes = [
        wish("add", '{"a": 1, "b": 2}', "c1"),
        wish("add", '{"a": "one"}', "c2"),
        wish("fail", '{"why": "no reason"}', "c3"),
    ]
    scripted = model(asks(*wishes))
    process = await working(world, scripted, FunctionTools(app.tools))
    run = await process.start(line("work"))
    assert run.status is RunStatus.COMPLETED
    assert shown(scripted) == [
        ToolResult("c1", '{"sum":3}'),
        ToolResult(
            "c2",
            'The arguments do not fit: `b` is missing; `a` must be an integer, not "one".',
            is_error=True,
        ),
        ToolResult("c3", "ValueError: no reason", is_error=True),
    ]
    assert keys == [f"{run.id}/work#1/m1.t1"]
    assert [one.call for one in await calls(process)] == ["m1", "m1.t1", "m1.t3", "m2"]
    assert await process.is_sound()


SECRET = "canary-0123456789"


async def test_a_secret_that_a_tool_answers_reaches_neither_the_model_nor_the_log(
    world: World, tmp_path: Path
) -> None:
    """S16: a function returns it, another raises it, and a server prints its environment."""
    app = Onward(":memory:")

    @app.tool
    def tell() -> dict[str, str]:
        """Tell it."""
        return {"key": SECRET}

    @app.tool
    async def fail() -> None:
        """Fail with it."""
        raise ValueError(f"cannot use {SECRET}")

    redactor = Redactor()
    redactor.add("SECRET_TOKEN", SECRET)
    wishes = [wish("tell", id="c1"), wish("fail", id="c2"), wish("files__environment", id="c3")]
    scripted = model(asks(*wishes))
    async with program(tmp_path, env=["SECRET_TOKEN"]) as client:
        sources = FunctionTools(app.tools), client.tools
        process = await working(
            world, scripted, *sources, redactor=redactor, files__environment={"approval": False}
        )
        assert (await process.start(line("work"))).status is RunStatus.COMPLETED
    answers = shown(scripted)
    assert [one.is_error for one in answers] == [False, True, False]
    assert all("[redacted SECRET_TOKEN]" in one.text for one in answers)
    assert SECRET not in str(scripted.received)
    assert all(SECRET not in str(one) for one in await calls(process))


@pytest.mark.slow
async def test_every_use_of_a_server_waits_for_approval(world: World, tmp_path: Path) -> None:
    async with program(tmp_path) as client:
        scripted = model(asks(wish("files__echo", '{"text": "hi"}')))
        process = await working(world, scripted, client.tools)
        run = await process.start(line("work"))
        assert run.status is RunStatus.WAITING
        assert "tools/call" not in [one.get("method") for one in client.heard()]
        run = (await process.engine.answer(run.id, Answer.approve(), by="me")).run
        assert run.status is RunStatus.COMPLETED
        assert shown(scripted) == [ToolResult("c1", "echo: hi")]
        assert len(client.pids()) == 1


@pytest.mark.slow
async def test_a_use_in_which_its_server_died_is_in_doubt(world: World, tmp_path: Path) -> None:
    async with program(tmp_path) as client:
        scripted = model(asks(wish("files__crash")))
        process = await working(world, scripted, client.tools, files__crash={"approval": False})
        run = await process.start(line("work"))
        assert run.status is RunStatus.INTERRUPTED
        assert list(calls_in_doubt(run.open_steps["work#1"])) == ["m1.t1"]
        assert await process.is_sound()


async def outlived(
    world: World, tool: Callable[..., Any], began: threading.Event
) -> tuple[Process, Scripted]:
    """A process whose agent used a function that is at work long after its time limit."""
    scripted, clock = model(asks(wish("stubborn"))), ManualClock(autojump=False)
    made = function_tool(tool, rules=ToolRules(time_limit_s=5), where="here", name="stubborn", clock=clock)
    process = await working(world, scripted, FunctionTools({"stubborn": made}), clock=clock)
    running = asyncio.create_task(process.start(line("work", work="max_retries=3")))
    await asyncio.to_thread(began.wait, 60)
    while not running.done():
        await clock.until_idle()
        clock.advance(1)  # not all at once: a slow database must not miss its renewals
        for _ in range(20):
            await asyncio.sleep(0)
    await running
    return process, scripted


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_step_is_in_doubt_while_a_function_that_cannot_be_ended_may_still_run(
    world: World, kind: str
) -> None:
    """Although it may be repeated: no second use may begin beside the first."""
    began, go, uses = threading.Event(), threading.Event(), list[str]()

    async def swallowing() -> str:
        """Ignore that it is cancelled."""
        uses.append(kind)
        began.set()
        while not go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        return "late"

    def waiting() -> str:
        """Wait."""
        uses.append(kind)
        began.set()
        go.wait(60)
        return "late"

    process, scripted = await outlived(world, swallowing if kind == "async" else waiting, began)
    run = (await process.load()).run
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "in_doubt")
    assert "took longer than its time limit of 5 s, and its " in run.detail
    assert (len(uses), len(scripted.received)) == (1, 1)
    go.set()
