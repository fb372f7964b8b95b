"""A browser, servers and windows for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.cli.conftest import any_shell, shell
from tests.cli.shell import Shell
from tests.web.site import CHROMIUM, DIST, FLAGS, Site, Window, site_at, window

__all__ = ["any_shell", "shell"]


@pytest.fixture
def browser() -> Iterator[Browser]:
    """Debian's Chromium, for one test: while Playwright is open, no other event loop runs in the process."""
    if not DIST.is_file():
        pytest.skip("the page is not built: `make web` builds it")
    if not CHROMIUM.is_file():
        pytest.skip("there is no Chromium: `apt install chromium`")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def site(browser: Browser, any_shell: Shell) -> Iterator[Site]:
    """A server without a model."""
    with site_at(any_shell) as site:
        yield site


@pytest.fixture
def windows(browser: Browser) -> Iterator[Callable[..., Window]]:
    """Opens windows; at the end all of them must have said nothing."""
    opened: list[Window] = []

    def opening(site: Site, **how: object) -> Window:
        opened.append(window(browser, site, **how))
        return opened[-1]

    yield opening
    for one in opened:
        one.close()
