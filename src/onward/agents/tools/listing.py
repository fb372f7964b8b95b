"""Which tools are set up, and their rules: what `onward tools` shows."""

from __future__ import annotations

from onward.agents.tools.listed import ToolList, ToolShown
from onward.agents.tools.port import AgentTool, ListsTools
from onward.agents.tools.toolbox import Toolbox, is_allowed


def list_tools(toolbox: Toolbox) -> ToolList:
    """All of it, as far as it is known without a step."""
    found = [
        _shown(toolbox, tool, source.origin)
        for source in toolbox.sources
        if isinstance(source, ListsTools)
        for tool in source.listed()
    ]
    names = [tool["name"] for tool in found]
    said = dict.fromkeys((*toolbox.changed, *toolbox.default))
    unknown = [name for name in said if not any(is_allowed(one, (name,)) for one in names)]
    return {"tools": found, "default": list(toolbox.default), "unknown": unknown}


def _shown(toolbox: Toolbox, tool: AgentTool, origin: str) -> ToolShown:
    rules = toolbox.rules_of(tool)
    return {
        "name": tool.described.name,
        "description": tool.described.description,
        "origin": origin,
        "approval": rules.approval,
        "repeatable": rules.repeatable,
        "time_limit_s": rules.time_limit_s,
        "output_characters": rules.output_characters,
    }
