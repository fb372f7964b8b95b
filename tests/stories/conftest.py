"""Browser, windows and servers from the tests of the page; shells from those of workers."""

from __future__ import annotations

from tests.web.conftest import any_shell, browser, site, windows
from tests.worker.conftest import shell, turnstile

__all__ = ["any_shell", "browser", "shell", "site", "turnstile", "windows"]
