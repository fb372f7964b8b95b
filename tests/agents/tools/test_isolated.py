"""Function tools in their own processes, and such that are used alone."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from onward import Onward
from onward.agents.tools.functions import FunctionTools
from onward.agents.tools.port import AgentTool, ToolAnswer, ToolRules
from onward.errors import CallTimedOut, InvalidInput
from onward.model.run import RunStatus
from tests.agents.test_agent_step import model
from tests.agents.test_tool_loop import shown
from tests.agents.tooling import asks, wish, working
from tests.agents.tools.isolated_functions import add, fail, hang
from tests.agents.tools.using import a_step, used
from tests.crash.agents.tools import is_alive
from tests.world import World, line


def tool_of(function: Any, **how: Any) -> AgentTool:
    app = Onward(":memory:")
    app.tool(isolated=True, **how)(function)
    return app.tools[function.__name__]


async def test_an_isolated_tool_answers_from_its_own_process() -> None:
    step = a_step()
    answer = await used(tool_of(add), {"a": 1}, step=step)
    assert answer.text.startswith('{"sum":3,"pid":')
    assert str(os.getpid()) not in answer.text
    assert answer.text.endswith(',"key":"m1.t1","run":"run"}')
    assert step.lines == ["added"]


async def test_what_is_wrong_in_an_isolated_tool_is_an_answer() -> None:
    tool = tool_of(fail)
    assert await used(tool, {"how": "so"}) == ToolAnswer("ValueError: not so", is_error=True)
    assert await used(tool, {"how": "exit"}) == ToolAnswer("SystemExit: 3", is_error=True)
    assert await used(tool, {"how": 7}) == ToolAnswer(
        "the arguments do not fit: Expected `str`, got `int` - at `$.how`", is_error=True
    )
    gone = await used(tool, {"how": "gone"})
    assert (gone.text, gone.is_error) == ("its process was ended by signal 9", True)


async def test_an_isolated_tool_that_must_not_be_repeated_and_dies_is_in_doubt() -> None:
    with pytest.raises(
        CallTimedOut, match=r"it is unknown whether call 'm1.t1' was done: its process was ended"
    ):
        await used(tool_of(fail, repeatable=False), {"how": "gone"})


async def test_an_isolated_tool_is_ended_at_its_time_limit(tmp_path: Path) -> None:
    with pytest.raises(CallTimedOut) as late:
        await used(tool_of(hang), {"place": str(tmp_path)}, time_limit_s=0.2)
    assert not late.value.is_running, "nothing of it is left, so it may be used again"


async def test_a_cancelled_isolated_tool_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    using = asyncio.create_task(used(tool_of(hang), {"place": str(tmp_path)}))
    while len(begun := [int(name) for name in os.listdir(tmp_path)]) < 2:  # noqa: ASYNC110 - a process does it
        await asyncio.sleep(0.01)
    using.cancel()
    await asyncio.wait([using])
    assert not [pid for pid in begun if is_alive(pid)]


def test_what_another_process_cannot_import_is_refused() -> None:
    def inner(a: int) -> int:
        """Nothing."""
        return a

    app = Onward(":memory:")
    with pytest.raises(InvalidInput, match=r"an isolated tool must be a plain function .* inside another"):
        app.tool(isolated=True)(inner)
    with pytest.raises(InvalidInput, match="concurrent is 'no'; write True or False"):
        app.tool(concurrent="no")(add)  # type: ignore[call-overload]


@pytest.mark.parametrize("concurrent", [True, False])
async def test_a_tool_that_is_not_concurrent_is_used_alone(memory: World, concurrent: bool) -> None:
    """Two uses meet, or the second begins when the first has ended."""
    app, met, under_way, most = Onward(":memory:"), threading.Event(), list[int](), list[int]()

    @app.tool(concurrent=concurrent)
    async def visit(n: int) -> str:
        """Visit."""
        under_way.append(n)
        most.append(len(under_way))
        if len(under_way) == 2:
            met.set()
        for _ in range(50):
            await asyncio.sleep(0)
        under_way.remove(n)
        return "ok"

    scripted = model(asks(wish("visit", '{"n": 1}', "c1"), wish("visit", '{"n": 2}', "c2")))
    process = await working(memory, scripted, *(await FunctionTools(app.tools).listed()).tools)
    assert (await process.start(line("work"))).status is RunStatus.COMPLETED
    assert [one.text for one in shown(scripted)] == ["ok", "ok"]
    assert max(most) == (2 if concurrent else 1)
    assert app.tools["visit"].rules == ToolRules(is_concurrent=concurrent)
