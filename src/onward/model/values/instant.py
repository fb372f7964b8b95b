"""Times as people and programs outside see them: instants, and how long something takes."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86400


@lru_cache(maxsize=256)  # the end of a step is the beginning of the next, and in several files
def rfc3339(at_us: int) -> str:
    """Microseconds since 1970 as RFC 3339, UTC."""
    at = datetime.fromtimestamp(at_us / 1_000_000, UTC)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def instant_of(at: datetime) -> int:
    """A time as microseconds since 1970; ValueError if it does not say in which zone it is."""
    if at.utcoffset() is None:
        raise ValueError("a time with its zone, such as 2030-01-31T09:00:00Z")
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return max(0, (since.days * DAY_S + since.seconds) * 1_000_000 + since.microseconds)


def read_rfc3339(text: str) -> int:
    """RFC 3339 as microseconds since 1970; ValueError says what was expected."""
    try:
        return instant_of(datetime.fromisoformat(text))
    except ValueError:
        raise ValueError("a time with its zone, such as 2030-01-31T09:00:00Z") from None


def span(seconds: float) -> str:
    """How long something took: two digits that matter."""
    if seconds < 1:
        return f"{max(seconds, 0) * 1_000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < HOUR_S:
        return f"{seconds // MINUTE_S:.0f} min {seconds % MINUTE_S:02.0f} s"
    if seconds < DAY_S:
        return f"{seconds // HOUR_S:.0f} h {seconds % HOUR_S // MINUTE_S:02.0f} min"
    return f"{seconds // DAY_S:.0f} d {seconds % DAY_S // HOUR_S:.0f} h"
