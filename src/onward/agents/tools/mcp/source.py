"""The tools of all servers that settings name, as a source.

A process has one connection to a server: made at the first use, shared by all steps, made again when it is
lost. It opens a channel: a program is started, or an HTTP client is imported when it is needed. Below that,
pure: the tools that a server lists, as a model is told of them and as they may be used; and the result of a
tool, as text for the model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from blake3 import blake3

from onward.agents.model import NAME_CHARACTERS_MAX, ODD_IN_NAMES, Tool
from onward.agents.providers import Keys
from onward.agents.tools import port
from onward.agents.tools.mcp import protocol as mcp
from onward.agents.tools.mcp.settings import McpServer
from onward.agents.tools.mcp.stdio import StdioChannel
from onward.agents.tools.schema import check_schema
from onward.agents.tools.toolbox import is_allowed
from onward.clock import Clock
from onward.errors import CallTimedOut, InvalidInput
from onward.handlers.port import StepContext
from onward.pipeline.graph import Node
from onward.process import SystemSpawn

_WILD = "*?["


class McpTool:
    """One tool of a server."""

    def __init__(self, connection: Connection, listed: ListedTool) -> None:
        self._connection, self._listed = connection, listed

    @property
    def described(self) -> Tool:
        """As the port says."""
        return self._listed.described

    @property
    def rules(self) -> port.ToolRules:
        """As the port says."""
        return self._listed.rules

    async def run(self, use: port.ToolUse) -> port.ToolAnswer:
        """As the port says. A server that broke off may have done what must not be repeated."""
        limit_s = use.rules.time_limit_s
        try:
            return read_answer(await self._connection.call(self._listed, use.arguments, limit_s))
        except mcp.RpcError as error:
            return port.ToolAnswer(f"the tool failed: {error}", is_error=True)
        except mcp.TooLate as late:
            raise CallTimedOut(use.key, limit_s, noted=late.noted) from None
        except mcp.ServerFailed as failed:
            if failed.is_sent and not use.rules.repeatable:
                raise port.CutOff(use.key, limit_s, str(failed)) from None
            raise port.ToolRefused(f"{failed}.") from None


class McpTools:
    """Offers the tools of servers. Nothing is connected before a step needs it."""

    def __init__(
        self,
        servers: Mapping[str, McpServer],
        open_channel: OpenChannel,
        *,
        clock: Clock,
        warn: Callable[[str], None],
    ) -> None:
        self.servers = servers
        self._connections = {
            name: Connection(server, open_channel, clock=clock, warn=warn) for name, server in servers.items()
        }

    def check_name(self, name: str, node: Node) -> bool:
        """Whether a server may have it: which tools it has is only known when it is asked."""
        return any(_may_mean(name, server) for server in self.servers.values())

    async def tools(self, step: StepContext, names: Sequence[str]) -> Sequence[McpTool]:
        """As the port says; ServerFailed if a server that is meant cannot say what it has."""
        meant = [
            self._connections[name]
            for name, server in self.servers.items()
            if any(_may_mean(wanted, server) for wanted in names)
        ]
        lists = await asyncio.gather(*(connection.tools() for connection in meant))
        return [
            McpTool(connection, tool)
            for connection, tools in zip(meant, lists, strict=True)
            for tool in tools
            if is_allowed(tool.described.name, names)
        ]

    @property
    def origin(self) -> str:
        return "MCP server"

    async def listed(self) -> port.ListedTools:
        """All tools of all servers; one that cannot be asked is named."""
        lists = await asyncio.gather(
            *(connection.tools() for connection in self._connections.values()), return_exceptions=True
        )
        tools: list[port.AgentTool] = []
        failed: list[str] = []
        for connection, found in zip(self._connections.values(), lists, strict=True):
            if isinstance(found, mcp.ServerFailed | InvalidInput):
                failed.append(f"{found}")
            elif isinstance(found, BaseException):
                raise found
            else:
                tools += [McpTool(connection, tool) for tool in found]
        return port.ListedTools(tools, failed)

    async def close(self) -> None:
        """End all connections, and the programs that were started for them."""
        await asyncio.gather(*(connection.close() for connection in self._connections.values()))


def _may_mean(name: str, server: McpServer) -> bool:
    """Whether a name or a pattern could be that of a tool of this server."""
    prefix = server.prefix
    wild = next((at for at, letter in enumerate(name) if letter in _WILD), None)
    if wild is None:
        return name.startswith(prefix) and len(name) > len(prefix)
    beginning = name[:wild]
    return prefix.startswith(beginning) or beginning.startswith(prefix) or fnmatchcase(prefix, name)


PAGES_MAX = 100
TOOLS_MAX = 1_000
OpenChannel = Callable[[McpServer], Awaitable[mcp.Channel]]


class Connection:
    """Talks to one server. A connection that was lost is made again by the next request."""

    def __init__(
        self,
        server: McpServer,
        open_channel: OpenChannel,
        *,
        clock: Clock,
        warn: Callable[[str], None],
    ) -> None:
        self._name = f"the MCP server {server.name!r}"
        self._server, self._open_channel = server, open_channel
        self._clock, self._warn = clock, warn
        self._lock, self._listing = asyncio.Lock(), asyncio.Lock()
        self._channel: mcp.Channel | None = None
        self._session: mcp.McpSession | None = None
        self._tools: Sequence[ListedTool] = ()
        self._listed: mcp.McpSession | None = None  # in which they were listed
        self._warned: set[str] = set()

    async def tools(self) -> Sequence[ListedTool]:
        """Its tools: read once, and again when it says that they changed. ServerFailed if it cannot."""
        async with self._listing:
            if (await self._ready()) is not self._listed or not self._listed.is_list_current:
                self._listed = None
                try:
                    found = await self._list()
                except mcp.RpcError as error:
                    raise mcp.ServerFailed(f"{self._name} cannot list its tools: {error}") from None
                self._tools, self._listed = self._usable(found), self._session
            return self._tools

    async def call(self, tool: ListedTool, arguments: Mapping[str, Any], limit_s: float) -> Mapping[str, Any]:
        """What a tool answers; RpcError if the server says that it failed, ServerFailed if it does not."""
        params = {"name": tool.own_name, "arguments": arguments}
        headers = mcp.mirrored(tool.described.parameters, arguments) if self._has_mirrors else {}
        return await self._request("tools/call", params, limit_s=limit_s, name=tool.own_name, headers=headers)

    async def close(self) -> None:
        """End it. A program that was started for it has ended afterwards."""
        async with self._lock:
            await self._drop()

    async def _list(self) -> Sequence[object]:
        found: list[object] = []
        cursor: str | None = None
        seen: set[str] = set()
        if not (await self._ready()).has_tools:
            return found
        for _ in range(PAGES_MAX):
            params = {} if cursor is None else {"cursor": cursor}
            (await self._ready()).is_list_current = True  # until it says otherwise, perhaps meanwhile
            result = await self._request("tools/list", params, limit_s=self._server.time_limit_s)
            page, following = result.get("tools"), result.get("nextCursor")
            if not isinstance(page, list):
                raise mcp.ServerFailed(f"{self._name} sent a reply without a list of tools")
            found += page
            if not isinstance(following, str) or not following:
                return found
            if following in seen or len(found) > TOOLS_MAX:
                break
            seen.add(following)
            cursor = following
        raise mcp.ServerFailed(
            f"{self._name} lists more than {TOOLS_MAX:,} tools, or repeats the same ones endlessly"
        )

    def _usable(self, found: Sequence[object]) -> Sequence[ListedTool]:
        tools, odd = read_tools(self._server, found)
        usable = []
        for tool in tools:
            try:
                if self._has_mirrors:
                    mcp.check_marks(tool.described.parameters)
                usable.append(tool)
            except InvalidInput as error:
                odd = [*odd, f"the tool {tool.own_name!r} of {self._name} is left out: {error}"]
        for sentence in odd:
            if sentence not in self._warned:
                self._warned.add(sentence)
                self._warn(sentence)
        return usable

    @property
    def _has_mirrors(self) -> bool:
        session, channel = self._session, self._channel
        return session is not None and session.is_stateless and channel is not None and channel.has_headers

    async def _request(self, method: str, params: Mapping[str, Any], **how: Any) -> Mapping[str, Any]:
        """One request. If the server has ended meanwhile, or forgot us, and did nothing: a second try."""
        for is_last in (False, True):
            session = await self._ready()
            try:
                return await session.request(method, params, **how)
            except mcp.SessionLost:
                await self._lose(session)
            except mcp.ServerFailed as failed:
                if failed.is_lost:
                    await self._lose(session)
                if is_last or failed.is_sent or not failed.is_lost:
                    raise
        raise mcp.ServerFailed(f"{self._name} loses every session that it starts")

    async def _ready(self) -> mcp.McpSession:
        async with self._lock:
            if self._session is None:
                self._channel = await self._open_channel(self._server)
                session = mcp.McpSession(self._server, self._channel, self._clock)
                try:
                    await session.open()
                except mcp.SessionLost:
                    await self._drop()
                    raise mcp.ServerFailed(f"{self._name} loses every session that it starts") from None
                except BaseException:
                    await self._drop()
                    raise
                self._session = session
            return self._session

    async def _lose(self, session: mcp.McpSession) -> None:
        async with self._lock:
            if self._session is session:
                await self._drop()

    async def _drop(self) -> None:
        channel, self._channel, self._session = self._channel, None, None
        if channel is not None:
            await channel.close()


def channel_opener(
    spawn: SystemSpawn,
    *,
    keys: Keys,
    clock: Clock,
    environment: Callable[[tuple[str, ...]], Mapping[str, str]],
    path: Callable[[str], str],
) -> OpenChannel:
    """What opens channels. `environment` gives the variables of a program: the usual ones, and those named.

    `path` says where a relative path of the settings begins.
    """

    async def open_channel(server: McpServer) -> mcp.Channel:
        if server.url is not None:
            from onward.agents.tools.mcp.http import HttpChannel

            return HttpChannel(server, keys=keys, clock=clock)
        channel = StdioChannel(server)
        return await channel.open(spawn, env=environment(server.env), cwd=path(server.cwd or "."))

    return open_channel


DESCRIPTION_CHARACTERS_MAX = 4_000


class ListedTool(msgspec.Struct, frozen=True):
    """One tool of a server: its own name there, what a model is told, and how it may be used."""

    own_name: str
    described: Tool
    rules: port.ToolRules


def read_tools(server: McpServer, found: Sequence[object]) -> tuple[Sequence[ListedTool], Sequence[str]]:
    """The tools that settings offer, by name; and sentences about those that cannot be used."""
    tools: dict[str, ListedTool] = {}
    odd: list[str] = []
    for one in found:
        own = one.get("name") if isinstance(one, dict) else None
        if not isinstance(one, dict) or not isinstance(own, str) or not own:
            odd.append(f"the MCP server {server.name!r} lists a tool without a name; it is left out.")
            continue
        if not any(fnmatchcase(own, pattern) for pattern in server.tools):
            continue
        name = model_name(server, own, taken=tools)
        try:
            tools[name] = ListedTool(own, _described(name, one), rules_of(server, one.get("annotations")))
        except InvalidInput as error:
            odd.append(f"the tool {own[:100]!r} of the MCP server {server.name!r} is left out: {error}")
    return [tools[name] for name in sorted(tools)], odd


def model_name(server: McpServer, own: str, taken: Mapping[str, object]) -> str:
    """`SERVER__tool`, in characters that every provider takes; another name if it is too long or taken."""
    name = server.prefix + ODD_IN_NAMES.sub("_", own)
    if len(name) <= NAME_CHARACTERS_MAX and name not in taken:
        return name
    mark = blake3(own.encode("utf-8", "replace")).hexdigest(length=4)
    return f"{name[: NAME_CHARACTERS_MAX - len(mark) - 1]}_{mark}"


def _described(name: str, one: Mapping[str, Any]) -> Tool:
    text = one.get("description")
    if not isinstance(text, str) or not text.strip():
        text = one.get("title") if isinstance(one.get("title"), str) else ""
    schema = one.get("inputSchema", {})
    check_schema(schema, "its inputSchema")
    if schema.get("type", "object") != "object":
        raise InvalidInput("its inputSchema does not describe an object.")
    described = str(text).replace("\0", "")[:DESCRIPTION_CHARACTERS_MAX]
    return Tool(name, described, {"type": "object", "properties": {}, **schema})


def rules_of(server: McpServer, annotations: object) -> port.ToolRules:
    """How a tool may be used: strictly, and less so only if the settings trust what its server says.

    Without that, nothing a server says changes anything: every use needs approval, and is in doubt if its
    process dies.
    """
    strict = port.ToolRules(repeatable=False, approval=True, time_limit_s=server.time_limit_s)
    if not server.trust_hints or not isinstance(annotations, dict):
        return strict
    is_read_only = annotations.get("readOnlyHint") is True
    is_destructive = annotations.get("destructiveHint")
    return port.ToolRules(
        repeatable=is_read_only or annotations.get("idempotentHint") is True,
        approval=is_destructive is True or not (is_read_only or is_destructive is False),
        time_limit_s=server.time_limit_s,
    )


def read_answer(result: Mapping[str, Any]) -> port.ToolAnswer:
    """The texts one after another; pictures and other data are named, not shown; structured data is JSON."""
    if result.get("resultType") == "input_required":
        text = "the tool asks for input of a person, which is not possible here"
        return port.ToolAnswer(text, is_error=True)
    content = result.get("content")
    parts = [_part(one) for one in content] if isinstance(content, list) else []
    structured = result.get("structuredContent")
    if structured is not None and not _is_told(parts, structured):
        parts.append(msgspec.json.encode(structured).decode())
    return port.ToolAnswer("\n".join(part for part in parts if part), is_error=result.get("isError") is True)


def _is_told(parts: list[str], structured: object) -> bool:
    """Whether one of the texts says the same, as servers send it for older clients."""
    # What is no object is often wrapped in one.
    inner = (
        structured["result"] if isinstance(structured, dict) and [*structured] == ["result"] else structured
    )
    for part in parts:
        try:
            found = msgspec.json.decode(part)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            found = part
        if found in (structured, inner) or part == inner:
            return True
    return False


def _part(one: object) -> str:
    if not isinstance(one, dict):
        return ""
    match one.get("type"):
        case "text" if isinstance(one.get("text"), str):
            return str(one["text"])
        case "image" | "audio" as kind:
            return f"[{kind}: {_kind(one)}, {_size(one.get('data'))}]"
        case "resource_link":
            named = mcp.plain(str(one.get("name") or one.get("title") or ""), 100)
            return f"[link: {named} {mcp.plain(str(one.get('uri', '')), 500)}]"
        case "resource":
            return _resource(one.get("resource"))
        case other:
            return f"[{mcp.plain(str(other), 50)}: not shown]"


def _resource(resource: object) -> str:
    if not isinstance(resource, dict):
        return ""
    uri = mcp.plain(str(resource.get("uri", "")), 500)
    if isinstance(resource.get("text"), str):
        return f"[{uri}]\n{resource['text']}"
    return f"[resource: {uri}, {_kind(resource)}, {_size(resource.get('blob'))}]"


def _kind(one: Mapping[str, Any]) -> str:
    return mcp.plain(str(one.get("mimeType") or "unknown type"), 100)


def _size(data: object) -> str:
    """How large base64 data is."""
    return f"{len(data) * 3 // 4:,} bytes" if isinstance(data, str) else "no data"
