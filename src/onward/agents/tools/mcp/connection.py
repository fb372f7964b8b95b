"""The one connection of this process to a server: made at the first use, shared by all steps, made again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from onward.agents.tools.mcp.channel import Channel, SessionLost
from onward.agents.tools.mcp.headers import check_marks, mirrored
from onward.agents.tools.mcp.listed import ListedTool, read_tools
from onward.agents.tools.mcp.messages import RpcError, ServerFailed
from onward.agents.tools.mcp.session import Session
from onward.agents.tools.mcp.settings import McpServer
from onward.clock import Clock
from onward.errors import InvalidInput

PAGES_MAX = 100
TOOLS_MAX = 1_000
OpenChannel = Callable[[McpServer], Awaitable[Channel]]


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
        self._channel: Channel | None = None
        self._session: Session | None = None
        self._tools: Sequence[ListedTool] = ()
        self._listed: Session | None = None  # in which they were listed
        self._warned: set[str] = set()

    async def tools(self) -> Sequence[ListedTool]:
        """Its tools: read once, and again when it says that they changed. ServerFailed if it cannot."""
        async with self._listing:
            if (await self._ready()) is not self._listed or not self._listed.is_list_current:
                self._listed = None
                try:
                    found = await self._list()
                except RpcError as error:
                    raise ServerFailed(f"{self._name} cannot list its tools: {error}") from None
                self._tools, self._listed = self._usable(found), self._session
            return self._tools

    async def call(self, tool: ListedTool, arguments: Mapping[str, Any], limit_s: float) -> Mapping[str, Any]:
        """What a tool answers; RpcError if the server says that it failed, ServerFailed if it does not."""
        params = {"name": tool.own_name, "arguments": arguments}
        headers = mirrored(tool.described.parameters, arguments) if self._has_mirrors else {}
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
                raise ServerFailed(f"{self._name} listed no tools where its list should be")
            found += page
            if not isinstance(following, str) or not following:
                return found
            if following in seen or len(found) > TOOLS_MAX:
                break
            seen.add(following)
            cursor = following
        raise ServerFailed(f"{self._name} lists more than {TOOLS_MAX:,} tools, or the same ones for ever")

    def _usable(self, found: Sequence[object]) -> Sequence[ListedTool]:
        tools, odd = read_tools(self._server, found)
        usable = []
        for tool in tools:
            try:
                if self._has_mirrors:
                    check_marks(tool.described.parameters)
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
            except SessionLost:
                await self._lose(session)
            except ServerFailed as failed:
                if failed.is_lost:
                    await self._lose(session)
                if is_last or failed.is_sent or not failed.is_lost:
                    raise
        raise ServerFailed(f"{self._name} forgets every session that it begins")

    async def _ready(self) -> Session:
        async with self._lock:
            if self._session is None:
                self._channel = await self._open_channel(self._server)
                session = Session(self._server, self._channel, self._clock)
                try:
                    await session.open()
                except SessionLost:
                    await self._drop()
                    raise ServerFailed(f"{self._name} forgets every session that it begins") from None
                except BaseException:
                    await self._drop()
                    raise
                self._session = session
            return self._session

    async def _lose(self, session: Session) -> None:
        async with self._lock:
            if self._session is session:
                await self._drop()

    async def _drop(self) -> None:
        channel, self._channel, self._session = self._channel, None, None
        if channel is not None:
            await channel.close()
