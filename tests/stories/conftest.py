"""Browser, windows and servers from the tests of the page; shells from those of workers."""

from __future__ import annotations

from tests.web.conftest import browser, site, windows
from tests.worker.conftest import shell, turnstile

__all__ = ["browser", "shell", "site", "turnstile", "windows"]
