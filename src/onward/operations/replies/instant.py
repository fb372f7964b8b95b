"""How replies write a time."""

from __future__ import annotations

Instant = str
"""RFC 3339, UTC."""
