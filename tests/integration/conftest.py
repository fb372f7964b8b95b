"""A shell at an empty database of either kind, for servers as processes."""

from __future__ import annotations

from tests.worker.conftest import shell

__all__ = ["shell"]
