"""An error of a user's function in one line."""

from __future__ import annotations


def told(error: Exception) -> str:
    """Its kind, and what it says."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
