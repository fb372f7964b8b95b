"""A type's JSON Schema in one piece: small models, and some providers, follow references badly. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

_AT = "#/$defs/"


def inlined(kind: Any) -> dict[str, Any]:
    """The schema with every part where it is used; only a part that holds itself stays under `$defs`."""
    (root,), parts = msgspec.json.schema_components([kind], ref_template=_AT + "{name}")
    kept: dict[str, Any] = {}
    schema: dict[str, Any] = _with_parts(root, parts, (), kept)
    schema.pop("title", None)
    return {**schema, "$defs": kept} if kept else schema


def _with_parts(schema: Any, parts: dict[str, Any], inside: tuple[str, ...], kept: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_with_parts(one, parts, inside, kept) for one in schema]
    if not isinstance(schema, dict):
        return schema
    written = {key: _with_parts(value, parts, inside, kept) for key, value in schema.items()}
    target = schema.get("$ref")
    if not isinstance(target, str):  # a property may have this name
        return written
    name = target.removeprefix(_AT)
    if name in kept:
        return written
    if name in inside or _holds(parts[name], name, parts, set()):
        kept[name] = None  # so that it is not entered again
        kept[name] = _with_parts(parts[name], parts, (*inside, name), kept)
        return written
    del written["$ref"]
    return {**_with_parts(parts[name], parts, (*inside, name), kept), **written}


def _holds(schema: Any, name: str, parts: dict[str, Any], seen: set[str]) -> bool:
    """Whether a part leads back to `name`."""
    if isinstance(schema, list):
        return any(_holds(one, name, parts, seen) for one in schema)
    if not isinstance(schema, dict):
        return False
    target = schema.get("$ref")
    if isinstance(target, str):
        found = target.removeprefix(_AT)
        if found == name:
            return True
        if found not in seen:
            seen.add(found)
            if _holds(parts[found], name, parts, seen):
                return True
    return any(_holds(value, name, parts, seen) for value in schema.values())
