"""How long a tool may work within its time limit."""

from __future__ import annotations

SETTLING_S_MAX = 5.0
SETTLING_SHARE = 0.2


def working_s(limit_s: float) -> float:
    """How long the work itself may take: ending what takes longer, and telling of it, take time, too."""
    return limit_s - min(SETTLING_S_MAX, limit_s * SETTLING_SHARE)
