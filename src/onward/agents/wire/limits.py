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
