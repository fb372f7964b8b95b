"""The headers that repeat parts of a request, in revisions without a handshake. Pure."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any

from onward.errors import InvalidInput

MARK = "x-mcp-header"
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_TYPES = ("string", "integer", "boolean")


def encoded(value: str) -> str:
    """A text as the value of a header; in base64 if it could not be sent as it is."""
    if _PLAIN.fullmatch(value) and not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'replace')).decode()}?="


def check_marks(schema: Mapping[str, Any]) -> None:
    """Refuse a schema whose marks cannot be followed."""
    marked = [name for _, name, _ in _marked(schema, ())]
    if len({str(name).lower() for name in marked}) != len(marked) or _count(schema) != len(marked):
        raise InvalidInput(f"it has {MARK} twice, or where it cannot be.")
    for path, name, part in _marked(schema, ()):
        if not isinstance(name, str) or not _TOKEN.fullmatch(name) or part.get("type") not in _TYPES:
            raise InvalidInput(f"its parameter {'.'.join(path)!r} has an {MARK} that cannot be a header.")


def mirrored(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, str]:
    """The headers that arguments become, as the schema marks them."""
    headers = {}
    for path, name, _ in _marked(schema, ()):
        value: Any = arguments
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, bool):
            headers[f"Mcp-Param-{name}"] = "true" if value else "false"
        elif isinstance(value, str | int):
            headers[f"Mcp-Param-{name}"] = encoded(str(value))
    return headers


def _marked(
    schema: Mapping[str, Any], above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any, Mapping[str, Any]]]:
    """The marked parameters: where they are, the name of the header, and their schemas."""
    properties = schema.get("properties")
    for name, part in properties.items() if isinstance(properties, Mapping) else ():
        if isinstance(part, Mapping):
            if MARK in part:
                yield (*above, name), part[MARK], part
            yield from _marked(part, (*above, name))


def _count(schema: object) -> int:
    """How many marks there are anywhere."""
    if isinstance(schema, list):
        return sum(map(_count, schema))
    if not isinstance(schema, Mapping):
        return 0
    return (MARK in schema) + sum(map(_count, schema.values()))
