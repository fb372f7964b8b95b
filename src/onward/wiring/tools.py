"""The tools of agents as the settings describe them: built-in ones, functions, MCP servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from onward.config.environment import tool_environment
from onward.config.settings import Settings
from onward.wiring.agents import open_keys
from onward.wiring.places import own_paths
from onward.wiring.warning import redacting

if TYPE_CHECKING:
    from onward.agents.tools.mcp.source import McpTools
    from onward.agents.tools.port import AgentTool, ToolSource
    from onward.agents.tools.toolbox import Toolbox
    from onward.redact.redactor import Redactor


def make_toolbox(
    settings: Settings,
    *,
    redactor: Redactor,
    functions: Mapping[str, AgentTool] | None = None,
    mcp: McpTools | None = None,
    db: str | None = None,
    runs: str | None = None,
) -> Toolbox:
    """The tools of agents, under the project's rules; InvalidInput if settings describe them badly.

    `functions` are those of an app, `mcp` those of servers. What commands print is redacted. `db` and `runs`
    are where Onward's own files are, which no tool touches.
    """
    from onward.agents.tools.fixed import FixedTools
    from onward.agents.tools.functions.tool import FunctionTools
    from onward.agents.tools.hooked import HookedTools
    from onward.agents.tools.settings import read_tools
    from onward.agents.tools.toolbox import Toolbox
    from onward.agents.tools.workspace.files import file_tools
    from onward.agents.tools.workspace.search import SearchTool
    from onward.agents.tools.workspace.shell import ShellTool
    from onward.handlers.shell.hooks import ToolHooks
    from onward.process import SystemSpawn
    from onward.redact.stream import cleaner_of

    said = read_tools(settings.tools)
    own, environment = own_paths(db, runs), tool_environment(settings.tool_env)
    spawn = SystemSpawn(cleaner=cleaner_of(lambda: redactor))
    tools: list[AgentTool] = [*file_tools(own), SearchTool(spawn, own), ShellTool(spawn, environment)]
    if said.allowed:
        from onward.agents.tools.web.tools import Web, web_tools  # here, for its HTTP client

        tools += web_tools(Web(said.allowed, said.allows_private))
    hooks = ToolHooks(spawn, environment=environment)
    sources: list[ToolSource] = [FixedTools("built-in", tools)]
    if functions is not None:
        sources.append(FunctionTools(functions))
    if mcp is not None:
        sources.append(mcp)
    return Toolbox([HookedTools(source, hooks) for source in sources], said.changed, settings.allowed_tools)


def make_mcp(settings: Settings, redactor: Redactor, *, warn: Callable[[str], None]) -> McpTools | None:
    """The tools of the MCP servers that settings name; None if there are none. Nothing is started yet.

    Every key is known to the `redactor` from the moment it is read. Close it with what uses it.
    """
    if not settings.mcp:
        return None
    from onward.agents.tools.mcp.open import opening
    from onward.agents.tools.mcp.settings import read_servers
    from onward.agents.tools.mcp.source import McpTools
    from onward.clock import SystemClock
    from onward.model.attempt.output import STDERR
    from onward.process import SystemSpawn
    from onward.redact.stream import cleaner_of

    clock, spawn = SystemClock(), SystemSpawn(cleaner=cleaner_of(lambda: redactor, streams=(STDERR,)))
    open_channel = opening(
        spawn,
        keys=open_keys(settings, redactor),
        clock=clock,
        environment=tool_environment,
        path=settings.project.path,
    )
    return McpTools(read_servers(settings.mcp), open_channel, clock=clock, warn=redacting(warn, redactor))
