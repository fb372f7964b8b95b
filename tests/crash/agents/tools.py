"""The tools of killed agents: each writes into a ledger of its own world what it does, before and after."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from onward.agents.model import Tool
from onward.agents.tools.files import FileTool, file_tools
from onward.agents.tools.mcp.settings import McpServer, read_servers
from onward.agents.tools.mcp.source import McpTools
from onward.agents.tools.mcp.stdio import StdioChannel
from onward.agents.tools.port import ToolAnswer, ToolRules, ToolUse
from onward.agents.tools.toolbox import FixedTools, Toolbox
from onward.agents.tools.workspace import WorkspaceTree
from onward.clock import SystemClock
from onward.process import SystemSpawn
from tests.agents.tools.mcp_servers import PROGRAM
from tests.crash.agents.points import DoomedChannel, Points

LOOK, PAY, ECHO, WRITE = "look", "pay", "files__echo", "write"
NOTE, NOTED = "note.txt", "kept"
"""The file that the agent writes into its workspace, and what is in it."""
BEGIN, END = "begin", "end"
RULES = {LOOK: ToolRules(), PAY: ToolRules(repeatable=False, approval=True)}
SAID = {LOOK: "looked", PAY: "paid", ECHO: "echo: note"}
_STORED = tuple(
    f"{side} the answer of {tool} is stored" for tool in (ECHO, WRITE, PAY) for side in ("before", "after")
)
_APPROVED = tuple(
    f"{side} the approval of {tool} is stored" for tool in (ECHO, PAY) for side in ("before", "after")
)
_USED = tuple(f"{at} a use of {tool}" for tool in (WRITE, PAY) for at in ("before", "in", "after"))
_ASKED = (f"before {ECHO} is asked", f"after {ECHO} was asked", f"after {ECHO} has answered")
NAMED = (*_APPROVED, *_ASKED, *_USED, f"before {NOTE} has its name", *_STORED)
"""The points inside uses of tools, and between an approval and its use, that no campaign leaves to chance."""


@dataclass(frozen=True)
class UseLedger:
    """Uses of tools, one line each, written at once: a process that dies in the middle leaves its lines."""

    file: Path

    @property
    def workspace(self) -> Path:
        """Where the run works; it is there."""
        place = self.file.with_suffix(".work")
        place.mkdir(exist_ok=True)
        return place

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
    """A tool that does nothing but say so."""

    name: str
    ledger: UseLedger
    points: Points

    @property
    def described(self) -> Tool:
        return Tool(self.name, f"Does {self.name}.", {"type": "object"})

    @property
    def rules(self) -> ToolRules:
        return RULES[self.name]

    async def run(self, use: ToolUse) -> ToolAnswer:
        self.points.at(f"before a use of {self.name}")
        self.ledger.write(BEGIN, self.name, use.key)
        self.points.at(f"in a use of {self.name}")
        self.ledger.write(END, self.name, use.key)
        self.points.at(f"after a use of {self.name}")
        self.points.store_next(f"the answer of {self.name}")
        return ToolAnswer(SAID[self.name])


@dataclass(frozen=True)
class Writing:
    """The tool `write` of the workspace, with points."""

    tool: FileTool
    points: Points

    @property
    def described(self) -> Tool:
        return self.tool.described

    @property
    def rules(self) -> ToolRules:
        return self.tool.rules

    async def run(self, use: ToolUse) -> ToolAnswer:
        self.points.at(f"before a use of {WRITE}")
        answer = await replace(self.tool, work=self._work).run(use)
        self.points.at(f"after a use of {WRITE}")
        self.points.store_next(f"the answer of {WRITE}")
        return answer

    def _work(self, tree: WorkspaceTree, use: ToolUse) -> str:
        told = self.tool.work(tree, use)
        self.points.at(f"in a use of {WRITE}")  # the file is there, and nothing is answered yet
        return told


@dataclass(frozen=True)
class ServerLedger:
    """What an MCP server heard, in all its lives; it writes that down before it does anything."""

    file: Path

    def tools(self, points: Points) -> McpTools:
        """The tools of the server; a new one is started when they are needed."""
        servers = read_servers({"files": {"command": [sys.executable, "-S", PROGRAM]}})
        spawn, variables = SystemSpawn(), {"PATH": os.defpath, "MCP_LOG": str(self.file)}

        async def open_channel(server: McpServer) -> StdioChannel:
            return await DoomedChannel(server, points, ECHO).open(spawn, env=variables, cwd="/")

        return McpTools(servers, open_channel, clock=SystemClock(), warn=print)

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


def toolbox(ledger: UseLedger, server: McpTools, points: Points) -> Toolbox:
    """The tools of a process."""
    (write,) = (tool for tool in file_tools(()) if tool.described.name == WRITE)
    own = FixedTools("test", [*(Ledgered(name, ledger, points) for name in RULES), Writing(write, points)])
    return Toolbox([own, server])


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
    written = {one.name: one.read_text() for one in ledger.workspace.iterdir()}
    wrong += [f"{WRITE} left {written}"] if written != {NOTE: NOTED} else []
    done = {tool for what, tool, _ in lines if what == END} | ({PAY} if stated else set())
    return wrong + [f"{tool} was never done" for tool in RULES if tool not in done]
