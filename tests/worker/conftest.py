"""Real workers: the command line on either database, and a turnstile in front of their steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Shell
from tests.cli.turnstile import Turnstile


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    """A shell at an empty database of either kind."""
    is_file = request.param == "sqlite"
    shell = Shell(
        tmp_path, str(tmp_path / "onward.db") if is_file else request.getfixturevalue("postgres_emptied_url")
    )
    yield shell
    shell.close()


@pytest.fixture
def turnstile(tmp_path: Path) -> Iterator[Turnstile]:
    turnstile = Turnstile(tmp_path)
    yield turnstile
    turnstile.close()
