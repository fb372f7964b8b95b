"""Document 004's story in the browser, with its own paths, messages and command beside it.

A server dies with two workflows in progress, one that waits for approval, one that is not due. The next one
recovers them; a person resumes one with the button, one with the command, and approves the third.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.cli.shell import Shell, wait_until
from tests.integration.client import listening, model
from tests.integration.test_workflow_recovery import (
    BUILD,
    RESTARTED,
    SCRIPT,
    SHIP,
    asked,
    failed,
    interrupted,
)
from tests.integration.test_workflow_recovery import workflow as workflow_of
from tests.web.site import Site, Window, site_at
from tests.worker.conftest import shell as shell

pytestmark = [pytest.mark.slow, pytest.mark.crash]
Windows = Callable[..., Window]
REFUSED = re.compile("the server responded with a status of (409|412)")
"""A stale page is refused by the position in the log that it saw, which HTTP calls 412."""


def header(page: Page, name: str) -> Locator:
    """An action of the detail view."""
    return page.locator("header.runtop").get_by_role("button", name=name)


def test_the_whole_story_of_document_004(browser: Browser, shell: Shell, windows: Windows) -> None:
    """S4-1, S4-2, S4-3, S4-4, S4-7, S4-8, S4-10, S4-18, S4-20, S4-21, S4-22, S4-23, S4-24, S4-25, S4-27."""
    with model(shell, SCRIPT) as ledger, site_at(shell) as site:
        interrupted(site.server, ledger)
        one = windows(site)
        one.is_loss_expected = True
        one.sign_in()
        site.restart()
        assert "Recovery complete: 2 workflows marked failed, 1 approvals restored." in site.server.told
        offers_resume_only_where_it_is_recoverable(site, one)
        is_resumed_by_the_button(site, one)
        is_resumed_by_the_command(site, one)
        is_approved_in_the_page(site, one)
        assert len(asked(ledger, "/plan#1/m1")) == 2, "what had finished was not paid for again"


def offers_resume_only_where_it_is_recoverable(site: Site, one: Window) -> None:
    page = one.page
    one.open("/runs/wf-gate")
    for name in ("Approve", "Reject", "Cancel…"):
        expect(header(page, name)).to_be_visible()
    expect(page.get_by_role("button", name="Resume")).to_have_count(0)
    one.open("/runs/wf-later")
    expect(header(page, "Cancel…")).to_be_visible()
    expect(page.get_by_role("button", name="Resume")).to_have_count(0)
    assert workflow_of(site.server, "wf-later")["status"] == "PENDING"


def is_resumed_by_the_button(site: Site, one: Window) -> None:
    """It posts once, and what follows arrives over the socket: the page is not loaded again."""
    page, posted = one.page, list[str]()
    with listening(site.server) as socket:
        assert socket.until_type("WORKFLOW_FAILED", workflow_id="wf-0") == failed("wf-0")
        one.open("/runs/wf-0")
        expect(page.get_by_label("Recovery").get_by_role("heading")).to_have_text(
            "Server restarted. Pipeline interrupted."
        )
        shown = workflow_of(site.server, "wf-0")
        assert (shown["status"], shown["failure_reason"]) == ("FAILED", RESTARTED)
        expect(header(page, "Cancel…")).to_be_visible()
        resume = header(page, "Resume")
        expect(resume.locator("svg")).to_have_count(1)
        page.on("request", lambda asked: posted.append(asked.url) if asked.method == "POST" else None)
        resume.click()
        started = socket.until_type("WORKFLOW_STARTED", workflow_id="wf-0")
        assert started["data"] == {"resumed": True}
        expect(page.get_by_text("Completed", exact=True).first).to_be_visible()
        expect(page.get_by_role("button", name="Resume")).to_have_count(0)
    assert posted == [f"{site.url}/api/runs/wf-0/resume"]
    done = workflow_of(site.server, "wf-0")
    assert (done["status"], done["failure_reason"], done["recoverable"]) == ("COMPLETED", None, None)


def is_resumed_by_the_command(site: Site, one: Window) -> None:
    """While the page is open: it shows what the command did."""
    one.open("/runs/wf-1")
    expect(header(one.page, "Resume")).to_be_visible()
    done = site.shell("resume", "wf-1", "--server", site.url)
    assert (done.code, "Workflow wf-1 resumed" in done.out) == (0, True), done
    expect(one.page.get_by_text("Completed", exact=True).first).to_be_visible()
    again = site.shell("resume", "wf-1", "--server", site.url)
    assert again.code == 1
    assert "COMPLETED" in again.err.upper()


def is_approved_in_the_page(site: Site, one: Window) -> None:
    """The approval outlived the restart; answering it continues the workflow."""
    one.open("/runs/wf-gate")
    with listening(site.server) as socket:
        prompt = socket.until_type("APPROVAL_REQUIRED", workflow_id="wf-gate")
        assert prompt["data"] == {"gate": "ask#1", "text": "Ship it?"}
        header(one.page, "Approve").click()
        socket.until_type("WORKFLOW_COMPLETED", workflow_id="wf-gate")
    expect(one.page.get_by_text("Completed", exact=True).first).to_be_visible()


def test_a_refused_resume_is_a_notice_with_the_servers_sentence(
    browser: Browser, shell: Shell, windows: Windows
) -> None:
    """S4-23: somebody else resumed it, and this page does not know yet; it says so, and reads it again."""
    with model(shell, SCRIPT) as ledger, site_at(shell) as site:
        site.add("build", BUILD)
        site.run("build", run_id="wf-0")
        wait_until(lambda: asked(ledger, "/code#1/m1") == ["wf-0"], "the first request for code")
        site.restart()
        one = windows(site)
        one.page.route_web_socket("**/*", lambda socket: None)  # it opens, and nothing ever comes
        one.sign_in()
        one.open("/runs/wf-0")
        expect(header(one.page, "Resume")).to_be_visible()
        with listening(site.server) as socket:
            assert site.server.ask("POST", "/api/workflows/wf-0/resume").status == 200
            socket.until_type("WORKFLOW_STARTED", workflow_id="wf-0")
        header(one.page, "Resume").click()
        expect(one.page.locator(".toast")).to_contain_text(
            "look at the run again, then send the request again"
        )
        expect(header(one.page, "Resume")).to_have_count(0)
        assert len(one.lines) == 1
        assert REFUSED.search(one.lines.pop()), "the browser writes down the 409, and nothing else"


def test_a_rejected_workflow_has_no_resume(browser: Browser, shell: Shell, windows: Windows) -> None:
    """S4-21, B4-12: a failure that is not recoverable offers a fork, and no other door resumes it."""
    with model(shell, SCRIPT), site_at(shell) as site:
        site.add("ship", SHIP)
        run = site.run("ship", run_id="wf-gate")
        site.server.until(run, "waiting")
        one = windows(site)
        one.sign_in()
        one.open(f"/gates?gate={run}:ask%231")
        one.page.get_by_label("Feedback").fill("Not today")
        one.page.get_by_role("button", name=re.compile("^Reject")).click()
        site.server.until(run, "failed")
        one.open(f"/runs/{run}")
        card = one.page.get_by_label("Recovery")
        assert "failed" in (card.get_attribute("class") or "")
        assert card.get_by_role("button").all_inner_texts() == ["Fork…"]
        expect(one.page.get_by_role("button", name="Resume")).to_have_count(0)
        assert workflow_of(site.server, run)["recoverable"] is False
        assert site.server.ask("POST", f"/api/workflows/{run}/resume").status == 409
