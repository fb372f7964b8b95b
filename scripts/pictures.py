"""`make pictures`: take the pictures of the page that the README and the docs show, in Chromium.

They show a real run of the website builder: a limit stopped it, its process was killed twice, and a person
chose a direction. Nothing is drawn by hand, so a picture cannot show what the page does not.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from demo.demo import CUT_OFF, DESIGNER, HIGH, LOW, MESSAGE, ONWARD, Demo, model

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs/images"
CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
WIDE, NARROW = ViewportSize(width=1440, height=900), ViewportSize(width=380, height=800)
TWO_OF_THREE = 7
"""The steps that have finished when only the frontend developer is still at work."""
WRITES = "You are the frontend developer"
SAID = (
    "I write `index.html` and `app.js`. The page is one column and shows what there is today first, then "
    "the order form, then the opening hours. `app.js` asks `/api/breads` for names and prices when it opens."
)


def main() -> None:
    """Every picture, light and dark where both are shown."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        project = Path(directory, "bakery")
        begin = [sys.executable, str(ROOT / "examples/website/begin.py"), str(project)]
        subprocess.run(begin, check=True, stdout=subprocess.DEVNULL)
        stall(project / "script.json")
        with model(project) as environment:
            demo = Demo(project, environment)
            interrupt(demo)
            with served(demo) as link, sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
                take(browser, link)
                browser.close()


def stall(script: Path) -> None:
    """Let one answer of the designer and one of the frontend developer never come to their end."""
    rules = json.loads(script.read_text())["rules"]
    for who, text in ((DESIGNER, "Three directions come to mind."), (WRITES, SAID)):
        pieces = {"break_after": len(text) // 4 - 1, "break_with": "stall"}
        rules.insert(0, {"contains": who, "times": 1, "reply": {"text": text, **pieces}})
    script.write_text(json.dumps({"rules": rules}))


def interrupt(demo: Demo) -> None:
    """A run as people find it: stopped at a limit, killed, answered, and killed again."""
    demo.show("pipelines", "add", "website.dot")
    demo.show("limits", "set", "chat/bakery", "tokens", LOW)
    demo.chat(MESSAGE).wait()
    demo.show("limits", "set", "chat/bakery", "tokens", HIGH)
    kill(demo, demo.chat("continue?"), CUT_OFF)
    demo.chat("continue?").wait()
    running = demo.chat("calm")
    while demo.ask("status")[0]["steps_finished"] < TWO_OF_THREE:
        time.sleep(0.1)
    end(running)


def kill(demo: Demo, running: subprocess.Popen[bytes], requests: int) -> None:
    """End a process once the model got so many requests."""
    demo.wait_for_requests(requests)
    end(running)


def end(running: subprocess.Popen[bytes]) -> None:
    """End a process without a word."""
    os.kill(running.pid, signal.SIGKILL)
    running.wait()


@contextmanager
def served(demo: Demo) -> Iterator[str]:
    """The sign-in link of a server that executes nothing."""
    command = [*ONWARD, "serve", "--port", "0", "--no-worker"]
    with subprocess.Popen(
        command, cwd=demo.project, env=demo.environment, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            lines = iter(server.stdout.readline, "")
            yield next(found[1] for line in lines if (found := re.search(r"sign in: (\S+)", line)))
        finally:
            server.terminate()


def take(browser: Browser, link: str) -> None:
    """Open each page and keep what it shows."""
    base = link.partition("/sign-in")[0]
    window = browser.new_page(viewport=WIDE, color_scheme="light")
    window.goto(link)
    window.wait_for_url(f"{base}/runs")
    run = window.locator("a[href*='/runs/']").first.get_attribute("href") or ""
    pages = {
        "runs": "/runs",
        "run-interrupted": f"{run}?step=fan%231.frontend/frontend%231",
        "chat": "/chats/bakery",
    }
    for theme in ("light", "dark"):
        window.emulate_media(color_scheme=theme)
        for name, path in pages.items():
            keep(window, base + path, f"{name}-{theme}")
    window.emulate_media(color_scheme="light")
    window.set_viewport_size(NARROW)
    keep(window, base + run, "run-narrow")


def keep(window: Page, address: str, name: str) -> None:
    """One picture, of a page that has come to rest."""
    window.goto(address)
    window.wait_for_load_state("networkidle")
    window.locator("h1").first.wait_for()
    window.wait_for_timeout(500)
    window.screenshot(path=IMAGES / f"{name}.png", animations="disabled")


if __name__ == "__main__":
    main()
