"""A step by hand, and one use of a tool in it."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from onward.agents.tools.port import AgentTool, ToolAnswer, ToolUse
from onward.clock import Clock
from onward.engine.log import applied
from onward.handlers.port import StepContext
from onward.handlers.room import Room
from onward.model.events import RunClaimed, RunCreated, StepStarted
from onward.pipeline.build import build
from tests.world import line


def a_step(attrs: str = "", clock: Clock | None = None) -> StepContext:
    pipeline = build(line("a", a=attrs), file="<test>")
    begun = StepStarted(step="a#1", node="a", attempt=1)
    created = RunCreated(pipeline="p", pipeline_hash=pipeline.hash, start_node="start", version="1")
    run, _ = applied(None, (created, RunClaimed(token=1, worker="me"), begun), run_id="run", at_us=1)
    return StepContext(run, begun, pipeline.graph, room=Room(), stopping=asyncio.Event(), clock=clock)


async def used(
    tool: AgentTool,
    arguments: dict[str, Any] | None = None,
    *,
    step: StepContext | None = None,
    time_limit_s: float | None = None,
) -> ToolAnswer:
    """What one use of the tool answers."""
    rules = tool.rules if time_limit_s is None else replace(tool.rules, time_limit_s=time_limit_s)
    return await tool.run(ToolUse(step or a_step(), arguments or {}, "m1.t1", rules))
