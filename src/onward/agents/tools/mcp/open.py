"""Opens the channel of a server: a program is started, an HTTP client is imported when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onward.agents.keys import Keys
from onward.agents.tools.mcp.channel import Channel
from onward.agents.tools.mcp.connection import OpenChannel
from onward.agents.tools.mcp.settings import McpServer
from onward.agents.tools.mcp.stdio import StdioChannel
from onward.clock import Clock
from onward.process import SystemSpawn


def opening(
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

    async def open_channel(server: McpServer) -> Channel:
        if server.url is not None:
            from onward.agents.tools.mcp.http import HttpChannel

            return HttpChannel(server, keys=keys, clock=clock)
        channel = StdioChannel(server)
        return await channel.open(spawn, env=environment(server.env), cwd=path(server.cwd or "."))

    return open_channel
