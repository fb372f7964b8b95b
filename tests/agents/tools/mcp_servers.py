"""Stand-in MCP servers of the tests: a program, and one at an address of this machine."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from onward.agents.providers import Keys
from onward.agents.tools.mcp.settings import read_servers
from onward.agents.tools.mcp.source import McpTool, McpTools, channel_opener
from onward.agents.tools.port import ToolAnswer
from onward.clock import Clock, SystemClock
from onward.process import SystemSpawn
from tests.agents.tools.using import a_step, used

PROGRAM = str(Path(__file__).with_name("mcp_program.py"))
VARIABLES = {"PATH": os.defpath, "HOME": "/", "SECRET_TOKEN": "canary-0123456789", "WANTED": "yes"}


class Client:
    """The tools of one server called `files`."""

    def __init__(self, tools: McpTools, log: Path, warned: list[str]) -> None:
        self.tools, self.log, self.warned = tools, log, warned

    async def named(self, *names: str) -> dict[str, McpTool]:
        """The tools of these names, by name."""
        found = await self.tools.tools(a_step(), names or ("files__*",))
        return {tool.described.name: tool for tool in found}

    async def use(self, name: str, *, time_limit_s: float | None = None, **arguments: Any) -> ToolAnswer:
        tool = (await self.named(f"files__{name}"))[f"files__{name}"]
        return await used(tool, arguments, time_limit_s=time_limit_s)

    def heard(self) -> list[dict[str, Any]]:
        """What the program was told, with its process ids."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    def pids(self) -> list[int]:
        return [one["pid"] for one in self.heard() if "pid" in one]

    async def until_heard(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the program was told this."""
        while not (found := [one for one in self.heard() if is_it(one)]):  # noqa: ASYNC110 - a process writes it
            await asyncio.sleep(0.01)
        return found[0]


def mcp_tools(
    table: Mapping[str, Any],
    spawn: SystemSpawn,
    warned: list[str],
    *,
    log: str = "",
    clock: Clock | None = None,
) -> McpTools:
    clock = clock or SystemClock()
    variables = VARIABLES | {"MCP_LOG": log}

    def environment(names: tuple[str, ...]) -> dict[str, str]:
        return {
            name: value for name, value in variables.items() if name in ("PATH", "HOME", "MCP_LOG", *names)
        }

    keys = Keys(variables=lambda: variables, spawn=spawn)
    channels = channel_opener(spawn, keys=keys, clock=clock, environment=environment, path=os.path.abspath)
    return McpTools(read_servers({"files": table}), channels, clock=clock, warn=warned.append)


@asynccontextmanager
async def program(
    tmp_path: Path, *faults: str, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[Client]:
    """A client of the stand-in program with these faults."""
    log, warned, spawn = tmp_path / "heard", list[str](), SystemSpawn()
    command = [sys.executable, "-S", PROGRAM, *faults]
    tools = mcp_tools({"command": command, **settings}, spawn, warned, log=str(log), clock=clock)
    try:
        yield Client(tools, log, warned)
    finally:
        await tools.close()
        spawn.close()


class Site:
    """A server at an address. `answer` may be replaced, and everything that was asked is kept."""

    def __init__(self, faults: set[str]) -> None:
        self.faults, self.url = faults, ""
        self.asked: list[tuple[str, Mapping[str, str], dict[str, Any]]] = []
        self.sessions: set[str] = set()
        self.number = 0
        self.hanging, self.gone = asyncio.Event(), asyncio.Event()

    async def until_asked(self, method: str) -> None:
        """Wait until this was asked; an empty method is that of an answer to the server."""
        while method not in self.methods:  # noqa: ASYNC110 - the other side announces nothing
            await asyncio.sleep(0.01)

    @property
    def methods(self) -> list[str]:
        return [body.get("method", "") for _, _, body in self.asked]

    async def serve(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.method == "POST" else {}
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.asked.append((request.method, headers, body))
        if request.method == "DELETE":
            self.sessions.discard(headers.get("mcp-session-id", ""))
            return web.Response(status=405 if "stays" in self.faults else 200)
        if "status" in self.faults:
            return web.Response(status=503, text="busy")
        if "locked" in self.faults:
            return web.Response(status=401, text="no")
        if "moved" in self.faults:
            return web.Response(status=307, headers={"Location": "http://127.0.0.1:1/"})
        if "page" in self.faults:
            return web.Response(text="<html>hello</html>", content_type="text/html")
        return await self._answer(request, headers, body)

    async def _answer(
        self, request: web.Request, headers: Mapping[str, str], body: dict[str, Any]
    ) -> web.StreamResponse:
        method, id = body.get("method"), body.get("id")
        if "modern" in self.faults:
            if method == "initialize":
                error = {"code": -32022, "message": "Unsupported protocol version", "data": {}}
                return web.json_response({"jsonrpc": "2.0", "id": id, "error": error}, status=400)
        elif method == "initialize":
            return self._begin(id, body["params"])
        elif headers.get("mcp-session-id") not in self.sessions:
            return web.Response(status=404, text="no such session")
        if id is None or method is None:
            return web.Response(status=202)
        if method == "tools/list" and "unlisted" in self.faults:
            error = {"code": -32603, "message": "not now"}
            return web.json_response({"jsonrpc": "2.0", "id": id, "error": error})
        result = self._result(method, body.get("params", {}))
        if method == "tools/call":
            return await self._called(request, id, body["params"], result)
        return web.json_response({"jsonrpc": "2.0", "id": id, "result": result})

    def _begin(self, id: Any, params: dict[str, Any]) -> web.Response:
        self.number += 1
        session = f"session-{self.number}"
        if "forgetful" not in self.faults:
            self.sessions.add(session)
        result = {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {},
        }
        return web.json_response(
            {"jsonrpc": "2.0", "id": id, "result": result}, headers={"Mcp-Session-Id": session}
        )

    def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "server/discover":
            return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 1}
        if method == "tools/list":
            region = {"type": "string", "x-mcp-header": "Region"}
            schema = {"type": "object", "properties": {"text": {"type": "string"}, "region": region}}
            listed = [
                {"name": name, "inputSchema": schema} for name in ("echo", "events", "hang", "cut", "huge")
            ]
            bad = {"type": "object", "properties": {"n": {"type": "number", "x-mcp-header": "N"}}}
            return {"tools": [*listed, {"name": "odd", "inputSchema": bad}]}
        text = params.get("arguments", {}).get("text", "")
        return {
            "content": [{"type": "text", "text": f"{params.get('name')}: {text}"}],
            "resultType": "complete",
        }

    async def _called(
        self, request: web.Request, id: Any, params: dict[str, Any], result: dict[str, Any]
    ) -> web.StreamResponse:
        answer = {"jsonrpc": "2.0", "id": id, "result": result}
        if params["name"] == "echo":
            return web.json_response(answer)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        other: list[Any] = [
            {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
            {"jsonrpc": "2.0", "id": 900, "method": "elicitation/create", "params": {}},
            {"jsonrpc": "2.0", "id": "not-ours", "result": {"content": []}},
        ]
        await response.write(b"id: 1\ndata: \n\n: alive\n\n")
        for message in other:
            await response.write(b"event: message\ndata: " + json.dumps(message).encode() + b"\n\n")
        if params["name"] == "huge":
            for _ in range(9):
                await response.write(b"data: " + b"x" * (1 << 20))
        if params["name"] == "hang":
            self.hanging.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.gone.set()
        if params["name"] == "events":
            await response.write(b"data: " + json.dumps(answer).encode() + b"\n\n")
        return response


@asynccontextmanager
async def site(
    *faults: str, clock: Clock | None = None, **settings: Any
) -> AsyncIterator[tuple[Site, Client]]:
    """A server at an address of this machine, and a client of it."""
    served, spawn, warned = Site(set(faults)), SystemSpawn(), list[str]()
    app = web.Application(client_max_size=1 << 24)
    app.router.add_route("*", "/mcp", served.serve)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    listening = web.TCPSite(runner, "127.0.0.1", 0)
    await listening.start()
    port = runner.addresses[0][1]
    served.url = f"http://127.0.0.1:{port}/mcp"
    tools = mcp_tools({"url": served.url, **settings}, spawn, warned, clock=clock)
    try:
        yield served, Client(tools, Path("none"), warned)
    finally:
        await tools.close()
        await runner.cleanup()
        spawn.close()
