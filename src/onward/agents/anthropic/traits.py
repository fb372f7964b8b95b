"""How models differ that speak Anthropic's format."""

from __future__ import annotations

import re

_NAME = re.compile(
    r"claude-(?P<family>[a-z]+)(?:-(?P<major>\d{1,2})(?:[-.](?P<minor>\d{1,2})(?!\d))?)?(?!\d)"
)
_EFFORT_SINCE = {"opus": (4, 5), "sonnet": (4, 6), "haiku": (5, 0), "fable": (0, 0), "mythos": (0, 0)}
_ADAPTIVE_SINCE = _EFFORT_SINCE | {"opus": (4, 6)}
_ALWAYS_SINCE = {"opus": (5, 0), "haiku": (5, 5), "fable": (0, 0), "mythos": (0, 0)}


def takes_effort(model: str) -> bool:
    """Whether a model of this name takes `output_config.effort`; others refuse the whole request for it."""
    return _is_since(model, _EFFORT_SINCE)


def thinks_adaptively(model: str) -> bool:
    """Whether a model of this name decides by itself how long it thinks, if it is told to think."""
    return _is_since(model, _ADAPTIVE_SINCE)


def thinks_anyway(model: str) -> bool:
    """Whether a model of this name thinks without being told to."""
    return _is_since(model, _ALWAYS_SINCE)


def _is_since(model: str, since: dict[str, tuple[int, int]]) -> bool:
    found = _NAME.search(model.lower())
    if found is None or found["family"] not in since:
        return False
    return (int(found["major"] or 0), int(found["minor"] or 0)) >= since[found["family"]]
