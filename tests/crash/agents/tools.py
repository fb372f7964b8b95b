"""The tools of killed agents: each writes into a ledger of its own world what it does, before and after."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onward.agents.model.request import Tool
from onward.agents.tools.mcp.source import McpTools
from onward.agents.tools.port import AgentTool, ToolAnswer, ToolRules, ToolUse
from onward.agents.tools.toolbox import Toolbox, is_allowed
from onward.handlers.port import StepContext
from onward.pipeline.graph import Node
from onward.process import SystemSpawn
from tests.agents.tools.mcp_servers import PROGRAM, mcp_tools

LOOK, PAY, ECHO = "look", "pay", "files__echo"
BEGIN, END = "begin", "end"
RULES = {LOOK: ToolRules(), PAY: ToolRules(repeatable=False, approval=True)}
SAID = {LOOK: "looked", PAY: "paid", ECHO: "echo: note"}


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


@dataclass(frozen=True)
class ServerLedger:
    """What an MCP server heard, in all its lives; it writes that down before it does anything."""

    file: Path

    def tools(self) -> McpTools:
        """The tools of the server; a new one is started when they are needed."""
        command = [sys.executable, "-S", PROGRAM]
        return mcp_tools({"command": command}, SystemSpawn(), [], log=str(self.file))

    @property
    def uses(self) -> int:
        """How often it was asked to do something."""
        return sum(message.get("method") == "tools/call" for message in self._heard())

    def left(self) -> list[int]:
        """Those of its processes that are still there."""
        return [heard["pid"] for heard in self._heard() if "pid" in heard and is_alive(heard["pid"])]

    def _heard(self) -> list[dict[str, Any]]:
        if not self.file.exists():
            return []
        return [json.loads(line) for line in self.file.read_text().splitlines() if line.endswith("}")]


def toolbox(ledger: UseLedger, server: McpTools, at: Callable[[str], None]) -> Toolbox:
    """The tools of a process."""
    return Toolbox([Both([Ledgered(name, ledger, at) for name in RULES]), server])


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and is not yet collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


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
    begun = sum((what, tool) == (BEGIN, PAY) for what, tool, _ in lines)
    wrong += [f"{PAY} was begun {begun} times"] if begun > 1 else []
    done = {tool for what, tool, _ in lines if what == END} | ({PAY} if stated else set())
    return wrong + [f"{tool} was never done" for tool in RULES if tool not in done]
