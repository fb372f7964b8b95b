"""A step with a workspace, and uses of tools in it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from onward.agents.tools.commands import SearchTool
from onward.agents.tools.files import file_tools
from onward.agents.tools.port import AgentTool, ToolAnswer, ToolRefused, ToolRules, ToolUse
from onward.engine.log import applied
from onward.handlers.port import StepContext
from onward.handlers.room import AttemptOutput, Room
from onward.model.events import RunClaimed, RunCreated, StepStarted
from onward.pipeline.build import build
from onward.process import SystemSpawn
from tests.world import line

OUTSIDE = "the secret of somebody else"


def step_in(workspace: Path, attrs: str = "", *, output: AttemptOutput | None = None) -> StepContext:
    """An attempt of a step that works there."""
    pipeline = build(line("a", a=attrs), file="<test>")
    begun = StepStarted(step="a#1", node="a", attempt=1)
    created = RunCreated(pipeline="p", pipeline_hash=pipeline.hash, start_node="start", version="1")
    run, _ = applied(None, (created, RunClaimed(token=1, worker="me"), begun), run_id="run", at_us=1)
    room = Room()
    return StepContext(
        run,
        begun,
        pipeline.graph,
        room=room,
        stopping=asyncio.Event(),
        workspace=str(workspace),
        output=output or AttemptOutput(room),
    )


async def using(
    tool: AgentTool,
    step: StepContext,
    *,
    rules: dict[str, Any] | None = None,
    key: str = "k",
    **arguments: Any,
) -> ToolAnswer:
    """What comes of one use; a refusal is an answer, too."""
    found: ToolRules = replace(tool.rules, **(rules or {}))
    try:
        return await tool.run(ToolUse(step, arguments, key, found))
    except ToolRefused as refused:
        return ToolAnswer(str(refused), is_error=True)


class Bench:
    """All tools for files in one workspace, by name. `own` are Onward's paths."""

    def __init__(self, root: Path, own: tuple[str, ...] = ()) -> None:
        self.root, self.step = root, step_in(root)
        self.spawn = SystemSpawn()
        tools: list[AgentTool] = [*file_tools(own), SearchTool(self.spawn, own)]
        self.tools = {tool.described.name: tool for tool in tools}

    async def use(self, name: str, **arguments: Any) -> ToolAnswer:
        return await using(self.tools[name], self.step, **arguments)

    async def at(self, name: str, path: str) -> ToolAnswer:
        """Use a tool on a path, with whatever else it needs."""
        more: dict[str, dict[str, Any]] = {
            "read": {},
            "write": {"content": "overwritten"},
            "edit": {"old": "e", "new": "E", "all": True},
            "list": {},
            "search": {"pattern": "."},
        }
        return await self.use(name, path=path, **more[name])

    def close(self) -> None:
        self.spawn.close()
