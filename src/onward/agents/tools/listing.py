"""Which tools are set up, and their rules: what `onward tools` shows."""

from __future__ import annotations

from onward.agents.tools.listed import ToolList, ToolShown
from onward.agents.tools.port import AgentTool, ListsTools
from onward.agents.tools.toolbox import Toolbox, is_allowed


async def list_tools(toolbox: Toolbox) -> ToolList:
    """All of it, asked for where the tools are."""
    found: list[ToolShown] = []
    failed: list[str] = []
    for source in toolbox.sources:
        if isinstance(source, ListsTools):
            listed = await source.listed()
            found += [_shown(toolbox, tool, source.origin) for tool in listed.tools]
            failed += listed.failed
    names = [tool["name"] for tool in found]
    said = dict.fromkeys((*toolbox.changed, *toolbox.default))
    unknown = [name for name in said if not any(is_allowed(one, (name,)) for one in names)]
    return {"tools": found, "default": list(toolbox.default), "unknown": unknown, "failed": failed}


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
