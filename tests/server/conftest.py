"""Shells for tests of servers as processes."""

from __future__ import annotations

from tests.cli.conftest import any_shell, shell

__all__ = ["any_shell", "shell"]
