"""What a tool of a server answered, as text for the model. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from onward.agents.tools.mcp.messages import plain
from onward.agents.tools.port import ToolAnswer


def read_answer(result: Mapping[str, Any]) -> ToolAnswer:
    """The texts one after another; pictures and other data are named, not shown; structured data is JSON."""
    if result.get("resultType") == "input_required":
        text = "the tool asks for input of a person, which it cannot be given here"
        return ToolAnswer(text, is_error=True)
    content = result.get("content")
    parts = [_part(one) for one in content] if isinstance(content, list) else []
    structured = result.get("structuredContent")
    if structured is not None and not _is_told(parts, structured):
        parts.append(msgspec.json.encode(structured).decode())
    return ToolAnswer("\n".join(part for part in parts if part), is_error=result.get("isError") is True)


def _is_told(parts: list[str], structured: object) -> bool:
    """Whether one of the texts says the same, as servers send it for older clients."""
    # What is no object is often wrapped in one.
    inner = (
        structured["result"] if isinstance(structured, dict) and [*structured] == ["result"] else structured
    )
    for part in parts:
        try:
            found = msgspec.json.decode(part)
        except (msgspec.DecodeError, RecursionError):
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
            named = plain(str(one.get("name") or one.get("title") or ""), 100)
            return f"[link: {named} {plain(str(one.get('uri', '')), 500)}]"
        case "resource":
            return _resource(one.get("resource"))
        case other:
            return f"[{plain(str(other), 50)}: not shown]"


def _resource(resource: object) -> str:
    if not isinstance(resource, dict):
        return ""
    uri = plain(str(resource.get("uri", "")), 500)
    if isinstance(resource.get("text"), str):
        return f"[{uri}]\n{resource['text']}"
    return f"[resource: {uri}, {_kind(resource)}, {_size(resource.get('blob'))}]"


def _kind(one: Mapping[str, Any]) -> str:
    return plain(str(one.get("mimeType") or "unknown type"), 100)


def _size(data: object) -> str:
    """How large base64 data is."""
    return f"{len(data) * 3 // 4:,} bytes" if isinstance(data, str) else "no data"
