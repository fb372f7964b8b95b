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


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def any_shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    """A shell at an empty database of each kind."""
    db = (
        str(tmp_path / "onward.db")
        if request.param == "sqlite"
        else request.getfixturevalue("postgres_emptied_url")
    )
    shell = Shell(tmp_path, db)
    yield shell
    shell.close()
