"""Leave out of a schema what a provider does not hold an answer to, and would refuse the request for. Pure.

Nothing is lost: the model is told the whole schema, and its answer is checked against it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

LENGTHS = frozenset(("minLength", "maxLength"))
BOUNDS = LENGTHS | frozenset(
    (
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minItems", "maxItems", "uniqueItems", "minContains", "maxContains"),
        *("minProperties", "maxProperties"),
    )
)
_NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")  # a table of schemas
_VALUES = ("enum", "const", "default", "examples", "example")  # no schemas, whatever they look like


def without(schema: dict[str, Any], keywords: Collection[str]) -> dict[str, Any]:
    """The schema without these keywords, at every depth; a property of such a name stays."""
    if not keywords:
        return schema
    return {name: _inner(name, value, keywords) for name, value in schema.items() if name not in keywords}


def _inner(name: str, value: Any, keywords: Collection[str]) -> Any:
    if name in _VALUES:
        return value
    if name in _NAMED and isinstance(value, dict):
        return {key: _part(one, keywords) for key, one in value.items()}
    return [_part(one, keywords) for one in value] if isinstance(value, list) else _part(value, keywords)


def _part(value: Any, keywords: Collection[str]) -> Any:
    return without(value, keywords) if isinstance(value, dict) else value
