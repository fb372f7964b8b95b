"""The tools of all servers that settings name, as a source."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

from onward.agents.model.request import Tool
from onward.agents.tools.mcp.connection import Connection, OpenChannel
from onward.agents.tools.mcp.content import read_answer
from onward.agents.tools.mcp.listed import ListedTool
from onward.agents.tools.mcp.messages import RpcError, ServerFailed
from onward.agents.tools.mcp.session import TooLate
from onward.agents.tools.mcp.settings import McpServer
from onward.agents.tools.port import AgentTool, CutOff, Listed, ToolAnswer, ToolRefused, ToolRules, ToolUse
from onward.agents.tools.toolbox import is_allowed
from onward.clock import Clock
from onward.errors import CallTimedOut, InvalidInput
from onward.handlers.port import StepContext
from onward.pipeline.graph import Node

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
    def rules(self) -> ToolRules:
        """As the port says."""
        return self._listed.rules

    async def run(self, use: ToolUse) -> ToolAnswer:
        """As the port says. A server that broke off may have done what must not be repeated."""
        limit_s = use.rules.time_limit_s
        try:
            return read_answer(await self._connection.call(self._listed, use.arguments, limit_s))
        except RpcError as error:
            return ToolAnswer(f"the tool failed: {error}", is_error=True)
        except TooLate:
            raise CallTimedOut(use.key, limit_s) from None
        except ServerFailed as failed:
            if failed.is_sent and not use.rules.repeatable:
                raise CutOff(use.key, limit_s, str(failed)) from None
            raise ToolRefused(f"{failed}.") from None


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

    async def listed(self) -> Listed:
        """All tools of all servers; one that cannot be asked is named."""
        lists = await asyncio.gather(
            *(connection.tools() for connection in self._connections.values()), return_exceptions=True
        )
        tools: list[AgentTool] = []
        failed: list[str] = []
        for connection, found in zip(self._connections.values(), lists, strict=True):
            if isinstance(found, ServerFailed | InvalidInput):
                failed.append(f"{found}")
            elif isinstance(found, BaseException):
                raise found
            else:
                tools += [McpTool(connection, tool) for tool in found]
        return Listed(tools, failed)

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
