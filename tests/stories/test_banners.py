"""Each banner that the stories do not show, made with real processes: its words, its colour, its buttons."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.cli.shell import Shell, pipeline
from tests.cli.turnstile import Turnstile
from tests.integration.client import model
from tests.web.site import Site, Window, site_at

pytestmark = [pytest.mark.slow, pytest.mark.crash]
Windows = Callable[..., Window]
WAIT_S = 90


def card(page: Page) -> Locator:
    return page.get_by_label("Recovery")


def shows(one: Window, title: str, tone: str, *buttons: str) -> None:
    """Exactly one banner, also after a reload."""
    for _ in range(2):
        expect(card(one.page)).to_have_count(1)
        expect(card(one.page).get_by_role("heading").first).to_have_text(re.compile(title))
        assert tone in (card(one.page).get_attribute("class") or "").split()
        assert card(one.page).locator(".acts").get_by_role("button").all_inner_texts() == [*buttons]
        one.page.reload()


def kinds(site: Site, run: str) -> list[str]:
    return [event["kind"] for event in site.server.get(f"/api/runs/{run}/events")["events"]]


def opened(site: Site, windows: Windows, run: str) -> Window:
    one = windows(site)
    one.is_loss_expected = True
    one.sign_in()
    one.open(f"/runs/{run}")
    expect(one.page.get_by_role("tab", name="Steps")).to_be_visible()  # all of the page has come
    return one


def completed(one: Window) -> None:
    expect(one.page.get_by_text("Completed", exact=True).first).to_be_visible()
    expect(card(one.page)).to_have_count(0)


def test_a_process_that_died_is_said_and_a_retry_from_scratch_is_another_run(
    site: Site, shell: Shell, windows: Windows, turnstile: Turnstile
) -> None:
    """Outside a chat it is a fork at the creation, and the old run is cancelled."""
    shell.write("line.dot", pipeline(("one", shell.noting(turnstile.command))))
    alone = shell.start("run", "line.dot", "--run-id", "solo")
    turnstile.arrival()
    one = opened(site, windows, "solo")
    alone.process.kill()
    alone.end()
    expect(card(one.page)).to_be_visible(timeout=60_000)
    shows(
        one,
        r"^Process died\. Pipeline interrupted\.$",
        "interrupted",
        "Resume",
        "Retry from scratch",
        "Dismiss",
    )
    card(one.page).get_by_role("button", name="Retry from scratch").click()
    dialog = one.page.get_by_role("dialog")
    expect(dialog).to_contain_text("Cancels this run and starts anew.")
    dialog.get_by_role("button", name="Retry from scratch").click()
    assert turnstile.arrival().run_id != "solo"
    turnstile.let_through()
    completed(one)
    old = site.server.get("/api/runs/solo")
    assert (old["status"], "superseded" in old["detail"]) == ("cancelled", True)
    assert not one.page.url.endswith("/solo")


def test_a_server_that_starts_does_not_say_that_it_restarted_where_a_command_died(
    site: Site, shell: Shell, windows: Windows, turnstile: Turnstile
) -> None:
    """It says whose process died; document 004's own paths keep their one sentence for both."""
    shell.write("line.dot", pipeline(("one", shell.noting(turnstile.command))))
    alone = shell.start("run", "line.dot", "--run-id", "solo")
    turnstile.arrival()
    site.server.kill()
    alone.process.kill()
    alone.end()
    site.restart()
    found = site.server.get("/api/runs/solo")
    died = f"process {alone.process.pid} on "
    assert (found["status"], found["reason"]) == ("interrupted", "crash")
    assert found["detail"].startswith(died)
    assert f"run solo: interrupted ({died}" in site.server.told
    assert site.server.get("/api/workflows/solo")["failure_reason"] == (
        "Server restarted while workflow was running"
    )
    one = opened(site, windows, "solo")
    shows(
        one,
        r"^Process died\. Pipeline interrupted\.$",
        "interrupted",
        "Resume",
        "Retry from scratch",
        "Dismiss",
    )
    expect(card(one.page)).to_contain_text(f"Process {alone.process.pid} on ")


def test_a_paused_run_is_slate_and_says_by_whom(
    site: Site, shell: Shell, windows: Windows, turnstile: Turnstile
) -> None:
    site.add("line", pipeline(("one", shell.noting(turnstile.command)), ("two", shell.noting())))
    run = site.run("line")
    turnstile.arrival()
    one = opened(site, windows, run)
    one.page.get_by_role("button", name="Pause").click()
    expect(one.page.get_by_text("pauses after the step")).to_be_visible()
    turnstile.let_through()
    expect(card(one.page)).to_be_visible()
    shows(one, r"^Paused by .+ after one\.$", "paused", "Resume", "Dismiss")
    site.restart()
    shows(one, r"^Paused by .+ after one\.$", "paused", "Resume", "Dismiss")
    card(one.page).get_by_role("button", name="Resume").click()
    completed(one)
    assert kinds(site, run).count("RunResumed") == 1
    assert shell.ledger == ["one#1", "two#1"]


def test_a_provider_that_asks_to_wait_is_counted_down_and_can_be_tried_now(
    browser: Browser, shell: Shell, windows: Windows
) -> None:
    limited = ScriptedReply(status=429, retry_after=str(WAIT_S))
    played = ModelScript(rules=(ScriptRule(times=1, reply=limited),), default=ScriptedReply(text="Written."))
    source = 'digraph w { start [shape=Mdiamond]; exit [shape=Msquare]; w [prompt="W"]; start -> w -> exit }'
    with model(shell, played), site_at(shell) as site:
        site.add("w", source)
        run = site.run("w")
        site.server.until(run, "interrupted")
        one = opened(site, windows, run)
        shows(
            one, r"^The provider asks to wait\. Resumes by itself in 1:[0-3]\d\.$", "interrupted", "Try now"
        )
        site.restart()
        shows(one, r"^The provider asks to wait\. Resumes by itself in", "interrupted", "Try now")
        card(one.page).get_by_role("button", name="Try now").click()
        completed(one)


def test_a_step_that_kills_its_process_again_and_again_is_red_and_opens_its_log(
    site: Site, shell: Shell, windows: Windows, turnstile: Turnstile
) -> None:
    site.add("line", pipeline(("one", shell.noting(turnstile.command))))
    run = site.run("line", on_owner_loss="requeue")
    one = opened(site, windows, run)
    died = 0
    while died < 10 and site.server.get(f"/api/runs/{run}")["status"] != "failed":
        turnstile.arrival()
        site.restart()
        died += 1
    shows(
        one, rf"^Stopped: its process died {died} times at the same step\.$", "failed", "Open log", "Resume"
    )
    card(one.page).get_by_role("button", name="Open log").click()
    expect(one.page).to_have_url(re.compile(r"step=one%231.*panel=log|panel=log.*step=one%231"))
    card(one.page).get_by_role("button", name="Resume").click()
    turnstile.arrival()
    turnstile.let_through()
    completed(one)
