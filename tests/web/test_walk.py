"""What a person does at the page, from the first start to a resumed run."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.cli.shell import Shell, pipeline
from tests.web.site import Site, Window, model_at, site_at

pytestmark = pytest.mark.slow

Windows = Callable[..., Window]
AGENTS = """digraph talk {
  graph [on_message=auto]
  start [shape=Mdiamond]
  exit [shape=Msquare]
  research [prompt="RESEARCH $user_message"]
  design [prompt="DESIGN $user_message"]
  start -> research -> design -> exit
}
"""
YES_NO = """digraph ship {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  ask [shape=hexagon, label="Ship it?"]
  drop [shape=parallelogram, tool_command="true"]
  start -> ask
  ask -> exit [label="[Y] Yes"]
  ask -> drop [label="[N] No"]
  drop -> exit
}
"""


@pytest.mark.smoke
def test_the_printed_link_signs_in_and_says_what_to_do_first(site: Site, windows: Windows) -> None:
    one = windows(site)
    one.page.goto(site.server.link)
    expect(one.page.get_by_role("heading", name="Nothing has run yet.")).to_be_visible()
    assert "#" not in one.page.url
    expect(one.page.get_by_text("onward pipelines add hello.dot")).to_be_visible()
    other = windows(site)
    other.page.goto(site.server.link)
    expect(other.page.get_by_role("alert")).to_contain_text("This link was used already")
    other.lines.clear()  # the browser writes down the 401


def test_who_is_not_signed_in_comes_back_to_where_they_were(site: Site, windows: Windows) -> None:
    one = windows(site)
    one.open("/limits?by=model")
    expect(one.page.get_by_label("Token")).to_be_visible()
    one.page.get_by_label("Token").fill(site.server.token)
    one.page.get_by_role("button", name="Sign in").click()
    expect(one.page.get_by_role("heading", name="Limits and usage")).to_be_visible()
    assert one.page.url.endswith("/limits?by=model")
    one.lines.clear()  # the browser writes down the 401s


@pytest.mark.smoke
def test_an_interrupted_run_is_found_and_resumed_in_three_clicks(
    site: Site, shell: Shell, windows: Windows
) -> None:
    """S0-37, S0-39, S4-22, S4-23: amber, Resume first, and it continues after its last finished step."""
    latch = shell.latch("here")
    site.add("line", pipeline(("one", shell.noting()), ("two", shell.noting(f"cat {latch._path}"))))
    run = site.run("line")
    latch.wait_reached()
    site.restart()
    one = windows(site)
    one.sign_in()
    page = one.page
    expect(page.get_by_role("cell", name="Interrupted")).to_be_visible()
    page.get_by_role("link", name=re.compile("interrupted, can resume")).click()
    page.get_by_role("link", name=re.compile("line")).first.click()
    banner = page.get_by_label("Recovery")
    expect(banner.get_by_role("heading")).to_have_text("Server restarted. Pipeline interrupted.")
    expect(banner).to_contain_text("Kept: 2 steps")
    names = banner.get_by_role("button").all_inner_texts()
    assert names == ["Resume", "Retry from scratch", "Dismiss"]
    assert _tone(banner.get_by_role("button", name="Resume")) == "btn amber"
    expect(page.get_by_label("Stops", exact=True)).to_contain_text("Server restarted")
    banner.get_by_role("button", name="Resume").click()
    latch.wait_reached()
    latch.release()
    expect(page.get_by_text("Completed", exact=True).first).to_be_visible()
    expect(banner).to_have_count(0)
    assert site.server.get(f"/api/runs/{run}")["status"] == "completed"
    assert shell.ledger == ["one#1", "two#1", "two#1"]


def test_a_dismissed_run_keeps_its_resume_in_the_header(site: Site, shell: Shell, windows: Windows) -> None:
    latch = shell.latch("here")
    site.add("line", pipeline(("one", f"cat {latch._path}")))
    run = site.run("line")
    latch.wait_reached()
    site.restart()
    one = windows(site)
    one.sign_in()
    one.open(f"/runs/{run}")
    one.page.get_by_label("Recovery").get_by_role("button", name="Dismiss").click()
    expect(one.page.get_by_label("Recovery")).to_have_count(0)
    expect(one.page.get_by_text("dismissed", exact=True)).to_be_visible()
    one.page.reload()
    expect(one.page.get_by_role("button", name="Resume")).to_be_visible()
    expect(one.page.get_by_label("Recovery")).to_have_count(0)


@pytest.mark.smoke
def test_a_step_in_doubt_offers_four_ways_and_suggests_none(
    site: Site, shell: Shell, windows: Windows
) -> None:
    latch = shell.latch("here")
    source = pipeline(("pay", shell.noting(f"cat {latch._path}")))
    site.add("line", source.replace("[shape=parallelogram,", "[repeatable=false, shape=parallelogram,"))
    run = site.run("line")
    latch.wait_reached()
    site.restart()
    one = windows(site)
    one.sign_in()
    expect(one.page.get_by_role("cell", name="In doubt")).to_be_visible()
    one.open(f"/runs/{run}")
    banner = one.page.get_by_label("Recovery")
    expect(banner.get_by_role("heading")).to_have_text("pay may or may not have run.")
    buttons = banner.get_by_role("button")
    assert buttons.all_inner_texts() == ["Retry", "Skip", "Continue", "Abort"]
    assert {_tone(button) for button in buttons.all()} == {"btn", "btn danger"}
    banner.get_by_role("button", name="Skip").click()
    expect(one.page.get_by_text("Completed", exact=True).first).to_be_visible()
    assert shell.ledger == ["pay#1"]
    assert site.server.get(f"/api/runs/{run}")["status"] == "completed"


def test_a_failed_run_says_why_and_continues_when_the_reason_is_gone(
    site: Site, shell: Shell, windows: Windows
) -> None:
    repaired = shell.directory / "repaired"
    site.add("line", pipeline(("post", f"test -e {repaired}")))
    run = site.run("line")
    site.server.until(run, "failed")
    one = windows(site)
    one.sign_in()
    one.open(f"/runs/{run}")
    banner = one.page.get_by_label("Recovery")
    expect(banner.get_by_role("heading")).to_contain_text("post failed after")
    assert banner.get_by_role("button").all_inner_texts() == ["Resume", "Dismiss"]
    row = one.page.get_by_role("listitem").filter(has_text="post#1")
    expect(row).to_contain_text(_took(site, run, "post#1"))  # until it failed, and not until now
    repaired.touch()
    banner.get_by_role("button", name="Resume").click()
    expect(one.page.get_by_text("Completed", exact=True).first).to_be_visible()


def test_several_runs_are_decided_about_at_once(site: Site, windows: Windows) -> None:
    site.add("ship", YES_NO)
    runs = [site.run("ship") for _ in range(3)]
    for run in runs:
        site.server.until(run, "waiting")
    one = windows(site)
    one.sign_in()
    boxes = one.page.get_by_role("checkbox", name=re.compile("Select"))
    expect(boxes).to_have_count(3)
    boxes.nth(0).check()
    boxes.nth(2).check()
    bar = one.page.get_by_role("region", name="Selected runs")
    expect(bar).to_contain_text("2 selected")
    bar.get_by_role("button", name="Cancel 2…").click()
    one.page.get_by_role("dialog").get_by_role("button", name="Cancel 2").click()
    expect(one.page.get_by_role("cell", name="Cancelled", exact=True)).to_have_count(2)
    expect(one.page.get_by_role("cell", name="Waiting", exact=True)).to_have_count(1)
    expect(bar).to_have_count(0)


def test_a_run_that_cannot_continue_has_no_resume(site: Site, windows: Windows) -> None:
    """S4-21: the button is there exactly where the server says that the run is recoverable."""
    site.add("ship", YES_NO)
    run = site.run("ship")
    site.server.until(run, "waiting")
    one = windows(site)
    one.sign_in()
    one.open(f"/runs/{run}")
    expect(one.page.get_by_role("button", name="Cancel…")).to_be_visible()
    expect(one.page.get_by_role("button", name="Resume")).to_have_count(0)
    one.page.get_by_role("button", name="Cancel…").click()
    one.page.get_by_role("dialog").get_by_role("button", name="Cancel run").click()
    expect(one.page.get_by_text("Cancelled", exact=True).first).to_be_visible()
    expect(one.page.get_by_role("button", name="Resume")).to_have_count(0)


@pytest.mark.smoke
def test_a_gate_is_approved_with_the_keyboard(site: Site, windows: Windows) -> None:
    """S4-22: Approve, Reject and Cancel beside each other; the answer arrives in an open page."""
    site.add("ship", YES_NO)
    run = site.run("ship")
    site.server.until(run, "waiting")
    watching = windows(site)
    watching.sign_in()
    watching.open(f"/runs/{run}")
    header = watching.page.locator("header.runtop")
    expect(header.get_by_role("button", name="Approve")).to_be_visible()
    expect(header.get_by_role("button", name="Reject")).to_be_visible()
    expect(header.get_by_role("button", name="Cancel…")).to_be_visible()
    one = windows(site)
    one.sign_in()
    one.page.keyboard.press("g")
    one.page.keyboard.press("g")
    expect(one.page.get_by_role("heading", name="Gates")).to_be_visible()
    expect(one.page.get_by_role("heading", name="Ship it?")).to_be_visible()
    one.page.keyboard.press("a")
    expect(one.page.get_by_role("button", name="Enter approves")).to_be_visible()
    one.page.keyboard.press("Enter")
    expect(watching.page.get_by_text("Completed", exact=True).first).to_be_visible()
    assert site.server.get(f"/api/runs/{run}")["status"] == "completed"


@pytest.mark.smoke
def test_a_limit_is_raised_and_the_run_resumed(browser: Browser, shell: Shell, windows: Windows) -> None:
    """S0-33, S0-34, S0-35, S0-36, S0-38: too little is refused in words, enough brings the green button."""
    with (
        model_at(shell.directory, [{"contains": "", "reply": {"text": "Written."}}]) as model,
        site_at(shell, model) as site,
    ):
        site.add("talk", AGENTS)
        limit = {"measure": "tokens", "value": 20}
        assert site.server.ask("PUT", "/api/limits?scope=chat%2Fbakery", limit).status == 200
        run = site.say("bakery", "build a bakery")["run"]["id"]
        site.server.until(run, "interrupted")
        one = windows(site)
        one.sign_in()
        one.open("/chats/bakery")
        banner = one.page.get_by_label("Recovery")
        expect(banner.get_by_role("heading").first).to_have_text("Token limit reached. Pipeline paused.")
        assert "interrupted" in (banner.get_attribute("class") or "")
        assert banner.get_by_role("button").all_inner_texts() == ["Increase limit & resume", "Dismiss"]
        banner.get_by_role("button", name="Increase limit & resume").click()
        field = banner.get_by_label("Tokens of this chat")
        field.fill("15")
        banner.get_by_role("button", name="Save limits").click()
        expect(banner.get_by_role("alert")).to_be_visible()
        expect(banner.get_by_role("button", name="Resume pipeline")).to_have_count(0)
        field.fill("a lot")
        banner.get_by_role("button", name="Save limits").click()
        expect(banner.get_by_role("alert")).to_have_text("Enter a number, or none.")
        field.fill("5,000,000,000,000,000")
        banner.get_by_role("button", name="Save limits").click()
        expect(banner.get_by_role("alert")).to_contain_text("not a whole number from 0 to")
        expect(field).to_have_value("5,000,000,000,000,000")  # nothing that was written is lost
        expect(banner.get_by_text("Saved")).to_have_count(0)
        expect(banner.get_by_role("button", name="Resume pipeline")).to_have_count(0)
        assert "422" in one.lines.pop(), "the browser writes down the refusal"
        field.fill("500,000")
        banner.get_by_role("button", name="Save limits").click()
        green = banner.get_by_role("button", name="Resume pipeline")
        expect(green).to_be_visible()
        assert _tone(green) == "btn green"
        green.click()
        expect(one.page.get_by_role("heading", level=1)).to_have_text("bakery")
        expect(one.page.get_by_text("Completed", exact=True).first).to_be_visible()
        expect(one.page.get_by_text("Written.").first).to_be_visible()


def test_the_limit_that_stopped_a_run_is_among_those_that_can_be_raised(
    browser: Browser, shell: Shell, windows: Windows
) -> None:
    with (
        model_at(shell.directory, [{"contains": "", "reply": {"text": "Written."}}]) as model,
        site_at(shell, model) as site,
    ):
        site.add("talk", AGENTS)
        limit = {"measure": "tokens", "value": 20}
        assert site.server.ask("PUT", "/api/limits?scope=run", limit).status == 200
        site.server.until(site.run("talk", run_id="mine"), "interrupted")
        one = windows(site)
        one.sign_in()
        one.open("/runs/mine")
        banner = one.page.get_by_label("Recovery")
        banner.get_by_role("button", name="Increase limit & resume").click()
        field = banner.get_by_label("Tokens of this run")
        expect(field).to_have_value("20")
        field.fill("500,000")
        banner.get_by_role("button", name="Hide limits").click()
        banner.get_by_role("button", name="Increase limit & resume").click()
        expect(field).to_have_value("500,000")  # nothing that was written is lost
        banner.get_by_role("button", name="Save limits").click()
        banner.get_by_role("button", name="Resume pipeline").click()
        expect(one.page.get_by_text("Completed", exact=True).first).to_be_visible()


def test_a_text_that_streams_is_shown_whole_and_once_through_a_lost_server(
    browser: Browser, shell: Shell, windows: Windows
) -> None:
    """O0-15: what was shown stays, and the page ends up with what is stored."""
    words = " ".join(f"w{number}" for number in range(120))
    rules = [
        {"contains": "RESEARCH", "reply": {"text": words, "reasoning": "I think.", "delay_s": 0.02}},
        {"contains": "DESIGN", "reply": {"text": "Designed."}},
    ]
    with model_at(shell.directory, rules) as model, site_at(shell, model) as site:
        site.add("talk", AGENTS)
        one = windows(site)
        one.is_loss_expected = True
        one.sign_in()
        site.say("orchard", "go")
        one.open("/chats/orchard")
        expect(one.page.get_by_text("w5 ")).to_be_visible()
        expect(one.page.get_by_text("I think.")).to_be_visible()
        button, composer = one.page.get_by_role("button", name="Following"), one.page.locator("form.comp")
        follows, writes = button.bounding_box(), composer.bounding_box()
        assert follows is not None
        assert writes is not None
        assert follows["y"] + follows["height"] <= writes["y"], "what follows covers nothing"
        site.server.kill()
        expect(one.page.get_by_text("Reconnecting. What you see may be old.")).to_be_visible()
        assert "w5" in one.page.get_by_role("log").inner_text()
        site.restart()
        banner = one.page.get_by_label("Recovery")
        expect(banner.get_by_role("heading")).to_have_text("Server restarted. Pipeline interrupted.")
        expect(one.page.get_by_text("I think.").first).to_be_visible()
        one.page.get_by_label("Message").fill("continue?")
        one.page.keyboard.press("Enter")
        expect(one.page.get_by_text("Designed.")).to_be_visible()
        said = _said(one)
        assert said.count(words) == 1
        one.page.reload()
        expect(one.page.get_by_text("Designed.")).to_be_visible()
        expect(one.page.get_by_text("w119")).to_be_visible()
        assert _said(one) == said


def test_a_run_is_forked_before_a_step_with_a_changed_value(
    site: Site, shell: Shell, windows: Windows
) -> None:
    site.add("line", pipeline(("one", shell.noting()), ("two", shell.noting())))
    run = site.run("line", inputs={"tone": "calm"})
    site.server.until(run, "completed")
    one = windows(site)
    one.sign_in()
    one.open(f"/runs/{run}")
    one.page.get_by_role("button", name="Fork…").click()
    drawer = one.page.get_by_role("dialog")
    drawer.get_by_role("radio", name=re.compile("two")).click()
    expect(drawer).to_contain_text("Taken over")
    drawer.get_by_label("Name").first.fill("tone")
    drawer.get_by_label("Value of tone").fill("dark")
    drawer.get_by_role("button", name="Fork and run").click()
    expect(one.page).not_to_have_url(re.compile(run))
    expect(one.page.get_by_text("Completed", exact=True).first).to_be_visible()
    fork = one.page.url.rsplit("/", 1)[1].partition("?")[0]
    assert site.server.get(f"/api/runs/{fork}")["context"]["tone"] == "dark"
    assert site.server.get(f"/api/runs/{run}")["context"]["tone"] == "calm"
    assert shell.ledger == ["one#1", "two#1", "two#1"]
    one.page.get_by_role("tab", name=re.compile("Lineage")).click()
    expect(one.page.get_by_text("original; this run was forked at checkpoint")).to_be_visible()


def test_a_viewer_sees_no_action(site: Site, windows: Windows) -> None:
    """S21: who may only look is offered nothing else."""
    site.add("ship", YES_NO)
    run = site.run("ship")
    site.server.until(run, "waiting")
    token = site.server.post("/api/tokens", {"name": "eyes", "roles": ["viewer"]})["token"]
    one = windows(site)
    one.sign_in(token=token)
    expect(one.page.get_by_role("cell", name="Waiting")).to_be_visible()
    expect(one.page.get_by_role("button", name="Start run")).to_have_count(0)
    one.open(f"/runs/{run}")
    expect(one.page.get_by_role("heading", name="Ship it?")).to_be_visible()
    for name in ("Cancel…", "Fork…", "Pause"):
        expect(one.page.get_by_role("button", name=name)).to_have_count(0)
    expect(one.page.get_by_role("button", name="Approve")).to_be_disabled()
    expect(one.page.get_by_text("Only an approver can answer.")).to_be_visible()


def test_who_is_refused_reads_why(site: Site, windows: Windows) -> None:
    """The page believes that they may; the server decides, and its sentence is shown."""
    site.add("ship", YES_NO)
    run = site.run("ship")
    site.server.until(run, "waiting")
    token = site.server.post("/api/tokens", {"name": "eyes", "roles": ["viewer"]})["token"]
    one = windows(site)

    def promoted(route: Route) -> None:
        reply = route.fetch()
        route.fulfill(response=reply, json={**reply.json(), "roles": ["operator"]})

    one.page.route(
        "**/api/session",
        lambda route: promoted(route) if route.request.method == "GET" else route.continue_(),
    )
    one.sign_in(token=token)
    one.open(f"/runs/{run}")
    one.page.get_by_role("button", name="Cancel…").click()
    one.page.get_by_role("dialog").get_by_role("button", name="Cancel run").click()
    expect(one.page.locator(".toast")).to_contain_text("needs the role operator; eyes has viewer")
    expect(one.page.get_by_role("button", name="Cancel…")).to_be_enabled()
    assert site.server.get(f"/api/runs/{run}")["status"] == "waiting"
    assert any("403" in line for line in one.lines)
    one.lines.clear()  # the browser writes down the refusals


def _took(site: Site, run: str, step: str) -> str:
    """How long the step took until the run stopped, in the words of the page."""
    page = site.server.get(f"/api/runs/{run}/steps")
    (begun,) = (row["began_at"] for row in page["timeline"] if row["key"] == step)
    ended, began = map(_as_read, (page["stops"][-1]["at"], begun))
    took_s = (ended - began).total_seconds()
    return f"{took_s * 1000:.0f} ms" if took_s < 0.1 else f"{took_s:.1f} s"


def _said(one: Window) -> list[str]:
    """Everything that the conversation says, message by message."""
    return one.page.locator(".prose, .think p, .me, .sys").all_inner_texts()


def _tone(button: object) -> str:
    """The classes that colour a button."""
    names: str = button.get_attribute("class")  # type: ignore[attr-defined]
    return " ".join(name for name in names.split() if name in ("btn", "amber", "green", "danger", "ink"))


def _as_read(at: str) -> datetime:
    """A time as a browser reads it: to the millisecond."""
    read = datetime.fromisoformat(at)
    return read.replace(microsecond=read.microsecond // 1000 * 1000)
