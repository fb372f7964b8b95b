"""Chooses the tools of a step: those that its node allows, from every source, under the project's rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from onward.agents.tools.port import AgentTool, ToolRules, ToolSource
from onward.agents.tools.schema import problems
from onward.errors import InvalidInput
from onward.handlers.port import StepContext
from onward.pipeline.graph import Node

ALLOWED = "allowed_tools"
_ODD = re.compile(r"[^A-Za-z0-9_.*?-]")


class OfferedTool(msgspec.Struct, frozen=True):
    """A tool, and the rules that hold for it here."""

    tool: AgentTool
    rules: ToolRules

    def problems(self, arguments: dict[str, Any]) -> list[str]:
        """What is wrong with the arguments of a use, for the model to correct; nothing if they fit."""
        return problems(self.tool.described.parameters, arguments)


class Toolbox(msgspec.Struct, frozen=True):
    """All tools of a process. A node without `allowed_tools` gets those of `default`."""

    sources: Sequence[ToolSource] = ()
    changed: Mapping[str, Mapping[str, object]] = msgspec.field(default_factory=dict)
    """What settings change in the rules of tools: fields of ToolRules, by a tool's name, or by a pattern."""
    default: tuple[str, ...] = ()

    def allowed(self, node: Node) -> tuple[str, ...]:
        """The names that a node allows; `*` in one stands for any letters."""
        if ALLOWED not in node.attrs:
            return self.default
        names = tuple(name for one in node.text(ALLOWED).split(",") if (name := one.strip()))
        for name in names:
            if _ODD.search(name):
                raise InvalidInput(
                    f"node {node.id!r} allows the tool {name[:100]!r}, which is no name; use letters, "
                    "digits, _ and -, with * for any letters."
                )
        return names

    def check_node(self, node: Node) -> None:
        """Refuse a node that allows a tool which nobody offers, before a run begins."""
        for name in self.allowed(node):
            if not any(source.check_name(name, node) for source in self.sources):
                raise InvalidInput(
                    f"node {node.id!r} allows the tool {name!r}, which nobody offers; "
                    "correct allowed_tools, or set the tool up in the project's settings."
                )

    async def of(self, step: StepContext) -> dict[str, OfferedTool]:
        """The tools of a step, by name. InvalidInput: two sources offer the same name."""
        names, found = self.allowed(step.node), dict[str, OfferedTool]()
        for source in self.sources if names else ():
            for tool in await source.tools(step, names):
                name = tool.described.name
                if name in found:
                    raise InvalidInput(f"two tools are called {name!r}; give one of them another name.")
                found[name] = OfferedTool(tool, self.rules_of(tool))
        return found

    def rules_of(self, tool: AgentTool) -> ToolRules:
        """The rules of a tool here. What is said of its name counts more than a pattern, and a later pattern
        more than an earlier one."""
        name = tool.described.name
        rules = _fields(tool.rules)
        for pattern, changes in self.changed.items():
            if pattern != name and fnmatchcase(name, pattern):
                rules |= changes
        return ToolRules(**{**rules, **self.changed.get(name, {})})  # type: ignore[arg-type]


def is_allowed(name: str, allowed: Sequence[str]) -> bool:
    """Whether one of the names or patterns of a node means this tool."""
    return any(fnmatchcase(name, pattern) for pattern in allowed)


def _fields(rules: ToolRules) -> dict[str, object]:
    return {name: getattr(rules, name) for name in ToolRules.__struct_fields__}
