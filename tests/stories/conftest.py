"""Browser, windows and servers from the tests of the page; shells from those of workers."""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell
from tests.web.conftest import browser, site, windows
from tests.worker.conftest import shell, turnstile

__all__ = ["browser", "shell", "site", "turnstile", "windows"]


@pytest.fixture
def any_shell(shell: Shell) -> Shell:
    """The shell of the story: its server and its commands are at one database."""
    return shell
