"""Chooses the tools of a step: those that its node allows, from all sources, by the project's rules.

After the toolbox: a fixed set of tools as a source; tools with the hooks of their step around each use (one
may forbid it, one is told what came of it); what a project says about tools, `[tools.NAME]`, and
`[tools.http]` for where requests may go; and what `onward tools` shows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from onward.agents.lists import ToolList, ToolShown
from onward.agents.model import Tool
from onward.agents.tools import port
from onward.agents.tools.schema import problems
from onward.agents.tools.web_addresses import Allowed, read_allowed
from onward.errors import InvalidInput
from onward.handlers.port import StepContext
from onward.handlers.shell import HookedCall, ToolHooks
from onward.model.values import Seconds, Whole, shown
from onward.pipeline.graph import Node

ALLOWED = "allowed_tools"
_ODD = re.compile(r"[^A-Za-z0-9_.*?-]")


class OfferedTool(msgspec.Struct, frozen=True):
    """A tool, and the rules that hold for it here."""

    tool: port.AgentTool
    rules: port.ToolRules

    def problems(self, arguments: dict[str, Any]) -> list[str]:
        """What is wrong with the arguments of a use, for the model to correct; nothing if they fit."""
        return problems(self.tool.described.parameters, arguments)


class Toolbox(msgspec.Struct, frozen=True):
    """All tools of a process. A node without `allowed_tools` gets those of `default`."""

    sources: Sequence[port.ToolSource] = ()
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
                    f"node {node.id!r} allows the tool {name[:100]!r}, which is not a valid name; use "
                    "letters, digits, _ and -, with * for any letters."
                )
        return names

    def check_node(self, node: Node) -> None:
        """Refuse a node that allows a tool which nobody offers, before a run begins."""
        for name in self.allowed(node):
            if not any(source.check_name(name, node) for source in self.sources):
                raise InvalidInput(
                    f"node {node.id!r} allows the tool {name!r}, which does not exist; correct "
                    "allowed_tools, or set up the tool in the project's settings."
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

    def rules_of(self, tool: port.AgentTool) -> port.ToolRules:
        """The rules of a tool here. What is said of its name counts more than a pattern, and a later pattern
        more than an earlier one."""
        name = tool.described.name
        rules = _fields(tool.rules)
        for pattern, changes in self.changed.items():
            if pattern != name and fnmatchcase(name, pattern):
                rules |= changes
        return port.ToolRules(**{**rules, **self.changed.get(name, {})})  # type: ignore[arg-type]


def is_allowed(name: str, allowed: Sequence[str]) -> bool:
    """Whether one of the names or patterns of a node means this tool."""
    return any(fnmatchcase(name, pattern) for pattern in allowed)


def _fields(rules: port.ToolRules) -> dict[str, object]:
    return {name: getattr(rules, name) for name in port.ToolRules.__struct_fields__}


class FixedTools(msgspec.Struct, frozen=True):
    """The same tools for every step; `origin` says where they come from."""

    origin: str
    offered: Sequence[port.AgentTool]

    def check_name(self, name: str, node: Node) -> bool:
        return any(is_allowed(tool.described.name, (name,)) for tool in self.offered)

    async def tools(self, step: StepContext, names: Sequence[str]) -> Sequence[port.AgentTool]:
        return [tool for tool in self.offered if is_allowed(tool.described.name, names)]

    async def listed(self) -> port.ListedTools:
        return port.ListedTools(self.offered)


class HookedTools(msgspec.Struct, frozen=True):
    """A source whose tools all have these hooks."""

    source: port.ToolSource
    hooks: ToolHooks

    @property
    def origin(self) -> str:
        return self.source.origin if isinstance(self.source, port.ListsTools) else ""

    def check_name(self, name: str, node: Node) -> bool:
        return self.source.check_name(name, node)

    async def tools(self, step: StepContext, names: Sequence[str]) -> Sequence[port.AgentTool]:
        return [_HookedTool(tool, self.hooks) for tool in await self.source.tools(step, names)]

    async def listed(self) -> port.ListedTools:
        return (
            await self.source.listed() if isinstance(self.source, port.ListsTools) else port.ListedTools(())
        )


class _HookedTool(msgspec.Struct, frozen=True):
    tool: port.AgentTool
    hooks: ToolHooks

    @property
    def described(self) -> Tool:
        return self.tool.described

    @property
    def rules(self) -> port.ToolRules:
        return self.tool.rules

    async def run(self, use: port.ToolUse) -> port.ToolAnswer:
        call = HookedCall(self.described.name, use.arguments, use.key)
        forbidden = await self.hooks.before(use.step, call)
        if forbidden is not None:
            raise port.ToolRefused(forbidden)
        answer = await self._answered(use, call)
        await self._tell(use, call, answer)
        return answer

    async def _answered(self, use: port.ToolUse, call: HookedCall) -> port.ToolAnswer:
        try:
            return await self.tool.run(use)
        except Exception as error:
            await self._tell(use, call, port.ToolAnswer(str(error), is_error=True))
            raise

    async def _tell(self, use: port.ToolUse, call: HookedCall, answer: port.ToolAnswer) -> None:
        result = {"output": answer.text, "is_error": answer.is_error}
        note = await self.hooks.after(use.step, call, result)
        if note:
            use.step.log(note)


HTTP = "http"
TIME_LIMIT = Seconds(0.1)
OUTPUT = Whole(1_000, 10_000_000)
_NAME = re.compile(r"[A-Za-z0-9_*?-][A-Za-z0-9_.*?-]{0,127}")


class ToolSettings(msgspec.Struct, frozen=True):
    """What is changed in the rules of tools, by their names or patterns, and where requests may go."""

    changed: Mapping[str, Mapping[str, object]] = msgspec.field(default_factory=dict)
    allowed: tuple[Allowed, ...] = ()
    allows_private: bool = False


def read_tools(tables: Mapping[str, Any], *, where: str = "onward.toml") -> ToolSettings:
    """The settings of `[tools]`; InvalidInput for the first that cannot be used."""
    changed: dict[str, Mapping[str, object]] = {}
    http: Mapping[str, Any] = {}
    for name, table in tables.items():
        place = f"[tools.{name}] in {where}"
        if not isinstance(table, dict):
            raise InvalidInput(f"tools.{name} in {where} is {shown(table)}; write a table [tools.{name}].")
        if not _NAME.fullmatch(name):
            raise InvalidInput(
                f'{place} cannot be the name of a tool; use letters, digits, _ and -, or * as in "github__*".'
            )
        if name == HTTP:
            http = _tool_settings(table, place, HTTP_READERS)
        else:
            changed[name] = _tool_settings(table, place, SETTING_READERS)
    return ToolSettings(changed, http.get("allow", ()), http.get("allow_private", False))


def _tool_settings(
    table: Mapping[str, Any], place: str, readers: Mapping[str, Callable[[object, str], Any]]
) -> Mapping[str, Any]:
    if unknown := sorted(table.keys() - readers.keys()):
        hint = ""
        if readers is HTTP_READERS and set(unknown) <= SETTING_READERS.keys():
            hint = " The rules of its tools belong in [tools.http_get] and [tools.http_send]."
        raise InvalidInput(
            f"{place} sets {', '.join(unknown)}; known settings are {', '.join(sorted(readers))}.{hint}"
        )
    return {key: readers[key](value, f"{key} of {place}") for key, value in table.items()}


def _switch(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{what} is {shown(value)}; write true or false.")
    return value


def _allow(value: object, what: str) -> tuple[Allowed, ...]:
    if not isinstance(value, list):
        raise InvalidInput(f'{what} is {shown(value)}; write a list such as ["api.example.com"].')
    return tuple(read_allowed(entry, what) for entry in value)


SETTING_READERS: Mapping[str, Callable[[object, str], Any]] = {
    "approval": _switch,
    "repeatable": _switch,
    "time_limit_s": TIME_LIMIT.check,
    "output_characters": OUTPUT.check,
}
"""The settings of `[tools.NAME]`: the fields of ToolRules."""
HTTP_READERS: Mapping[str, Callable[[object, str], Any]] = {"allow": _allow, "allow_private": _switch}
"""The settings of `[tools.http]`."""


async def list_tools(toolbox: Toolbox) -> ToolList:
    """All of it, asked for where the tools are."""
    found: list[ToolShown] = []
    failed: list[str] = []
    for source in toolbox.sources:
        if isinstance(source, port.ListsTools):
            listed = await source.listed()
            found += [_tool_shown(toolbox, tool, source.origin) for tool in listed.tools]
            failed += listed.failed
    names = [tool["name"] for tool in found]
    said = dict.fromkeys((*toolbox.changed, *toolbox.default))
    unknown = [name for name in said if not any(is_allowed(one, (name,)) for one in names)]
    return {"tools": found, "default": list(toolbox.default), "unknown": unknown, "failed": failed}


def _tool_shown(toolbox: Toolbox, tool: port.AgentTool, origin: str) -> ToolShown:
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
