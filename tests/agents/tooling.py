"""Tools of a test's own world: they count what they did, and can be told to die in the middle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from onward.agents.model import Tool, ToolCall
from onward.agents.prices import read_prices
from onward.agents.step.handler import AgentHandler
from onward.agents.tools.port import AgentTool, ToolAnswer, ToolRules, ToolUse
from onward.agents.tools.toolbox import Toolbox, is_allowed
from onward.handlers.port import StepContext
from onward.pipeline.graph import Node
from onward.testing.clock import ManualClock, SeededDice
from onward.testing.script import ScriptedReply, ScriptRule
from tests.agents.test_agent_step import NAME, Scripted
from tests.world import Process, World

Act = Callable[[ToolUse], Awaitable[ToolAnswer]]


@dataclass
class Counting:
    """A tool that counts its uses in the outside world: `begun` and `done`, by key."""

    name: str = "look"
    rules: ToolRules = ToolRules()  # noqa: RUF009 (frozen)
    act: Act | None = None
    begun: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    seen: list[dict[str, Any]] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=lambda: {"type": "object"})

    @property
    def described(self) -> Tool:
        return Tool(self.name, "Looks something up.", self.parameters)

    async def run(self, use: ToolUse) -> ToolAnswer:
        self.begun[use.key] += 1
        self.seen.append(use.arguments)
        answer = ToolAnswer(f"{self.name} found 42") if self.act is None else await self.act(use)
        self.done[use.key] += 1
        return answer


@dataclass(frozen=True)
class Shelf:
    """Offers these tools."""

    all: Sequence[AgentTool]

    def check_name(self, name: str, node: Node) -> bool:
        return any(tool.described.name == name for tool in self.all)

    async def tools(self, step: StepContext, names: Sequence[str]) -> Sequence[AgentTool]:
        return [tool for tool in self.all if is_allowed(tool.described.name, names)]


def wish(name: str = "look", arguments: str = "{}", id: str = "c1") -> ToolCall:
    """A model's wish to use a tool."""
    return ToolCall(id, name, arguments)


def asks(*calls: ToolCall, **how: Any) -> ScriptRule:
    """The first thing that the model says."""
    return ScriptRule(reply=ScriptedReply(tool_calls=calls, **how), times=1)


async def working(world: World, scripted: Scripted, *tools: AgentTool, **more: Any) -> Process:
    """A process whose agents have these tools."""
    clock = more.setdefault("clock", ManualClock())
    toolbox = Toolbox([Shelf(tools)], default=tuple(tool.described.name for tool in tools))
    prices = read_prices({NAME: {"input": 1, "output": 2}})
    agent = AgentHandler(scripted, prices, clock, SeededDice(1), toolbox)
    return await world.process(handlers={"codergen": agent}, **more)
