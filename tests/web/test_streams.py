"""Texts that stream into an open page: whatever becomes of the connection, they are what is stored, once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, WebSocketRoute, expect

from tests.cli.shell import Shell
from tests.web.site import Site, Window, model_at, site_at

pytestmark = pytest.mark.slow

Windows = Callable[..., Window]
WORDS = " ".join(f"w{number}" for number in range(400))
TALK = """digraph talk {
  graph [on_message=auto]
  start [shape=Mdiamond]
  exit [shape=Msquare]
  write [prompt="WRITE $user_message"]
  start -> write -> exit
}
"""


@contextmanager
def writing(browser: Browser, shell: Shell) -> Iterator[Site]:
    """A server whose agent is in the middle of a long answer in the chat `talk`."""
    rules = [{"contains": "WRITE", "reply": {"text": WORDS, "reasoning": "I think.", "delay_s": 0.02}}]
    with model_at(shell.directory, rules) as model, site_at(shell, model) as site:
        site.add("talk", TALK)
        site.say("talk", "go")
        yield site


def opened(site: Site, windows: Windows, *, before: Callable[[Page], None] | None = None) -> Window:
    """The chat, opened when a part of the answer has come."""
    one = windows(site)
    one.is_loss_expected = True
    if before is not None:
        before(one.page)
    one.sign_in()
    one.open("/chats/talk")
    expect(one.page.get_by_text("w9 ")).to_be_visible()
    return one


def stored(shell: Shell) -> list[str]:
    """The agents' answers as `onward messages` has them, piece by piece."""
    done = shell("messages", "talk", "--json")
    assert done.code == 0, done.err
    texts: dict[str, str] = {}
    for piece in (json.loads(line) for line in done.out.splitlines()):
        if piece["role"] != "assistant":
            continue
        if piece["kind"] == "reset":
            texts[piece["message"]] = _text(piece["parts"])
        elif piece["kind"] == "text":
            texts[piece["message"]] = texts.get(piece["message"], "") + piece["text"]
    return [text for text in texts.values() if text]


def _text(parts: list[dict[str, Any]]) -> str:
    return "".join(part["text"] for part in parts if part["kind"] == "text")


def shown(one: Window) -> list[str]:
    """The agents' answers as the page has them."""
    texts = one.page.get_by_role("log").locator("article .prose").all_inner_texts()
    return [" ".join(text.split()) for text in texts if text.strip()]


def completed(site: Site) -> None:
    """Wait until the answer is written, without the page."""
    run = site.server.get("/api/chat?chat=talk")["runs"][0]["id"]
    assert site.server.ask("GET", f"/api/runs/{run}", Prefer="wait=30").json["status"] == "completed"


def is_as_stored(one: Window, shell: Shell) -> None:
    """The page shows what `onward messages` prints, each message once; also after it was read again."""
    expect(one.page.get_by_text(re.compile(r"\bw399$")).last).to_be_visible()
    expect(one.page.get_by_text("Completed", exact=True).first).to_be_visible()
    assert shown(one) == stored(shell)
    assert shown(one)[-1] == WORDS
    one.page.reload()
    expect(one.page.get_by_text(re.compile(r"\bw399$")).last).to_be_visible()
    assert shown(one) == stored(shell)


def test_a_page_opened_in_the_middle_shows_what_is_stored(
    browser: Browser, shell: Shell, windows: Windows
) -> None:
    with writing(browser, shell) as site:
        one = opened(site, windows)
        assert len(shown(one)[-1]) < len(WORDS), "it was opened while the text was growing"
        is_as_stored(one, shell)


def test_a_server_that_is_gone_for_ten_seconds_costs_no_word(
    browser: Browser, shell: Shell, windows: Windows
) -> None:
    """What was shown stays; the page tries again by itself, and the resumed answer is there once."""
    with writing(browser, shell) as site:
        one = opened(site, windows)
        site.server.kill()
        expect(one.page.get_by_text("Reconnecting. What you see may be old.")).to_be_visible()
        expect(one.page.get_by_text(re.compile("Last event 1[0-9] s ago"))).to_be_visible()
        assert "w9" in shown(one)[-1]
        site.restart()
        card = one.page.get_by_label("Recovery")
        card.get_by_role("button", name="Resume").click()
        is_as_stored(one, shell)
        assert len(stored(shell)) == len(shown(one))


def test_a_page_that_slept_trusts_no_connection_from_before(
    browser: Browser, shell: Shell, windows: Windows
) -> None:
    """While a machine sleeps, its connections die without a word: here they fall silent."""
    sockets: list[WebSocketRoute] = []
    silent: list[WebSocketRoute] = []

    def connects(socket: WebSocketRoute) -> None:
        sockets.append(socket)

        def pass_on(message: str | bytes) -> None:
            if socket not in silent:
                socket.send(message)

        socket.connect_to_server().on_message(pass_on)

    def prepared(page: Page) -> None:
        page.clock.install()
        page.route_web_socket(re.compile("/api/live"), connects)

    with writing(browser, shell) as site:
        one = opened(site, windows, before=prepared)
        silent += sockets
        completed(site)
        assert len(shown(one)[-1]) < len(WORDS), "it heard nothing more"
        one.page.clock.fast_forward(60_000)  # as if the lid had been closed for a minute
        expect(one.page.get_by_text(re.compile(r"\bw399$")).last).to_be_visible()
        assert len(sockets) > len(silent)
        is_as_stored(one, shell)


def test_a_frozen_tab_catches_up_when_it_is_looked_at(
    browser: Browser, shell: Shell, windows: Windows
) -> None:
    """Browsers stop tabs that nobody sees: no timer and no frame until they are shown again."""
    with writing(browser, shell) as site:
        one = opened(site, windows)
        control = one.page.context.new_cdp_session(one.page)
        control.send("Page.setWebLifecycleState", {"state": "frozen"})
        completed(site)
        control.send("Page.setWebLifecycleState", {"state": "active"})
        is_as_stored(one, shell)
