"""The tools that a server lists, as a model is told of them and as they may be used. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from blake3 import blake3

from onward.agents.model.request import Tool
from onward.agents.model.stream import NAME_CHARACTERS_MAX, ODD_IN_NAMES
from onward.agents.tools.mcp.settings import McpServer
from onward.agents.tools.port import ToolRules
from onward.agents.tools.schema import check_schema
from onward.errors import InvalidInput

DESCRIPTION_CHARACTERS_MAX = 4_000


class ListedTool(msgspec.Struct, frozen=True):
    """One tool of a server: its own name there, what a model is told, and how it may be used."""

    own_name: str
    described: Tool
    rules: ToolRules


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


def rules_of(server: McpServer, annotations: object) -> ToolRules:
    """How a tool may be used: strictly, and less so only if the settings trust what its server says.

    Without that, nothing a server says changes anything: every use needs approval, and is in doubt if its
    process dies.
    """
    strict = ToolRules(repeatable=False, approval=True, time_limit_s=server.time_limit_s)
    if not server.trust_hints or not isinstance(annotations, dict):
        return strict
    is_read_only = annotations.get("readOnlyHint") is True
    is_destructive = annotations.get("destructiveHint")
    return ToolRules(
        repeatable=is_read_only or annotations.get("idempotentHint") is True,
        approval=is_destructive is True or not (is_read_only or is_destructive is False),
        time_limit_s=server.time_limit_s,
    )
