"""Points at which a process of the campaign may die, and the parts of it that pass them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from onward.agents.tools.mcp.protocol import Listen, OutgoingRequest, ServerAnswer
from onward.agents.tools.mcp.settings import McpServer
from onward.agents.tools.mcp.stdio import StdioChannel
from onward.store.port.store import Store
from tests.conformance.faults import WRITES, FaultyStore

POINTS = WRITES | {"messages.flush"}
LOGGED = ("log.append", "log.control")


class Points:
    """Counts the points that this process passes, says so in a file, and dies at the one that was chosen."""

    def __init__(self, file: Path, die_at: int | str | None) -> None:
        self._file, self._die_at, self._passed = file, die_at, 0
        self._stored = ""

    def at(self, name: str) -> None:
        """Pass a point, or die at it."""
        self._passed += 1
        if self._die_at in (self._passed, name):
            self._file.write_text(name)
            os.kill(os.getpid(), signal.SIGKILL)

    def store_next(self, what: str) -> None:
        """The next write to the log stores this, and has points of its own."""
        self._stored = what

    def stored_next(self) -> str:
        """What that is; it is asked for once."""
        what, self._stored = self._stored, ""
        return what

    def watch_names(self, name: str) -> None:
        """Whenever a file gets this name is a point: its content is on disk, under another name."""

        def hear(event: str, given: tuple[Any, ...]) -> None:
            if event == "os.rename" and given[1] == name:
                self.at(f"before {name} has its name")

        sys.addaudithook(hear)


class DoomedStore(FaultyStore):
    """A store whose writes are points."""

    def __init__(self, store: Store, points: Points) -> None:
        super().__init__(store)
        self._points = points

    async def call(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if name not in POINTS:
            return await call()
        stored = self._points.stored_next() if name in LOGGED else ""
        self._pass("before", name, stored)
        answer = await call()
        self._pass("after", name, stored)
        return answer

    def _pass(self, side: str, name: str, stored: str) -> None:
        self._points.at(f"{side} {name}")
        if stored:
            self._points.at(f"{side} {stored} is stored")


class DoomedChannel(StdioChannel):
    """The way to a program whose uses are points: before and after a request, and at its answer."""

    def __init__(self, server: McpServer, points: Points, tool: str) -> None:
        super().__init__(server)
        self._points, self._tool = points, tool

    async def tell(self, message: bytes, headers: Mapping[str, str]) -> None:
        is_use = _is_use(message)
        if is_use:
            self._points.at(f"before {self._tool} is asked")
        await super().tell(message, headers)
        if is_use:
            self._points.at(f"after {self._tool} was asked")

    async def exchange(self, sending: OutgoingRequest, listen: Listen) -> ServerAnswer:
        answer = await super().exchange(sending, listen)
        if _is_use(sending.body):
            self._points.at(f"after {self._tool} has answered")
            self._points.store_next(f"the answer of {self._tool}")
        return answer


def _is_use(message: bytes) -> bool:
    return b'"tools/call"' in message
