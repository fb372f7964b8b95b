"""Times that a person types: an instant, or a delay from now."""

from __future__ import annotations

from onward.errors import InvalidInput
from onward.model.values import INSTANT_US_MAX, read_rfc3339, shown


def read_time(text: str, what: str, *, now_us: int) -> int:
    """`2030-01-31T09:00:00Z` or `+10m`, as microseconds since 1970; `what` names it in an error."""
    from onward.pipeline.value import Duration

    try:
        if not text.startswith("+"):
            return read_rfc3339(text)
        at_us = now_us + int(Duration.parse(text[1:]).seconds * 1_000_000)
        if at_us <= INSTANT_US_MAX:
            return at_us
    except ValueError:
        pass
    raise InvalidInput(
        f"{what} {shown(text)} is neither a time with its zone, such as 2030-01-31T09:00:00Z, nor a delay, "
        "such as +10m."
    )
