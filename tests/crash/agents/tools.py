"""The tools of killed agents: each writes into a ledger of its own world what it does, before and after."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from onward.agents.model.request import Tool
from onward.agents.tools.port import AgentTool, ToolAnswer, ToolRules, ToolUse
from onward.agents.tools.toolbox import Toolbox, is_allowed
from onward.handlers.port import StepContext
from onward.pipeline.graph import Node

LOOK, PAY = "look", "pay"
BEGIN, END = "begin", "end"
RULES = {LOOK: ToolRules(), PAY: ToolRules(repeatable=False, approval=True)}
SAID = {LOOK: "looked", PAY: "paid"}


@dataclass(frozen=True)
class UseLedger:
    """Uses of tools, one line each, written at once: a process that dies in the middle leaves its lines."""

    file: Path

    def write(self, what: str, tool: str, key: str) -> None:
        descriptor = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, f"{what} {tool} {key}\n".encode())
        finally:
            os.close(descriptor)

    def lines(self) -> list[tuple[str, str, str]]:
        """What, which tool, and the key of the use."""
        if not self.file.exists():
            return []
        found = [line.split(" ", 2) for line in self.file.read_text().splitlines()]
        return [(what, tool, key) for what, tool, key in found]

    def has_begun(self, key: str) -> bool:
        return any((what, one) == (BEGIN, key) for what, _, one in self.lines())


@dataclass(frozen=True)
class Ledgered:
    """A tool that does nothing but say so. `at` is a point where its process may die."""

    name: str
    ledger: UseLedger
    at: Callable[[str], None]

    @property
    def described(self) -> Tool:
        return Tool(self.name, f"Does {self.name}.", {"type": "object"})

    @property
    def rules(self) -> ToolRules:
        return RULES[self.name]

    async def run(self, use: ToolUse) -> ToolAnswer:
        self.at(f"before a use of {self.name}")
        self.ledger.write(BEGIN, self.name, use.key)
        self.at(f"in a use of {self.name}")
        self.ledger.write(END, self.name, use.key)
        self.at(f"after a use of {self.name}")
        return ToolAnswer(SAID[self.name])


@dataclass(frozen=True)
class Both:
    """Offers both tools."""

    all: Sequence[AgentTool]

    def check_name(self, name: str, node: Node) -> bool:
        return name in RULES

    async def tools(self, step: StepContext, names: Sequence[str]) -> Sequence[AgentTool]:
        return [tool for tool in self.all if is_allowed(tool.described.name, names)]


def toolbox(ledger: UseLedger, at: Callable[[str], None]) -> Toolbox:
    """The tools of a process."""
    return Toolbox([Both([Ledgered(name, ledger, at) for name in RULES])])


def wrong_uses(ledger: UseLedger, answered: Sequence[tuple[set[str], int]], stated: set[str]) -> list[str]:
    """What is wrong with the uses of a run: done again after its answer was stored, twice, or not at all.

    `answered` are the keys whose answers were stored at each kill, and how many lines there were then;
    `stated` are those of which a person said what came of them.
    """
    lines = ledger.lines()
    wrong = [
        f"{key} was done again after its answer was stored"
        for keys, before in answered
        for what, _, key in lines[before:]
        if what == BEGIN and key in keys
    ]
    begun = Counter(key for what, tool, key in lines if what == BEGIN and tool == PAY)
    wrong += [f"{key} was begun {times} times" for key, times in begun.items() if times > 1]
    done = {tool for what, tool, _ in lines if what == END} | ({PAY} if stated else set())
    return wrong + [f"{tool} was never done" for tool in RULES if tool not in done]
