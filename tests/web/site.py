"""A real server with a scripted model, and a browser in front of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request, expect

from tests.cli.shell import Shell
from tests.server.serving import READY, Serving

ROOT = Path(__file__).parent.parent.parent
DIST = ROOT / "web/dist/index.html"
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",  # tests may run as root
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-sync",
    "--no-first-run",
    "--no-pings",
    "--disable-gpu",
]
UNREACHABLE = re.compile(
    r"WebSocket connection to|ERR_(CONNECTION|EMPTY_RESPONSE|SOCKET|CONTENT_LENGTH|INCOMPLETE)"
)
"""What a browser writes into the console while a server is gone; the page cannot prevent it."""

expect.set_options(timeout=15_000)


@dataclass
class Site:
    """A server at one address, in front of one database, through kills and restarts."""

    shell: Shell
    server: Serving
    windows: list[Window] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    def restart(self) -> None:
        """Kill it, and start it again at the same address."""
        port = self.server.port
        self.server.kill()
        self.server = started(self.shell, port)

    def add(self, name: str, source: str) -> None:
        """Register a pipeline from a file of this machine, as an operator does."""
        path = self.shell.directory / f"{name}.dot"
        path.write_text(source)
        done = self.shell("pipelines", "add", str(path), "--name", name)
        assert done.code == 0, done.err

    def run(self, pipeline: str, **more: Any) -> str:
        """Start a run of it."""
        run: str = self.server.post("/api/runs", {"pipeline": pipeline, **more})["run"]["id"]
        return run

    def say(self, chat: str, text: str) -> Any:
        """Say something in a chat."""
        return self.server.post("/api/messages", {"chat": chat, "text": text})


@dataclass
class Window:
    """A page of a browser, and everything in its console."""

    page: Page
    site: Site
    lines: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    is_loss_expected: bool = False
    is_shut: bool = False

    def __post_init__(self) -> None:
        self.site.windows.append(self)
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.lines.append(f"error: {error}"))
        self.page.on("dialog", self._opened)
        self.page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        self.lines.append(f"{message.type}: {message.text}")

    def _opened(self, dialog: Dialog) -> None:
        self.lines.append("a dialog")
        dialog.dismiss()

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.site.url, "data:")):
            self.outside.append(request.url)

    def sign_in(self, *, token: str | None = None) -> None:
        """Sign in with a token, as somebody who has no link."""
        self.page.goto(f"{self.site.url}/sign-in")
        self.page.get_by_label("Token").fill(token or self.site.server.token)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.wait_for_url("**/runs")

    def open(self, path: str) -> None:
        self.page.goto(self.site.url + path)

    def shut(self) -> None:
        """Let it hear nothing more."""
        if not self.is_shut:
            self.is_shut = True
            self.page.context.close()

    def close(self) -> None:
        """Nothing was written into the console, and nothing was asked for elsewhere."""
        self.shut()
        lines = [line for line in self.lines if not (self.is_loss_expected and UNREACHABLE.search(line))]
        assert lines == [], "\n".join(lines)
        assert self.outside == [], self.outside


def started(shell: Shell, port: int = 0) -> Serving:
    """A server that accepts requests, at any port or at this one."""
    process = shell.start("serve", "--port", str(port))
    process.wait_for(READY)
    told = process._out.text
    found = re.search(READY, told)
    assert found is not None
    return Serving(shell, process, int(found[1].rpartition(":")[2]), found[2], told)


@contextmanager
def site_at(shell: Shell, model: str | None = None, *, name: str = "openai:scripted") -> Iterator[Site]:
    """A server; with a model's address, its agents ask that, by this name."""
    if model is not None:
        shell.environment |= {"OPENAI_BASE_URL": model, "ONWARD_MODEL": name}
    server = started(shell)
    site = Site(shell, server)
    try:
        yield site
    finally:
        for one in site.windows:
            one.shut()
        if site.server.process.process.poll() is None:
            site.server.kill()


@contextmanager
def model_at(directory: Path, rules: list[dict[str, Any]]) -> Iterator[str]:
    """The address of a model that plays these rules."""
    script = directory / "script.json"
    script.write_text(json.dumps({"rules": rules}))
    command = [sys.executable, "-m", "onward.testing.model_endpoint", str(script)]
    with subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True) as endpoint:
        assert endpoint.stdout is not None
        try:
            yield endpoint.stdout.readline().strip()
        finally:
            endpoint.terminate()


def window(browser: Browser, site: Site, **how: Any) -> Window:
    """A new window of a person who was never here."""
    context: BrowserContext = browser.new_context(viewport={"width": 1440, "height": 900}, **how)
    return Window(context.new_page(), site)
