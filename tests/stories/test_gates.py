"""A question in the page: its deadline passes, it is answered elsewhere, it is not the one that was shown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.web.site import Site, Window

pytestmark = pytest.mark.slow
Windows = Callable[..., Window]
DEADLINE_S = 6
REFUSED = re.compile("the server responded with a status of 409")


def source(how: str, *labels: str) -> str:
    """A gate that is asked as `how` says, with a step behind each of its choices."""
    names = [f"after{number}" for number, _ in enumerate(labels)]
    steps = "".join(
        f'  {name} [shape=parallelogram, tool_command="true"]\n  {name} -> exit\n' for name in names
    )
    edges = "".join(f'  ask -> {name} [label="{label}"]\n' for name, label in zip(names, labels, strict=True))
    return f"""digraph ship {{
  start [shape=Mdiamond]
  exit [shape=Msquare]
  ask [shape=hexagon, label="Ship it?"{how}]
  start -> ask
{steps}{edges}}}"""


YES_NO = ("[Y] Yes", "[N] No")


def asked(site: Site, how: str = "", labels: tuple[str, ...] = YES_NO) -> str:
    """A run that waits for an answer."""
    site.add("ship", source(how, *labels))
    run = site.run("ship")
    site.server.until(run, "waiting")
    return run


def opened(site: Site, windows: Windows, path: str, *, is_deaf: bool = False) -> Window:
    """A signed-in window at this page; one that is deaf never hears of what happens."""
    one = windows(site)
    if is_deaf:
        one.page.route_web_socket("**/*", lambda socket: None)
    one.sign_in()
    one.open(path)
    return one


def question(page: Page) -> Locator:
    return page.get_by_label("Question")


def answered(site: Site, run: str) -> Any:
    """How the log says that the question was answered."""
    events = site.server.get(f"/api/runs/{run}/events")["events"]
    return next(
        event for event in events if event["kind"].startswith("Gate") and "Opened" not in event["kind"]
    )


def test_a_deadline_that_passes_while_the_page_is_open_takes_the_default(
    site: Site, windows: Windows
) -> None:
    """The page says beforehand what it will take, and then shows it, untouched."""
    run = asked(site, f", human.timeout={DEADLINE_S}s, human.default_choice=after1")
    one, inbox = opened(site, windows, f"/runs/{run}"), opened(site, windows, "/gates")
    expect(question(one.page)).to_contain_text("takes No in")
    expect(one.page.get_by_text("Completed", exact=True).first).to_be_visible()
    expect(question(one.page)).to_have_count(0)
    expect(inbox.page.get_by_text("0 open")).to_be_visible()
    steps = [step["node"] for step in site.server.get(f"/api/runs/{run}/steps")["steps"]]
    assert "after1" in steps
    assert "after0" not in steps


def test_an_answer_from_elsewhere_takes_the_question_away_in_every_tab(site: Site, windows: Windows) -> None:
    run = asked(site)
    tabs = [opened(site, windows, path) for path in (f"/runs/{run}", f"/runs/{run}", "/gates")]
    for tab in tabs:
        expect(tab.page.get_by_role("heading", name="Ship it?")).to_be_visible()
    assert site.shell("answer", run, "Y").code == 0
    for tab in tabs:
        expect(tab.page.get_by_role("button", name="Approve")).to_have_count(0)
    expect(tabs[0].page.get_by_text("Completed", exact=True).first).to_be_visible()


def test_of_two_tabs_the_second_is_told_that_the_question_was_answered(site: Site, windows: Windows) -> None:
    """B4-8: it never heard of the first answer; its click changes nothing, and the page is read again."""
    run = asked(site)
    second = opened(site, windows, f"/runs/{run}", is_deaf=True)
    expect(question(second.page)).to_be_visible()
    first = opened(site, windows, f"/runs/{run}")
    question(first.page).get_by_role("button", name="Approve").click()
    expect(first.page.get_by_text("Completed", exact=True).first).to_be_visible()
    question(second.page).get_by_role("button", name="Reject").click()
    expect(second.page.locator(".toast")).to_be_visible()
    expect(second.page.get_by_text("Completed", exact=True).first).to_be_visible()
    expect(question(second.page)).to_have_count(0)
    assert len(second.lines) == 1
    assert REFUSED.search(second.lines.pop()), "the browser writes down the 409, and nothing else"


def test_an_answer_to_a_question_that_was_changed_is_not_taken(site: Site, windows: Windows) -> None:
    """The decision carries what was shown; here it is made to carry what was never asked."""
    run = asked(site)
    one = opened(site, windows, f"/runs/{run}")

    def changed(route: Route) -> None:
        sent = json.loads(route.request.post_data or "{}")
        assert re.fullmatch("[0-9a-f]{64}", sent["content_hash"])
        route.continue_(post_data=json.dumps({**sent, "content_hash": "0" * 64}))

    one.page.route("**/answer", changed)
    question(one.page).get_by_role("button", name="Approve").click()
    expect(one.page.locator(".toast")).to_have_text("The question changed. Read it again.")
    expect(question(one.page).get_by_role("button", name="Approve")).to_be_enabled()
    assert site.server.get(f"/api/runs/{run}")["status"] == "waiting"
    assert REFUSED.search(one.lines.pop()), "the browser writes down the 409"
    one.page.unroute("**/answer")
    question(one.page).get_by_role("button", name="Approve").click()
    expect(one.page.get_by_text("Completed", exact=True).first).to_be_visible()


@pytest.mark.parametrize("path", ["/runs/{run}", "/gates?gate={run}:ask%231"])
def test_a_choice_among_several_is_one_click_or_two(site: Site, windows: Windows, path: str) -> None:
    run = asked(site, labels=("[R] Red", "[G] Green", "[B] Blue"))
    one = opened(site, windows, path.format(run=run))
    expect(question(one.page).first).to_be_visible()
    one.page.get_by_role("radio", name=re.compile("Blue")).click()
    one.page.get_by_role("button", name="Choose Blue").click()
    site.server.until(run, "completed")
    steps = [step["node"] for step in site.server.get(f"/api/runs/{run}/steps")["steps"]]
    assert "after2" in steps


@pytest.mark.parametrize("path", ["/runs/{run}", "/gates?gate={run}:ask%231"])
def test_a_question_for_words_is_answered_with_words(site: Site, windows: Windows, path: str) -> None:
    """Nothing is approved or rejected there: any text is the answer, and no text is none."""
    run = asked(site, ", human.type=freeform", labels=("[G] Go on",))
    one = opened(site, windows, path.format(run=run))
    field = one.page.get_by_label("Your answer")
    expect(field).to_be_visible()
    for name in ("Approve", "Reject"):
        expect(one.page.get_by_role("button", name=name)).to_have_count(0)
    expect(one.page.get_by_role("button", name="Answer")).to_be_disabled()
    field.fill("Because the oven is cold.\nSo wait.")
    one.page.get_by_role("button", name="Answer").click()
    site.server.until(run, "completed")
    context = site.server.get(f"/api/runs/{run}")["context"]
    assert context["human.gate.text"] == "Because the oven is cold.\nSo wait."


def test_a_rejection_in_the_inbox_needs_a_reason_which_the_next_step_finds(
    site: Site, windows: Windows
) -> None:
    run = asked(site)
    one = opened(site, windows, f"/gates?gate={run}:ask%231")
    one.page.get_by_role("button", name="Reject").click()
    expect(one.page.locator(".toast")).to_contain_text("Feedback is required")
    feedback = one.page.get_by_label("Feedback")
    expect(feedback).to_be_focused()
    assert site.server.get(f"/api/runs/{run}")["status"] == "waiting"
    one.page.keyboard.type("The second page is empty.")
    one.page.get_by_role("button", name="Reject").click()
    expect(one.page.get_by_text("Rejected: Ship it?")).to_be_visible()
    site.server.until(run, "completed")
    shown = site.server.get(f"/api/runs/{run}/steps")
    assert "after1" in [step["node"] for step in shown["steps"]]
    assert shown["context"]["human.gate.text"] == "The second page is empty."
