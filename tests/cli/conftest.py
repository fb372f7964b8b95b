"""A shell for every test of the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A shell at a SQLite database of its own."""
    shell = Shell(tmp_path, str(tmp_path / "onward.db"))
    yield shell
    shell.close()
