"""Times as people and programs outside see them."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


@lru_cache(maxsize=256)  # the end of a step is the beginning of the next, and in several files
def rfc3339(at_us: int) -> str:
    """Microseconds since 1970 as RFC 3339, UTC."""
    at = datetime.fromtimestamp(at_us / 1_000_000, UTC)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
