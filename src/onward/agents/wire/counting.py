"""Tokens as servers count them: whatever number they send is one that can be stored."""

from __future__ import annotations

from onward.model.values import INTEGER_MAX


def count(tokens: int | None) -> int:
    """A number of tokens; none, or a negative one, is 0."""
    return min(max(tokens or 0, 0), INTEGER_MAX)
