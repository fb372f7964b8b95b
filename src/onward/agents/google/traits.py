"""How models differ that speak Google's format."""

from __future__ import annotations

import re

_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?")


def version(model: str) -> tuple[int, int] | None:
    """The version of a Gemini model; None for other models."""
    found = _VERSION.search(model.lower())
    return None if found is None else (int(found[1]), int(found[2] or 0))


def takes_level(model: str) -> bool:
    """Whether a model of this name takes `thinkingLevel`, and wants its signatures back."""
    found = version(model)
    return found is not None and found >= (3, 0)


def takes_budget(model: str) -> bool:
    """Whether a model of this name takes `thinkingBudget`."""
    return version(model) == (2, 5)
