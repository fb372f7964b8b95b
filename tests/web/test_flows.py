"""A flow at the page: its steps by their names, its question, and what it called."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.web.site import Site, Window

pytestmark = pytest.mark.slow

FLOW = """
from onward import ask, flow, gather, step

@step
def page(name: str) -> str:
    return f"<h1>{name}</h1>"

@step
async def deploy(pages: list[str]) -> int:
    return len(pages)

@flow
async def build() -> int:
    pages = await gather(page("front"), page("back"))
    if (await ask("Ship it?")).choice != "yes":
        return 0
    return await deploy(list(pages))
"""


@pytest.mark.smoke
def test_a_flow_shows_its_steps_and_continues_when_its_question_is_answered(
    site: Site, windows: Callable[..., Window]
) -> None:
    site.shell.write("site_flow.py", FLOW)
    begun = site.shell("run", "site_flow.py:build", "--run-id", "first")
    assert begun.code == 75, begun.err
    one = windows(site)
    one.sign_in()
    one.open("/runs/first")
    expect(one.page.get_by_role("heading", name="Ship it?")).to_be_visible()
    one.page.get_by_role("region", name="Question").get_by_role("button", name="Approve").click()
    expect(one.page.get_by_role("heading", name="Ship it?")).to_have_count(0)
    worked = site.shell("worker", "--app", "site_flow.py", "--until-idle")
    assert worked.code == 0, worked.err
    expect(one.page.get_by_role("main").get_by_text("Completed").first).to_be_visible()
    for name in ("page", "deploy"):
        expect(one.page.get_by_role("button", name=re.compile(rf"\b{name}\b")).first).to_be_visible()
    expect(one.page.get_by_text(re.compile("working, .* waiting"))).to_be_visible()
    one.open("/runs/first?step=flow%231")
    calls = one.page.get_by_role("tabpanel", name="Calls")
    expect(calls).to_contain_text('page ["front"]')
    expect(calls).to_contain_text("deploy")
