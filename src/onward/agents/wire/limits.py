"""How long a provider may take."""

from __future__ import annotations

import msgspec


class TimeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. A model that reasons may be silent for minutes before its first word."""

    connect_s: float = 10.0
    first_byte_s: float = 600.0
    """Until the answer begins, after the connection is made."""
    between_s: float = 120.0
    """Between two pieces of an answer; comments that keep a connection alive count as pieces."""
    total_s: float = 1800.0


def patience(limits: TimeLimits, *, spent_s: float, is_first: bool) -> tuple[float, str]:
    """How long the next piece of an answer may take, and what is said of one that takes longer.

    `spent_s` is the time since the request; what the head of the answer took is part of the first piece's.
    """
    wait_s, late = limits.between_s, f"sent nothing for {limits.between_s:g} s"
    if is_first:
        wait_s = limits.connect_s + limits.first_byte_s - spent_s
        late = f"sent nothing for {limits.first_byte_s:g} s"
    if limits.total_s - spent_s < wait_s:
        return limits.total_s - spent_s, f"took longer than {limits.total_s:g} s"
    return wait_s, late
