"""The words in which a tool tells the model what it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def arguments(required: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The schema of a tool's arguments."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def text(description: str) -> dict[str, Any]:
    """The schema of a text."""
    return {"type": "string", "description": description}
