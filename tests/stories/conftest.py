"""The browser and its windows, from the tests of the page."""

from __future__ import annotations

from tests.web.conftest import browser, windows

__all__ = ["browser", "windows"]
