"""Document 000's story in the browser, with its own paths called beside it.

A person looks at one page while the server is killed four times. What the page shows and what the document's
endpoints and socket say agree at each moment; the model is the only thing that is not real.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.cli.shell import Shell, wait_until
from tests.examples.website import playing, requests, script
from tests.integration.client import listening, model
from tests.integration.test_pipeline_resume import (
    CHAT,
    CUT_OFF,
    DESIGN,
    FEW,
    MESSAGE,
    PLAN,
    SMALL,
    STALLS,
    STYLING,
    branches_done,
    said,
    status,
    statuses,
    wait_for_request,
)
from tests.web.site import Site, Window, site_at
from tests.worker.conftest import shell as shell

pytestmark = [pytest.mark.slow, pytest.mark.crash]
Windows = Callable[..., Window]
LIMIT, RESTART = "Token limit reached. Pipeline paused.", "Server restarted. Pipeline interrupted."


def card(page: Page) -> Locator:
    """The one card of a stopped pipeline."""
    return page.get_by_label("Recovery")


def shows(page: Page, title: str, *buttons: str) -> None:
    """One amber banner with this title and these buttons, in this order."""
    expect(card(page)).to_have_count(1)
    expect(card(page).get_by_role("heading").first).to_have_text(title)
    assert "interrupted" in (card(page).get_attribute("class") or ""), "amber"
    shown = card(page).locator(".acts").get_by_role("button").all_inner_texts()
    assert shown == [*buttons]


def button(page: Page, name: str) -> Locator:
    return card(page).get_by_role("button", name=name)


def test_the_whole_story_of_document_000(browser: Browser, shell: Shell, windows: Windows) -> None:
    """S0-10, S0-11, S0-13, S0-14, S0-16, S0-17, S0-33, S0-34, S0-35, S0-36, S0-37, S0-38, S0-39, S0-42, B0-9.

    The limit, the restarts and the choice of a direction, in the page: one pipeline with one plan until it
    completes, and no answer is paid for twice.
    """
    with playing(shell, script(*CUT_OFF)) as ledger:
        assert shell("pipelines", "add", "website.dot").code == 0
        with site_at(shell) as site:
            one = windows(site)
            one.is_loss_expected = True
            run = is_paused_at_the_limit(site, one)
            continues_once_the_limit_is_raised(site, one, run)
            wait_for_request(ledger, DESIGN)
            is_interrupted_by_a_restart(site, one, windows, run)
            asks_which_direction_and_still_does_after_a_restart(site, one, run)
            wait_for_request(ledger, STYLING)
            wait_until(lambda: branches_done(site.server, run) == {"frontend", "backend"}, "the branches")
            is_finished_after_a_last_restart(site, one, run)
        twice = {key.removeprefix(run) for key, times in requests(ledger).items() if times > 1}
        assert twice == {DESIGN, STYLING}, "only what the kills cut off was asked again"


def is_paused_at_the_limit(site: Site, one: Window) -> str:
    """An amber banner and no red error; after a restart and a reload it is still the limit's."""
    reply = site.server.ask("PUT", "/settings/limits", {"maxTokensPerChat": FEW})
    assert reply.status == 200, reply.body
    one.sign_in()
    with listening(site.server, f"?chatId={CHAT}") as socket:
        run: str = said(site.server, "/agents/run", message=MESSAGE)["pipelineRunId"]
        stopped = socket.until_type("agent_error", errorType="cost_limit")
        assert stopped["error"] == "Token limit reached. Pipeline paused."
        socket.until_type("pipeline_interrupted", reason="cost_limit")
    one.open(f"/chats/{CHAT}")
    shows(one.page, LIMIT, "Increase limit & resume", "Dismiss")
    site.restart()
    one.page.reload()
    shows(one.page, LIMIT, "Increase limit & resume", "Dismiss")
    assert status(site.server)["interruptedReason"] == "cost_limit"
    return run


def continues_once_the_limit_is_raised(site: Site, one: Window, run: str) -> None:
    """Too little: a sentence, no green button. Enough: the green button. Reset: it is gone. Then it runs."""
    page, green = one.page, button(one.page, "Resume pipeline")
    button(page, "Increase limit & resume").click()
    panel, field = page.get_by_label("Limits", exact=True), page.get_by_label("Tokens of this chat")
    expect(field).to_have_value("2,200")
    expect(panel.get_by_text("custom")).to_have_count(0)
    field.fill("2,100")
    page.get_by_role("button", name="Save limits").click()
    expect(panel.get_by_role("alert")).to_be_visible()
    expect(green).to_have_count(0)
    refused = said(site.server, "/agents/run", message="continue", resume=True)
    assert (refused["http"], refused["errorType"]) == (409, "cost_limit")
    expect(panel.get_by_text("custom")).to_be_visible()
    field.fill("500,000")
    page.get_by_role("button", name="Save limits").click()
    expect(green).to_be_visible()
    assert "green" in (green.get_attribute("class") or "")
    expect(panel.get_by_role("alert")).to_have_count(0)
    page.get_by_role("button", name="Reset all").click()
    expect(panel.get_by_role("alert")).to_be_visible()
    expect(green).to_have_count(0)
    field.fill("500,000")
    page.get_by_role("button", name="Save limits").click()
    with listening(site.server, f"?chatId={CHAT}") as socket:
        green.click()
        assert socket.until_type("pipeline_plan", resumed=True)["agents"] == PLAN
    expect(card(page)).to_have_count(0)
    assert kinds(site, run).count("RunResumed") == 1


def kinds(site: Site, run: str) -> list[str]:
    return [event["kind"] for event in site.server.get(f"/api/runs/{run}/events")["events"]]


def is_interrupted_by_a_restart(site: Site, one: Window, windows: Windows, run: str) -> None:
    """Found on page load, in every tab; Resume goes on with the same pipeline."""
    site.restart()
    shown = status(site.server)
    assert (shown["interruptedPipelineId"], shown["interruptedReason"]) == (run, "restart")
    shows(one.page, RESTART, "Resume", "Retry from scratch", "Dismiss")
    other = windows(site)
    other.is_loss_expected = True
    other.sign_in()
    other.open(f"/chats/{CHAT}")
    shows(other.page, RESTART, "Resume", "Retry from scratch", "Dismiss")
    one.page.reload()
    shows(one.page, RESTART, "Resume", "Retry from scratch", "Dismiss")
    resume = button(one.page, "Resume")
    assert "amber" in (resume.get_attribute("class") or "")
    resume.click()
    for page in (one.page, other.page):
        expect(page.get_by_label("Question").get_by_role("heading")).to_have_text(
            "Which direction shall the site take?"
        )
        expect(card(page)).to_have_count(0)
    other.page.goto("about:blank")
    assert status(site.server)["pendingCheckpoint"]["id"] == "direction#1"


def asks_which_direction_and_still_does_after_a_restart(site: Site, one: Window, run: str) -> None:
    site.restart()
    one.page.reload()
    question = one.page.get_by_label("Question")
    with listening(site.server, f"?chatId={CHAT}") as socket:
        socket.until_type("pipeline_checkpoint")
        question.get_by_role("radio", name=re.compile("Market")).click()
        question.get_by_role("button", name="Choose Market").click()
        resolved = socket.until_type("pipeline_checkpoint_resolved")
        assert (resolved["checkpointId"], resolved["selectedIndex"]) == ("direction#1", 1)
    expect(question).to_have_count(0)


def is_finished_after_a_last_restart(site: Site, one: Window, run: str) -> None:
    """A follow-up message resumes what is interrupted."""
    site.restart()
    shows(one.page, RESTART, "Resume", "Retry from scratch", "Dismiss")
    expect(card(one.page)).to_contain_text("Kept:")
    one.page.get_by_label("Message").fill("continue?")
    one.page.keyboard.press("Enter")
    expect(one.page.get_by_text("Completed", exact=True).first).to_be_visible()
    expect(card(one.page)).to_have_count(0)
    shown = status(site.server)
    assert (shown["running"], shown["interruptedPipelineId"]) == (False, None)
    assert set(statuses(site.server).values()) == {"completed"}
    one.page.reload()
    expect(one.page.get_by_text("The site is ready").first).to_be_visible()


def test_retry_from_scratch_and_dismiss_in_the_page(browser: Browser, shell: Shell, windows: Windows) -> None:
    """S0-37, B0-1, B0-2: a new pipeline with the first message; a dismissed one stays dismissed."""
    with model(shell, STALLS) as ledger, site_at(shell) as site:
        site.add("small", SMALL)
        first = said(site.server, "/agents/run", message="a shop")["pipelineRunId"]
        wait_for_request(ledger, "/code#1/m1")
        site.restart()
        one = windows(site)
        one.is_loss_expected = True
        one.sign_in()
        one.open(f"/chats/{CHAT}")
        second = is_started_anew(site, one, first)
        wait_until(lambda: f"{second}/code#1/m1" in requests(ledger), "the second request")
        site.restart()
        shows(one.page, RESTART, "Resume", "Retry from scratch", "Dismiss")
        button(one.page, "Dismiss").click()
        expect(card(one.page)).to_have_count(0)
        assert status(site.server)["interruptedPipelineId"] is None
        assert "RunDismissed" in kinds(site, second)
        one.page.reload()
        expect(one.page.get_by_role("heading", level=1)).to_have_text(CHAT)
        expect(card(one.page)).to_have_count(0)
        third = said(site.server, "/messages/send", message="something else")
        assert third["status"] == "started"
        site.server.until(third["pipelineRunId"], "completed")


def is_started_anew(site: Site, one: Window, first: str) -> str:
    """Retry from scratch asks once, cancels the old run, and starts with its message."""
    button(one.page, "Retry from scratch").click()
    dialog = one.page.get_by_role("dialog")
    expect(dialog).to_contain_text("Cancels this run and starts anew.")
    dialog.get_by_role("button", name="Retry from scratch").click()
    expect(card(one.page)).to_have_count(0)
    old: Any = site.server.get(f"/api/runs/{first}")
    assert (old["status"], old["reason"]) == ("cancelled", "superseded")
    runs = site.server.get(f"/api/runs?chat={CHAT}")["runs"]
    second: str = next(run["id"] for run in runs if run["id"] != first)
    assert site.server.get(f"/api/runs/{second}")["context"]["user_message"] == "a shop"
    return second
