"""What a person does without a mouse: find the interrupted run, and resume it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.cli.shell import Latch, Shell, pipeline
from tests.web.site import Site, Window

pytestmark = pytest.mark.slow

Windows = Callable[..., Window]
TABS_MAX = 80
FOCUSED = """() => {
  const at = document.activeElement
  const ring = getComputedStyle(at.closest('.field') ?? at)
  const node = at.querySelector('.shape')  // of a graph: it has no box
  const isDrawn = node && getComputedStyle(node).strokeWidth === '2.5px'
  const isSeen = ring.outlineStyle !== 'none' || ring.boxShadow !== 'none' || isDrawn
  return [at.getAttribute('aria-label') ?? at.innerText ?? at.textContent, !!isSeen]
}"""


def interrupted(site: Site, shell: Shell) -> tuple[str, Latch]:
    """Two runs; the process of one died in the middle, and the server is back. Its step is at the latch."""
    latch = shell.latch("here")
    site.add("quick", pipeline(("only", shell.noting())))
    site.add("bakery", pipeline(("one", shell.noting()), ("two", shell.noting(f"cat {latch._path}"))))
    site.server.until(site.run("quick"), "completed")
    run = site.run("bakery")
    latch.wait_reached()
    site.restart()
    site.server.until(run, "interrupted")
    return run, latch


def signed_in(site: Site, windows: Windows) -> Page:
    """A window whose mouse nobody touches."""
    one = windows(site)
    page = one.page
    page.goto(f"{site.url}/sign-in")
    expect(page.get_by_label("Token")).to_be_focused()
    page.keyboard.type(site.server.token)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    expect(page.get_by_role("cell", name="Interrupted")).to_be_visible()
    return page


def tab_to(page: Page, wanted: str) -> None:
    """Press Tab until what has the focus is called so. Everything on the way shows that it has it."""
    passed: list[str] = []
    for _ in range(TABS_MAX):
        page.keyboard.press("Tab")
        name, is_seen = page.evaluate(FOCUSED)
        assert is_seen, f"{name!r} has the focus, and nothing shows it"
        if wanted in name:
            return
        passed.append(name)
    raise AssertionError(f"{wanted!r} was not reached: {passed}")


def resumed(page: Page, site: Site, shell: Shell, run: str, latch: Latch) -> None:
    """The run continues where it stopped, and the page shows how it ends."""
    latch.wait_reached()
    latch.release()
    expect(page.get_by_text("Completed", exact=True).first).to_be_visible()
    assert site.server.get(f"/api/runs/{run}")["status"] == "completed"
    assert shell.ledger == ["only#1", "one#1", "two#1", "two#1"]


def test_the_interrupted_run_is_found_and_resumed_with_tab_and_enter(
    site: Site, shell: Shell, windows: Windows
) -> None:
    run, latch = interrupted(site, shell)
    page = signed_in(site, windows)
    tab_to(page, "interrupted, can resume")
    page.keyboard.press("Enter")
    expect(page.get_by_role("cell", name="Completed")).to_have_count(0)
    tab_to(page, "bakery")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Recovery")).to_contain_text("Kept: 2 steps")
    tab_to(page, "Resume")
    page.keyboard.press("Enter")
    resumed(page, site, shell, run, latch)


def test_the_interrupted_run_is_found_and_resumed_with_single_letters(
    site: Site, shell: Shell, windows: Windows
) -> None:
    run, latch = interrupted(site, shell)
    page = signed_in(site, windows)
    page.keyboard.press("/")
    page.keyboard.type("bakery")
    expect(page.get_by_role("cell", name="Completed")).to_have_count(0)
    expect(page.get_by_role("cell", name="Interrupted")).to_be_visible()
    page.keyboard.press("Tab")  # out of the field: letters are text in it
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Recovery")).to_be_visible()
    page.keyboard.press("r")
    resumed(page, site, shell, run, latch)


def test_a_dialog_returns_the_focus_to_what_opened_it(site: Site, shell: Shell, windows: Windows) -> None:
    interrupted(site, shell)
    page = signed_in(site, windows)
    tab_to(page, "Start run")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Start run")).to_be_focused()


def test_the_palette_finds_a_run_by_its_id_and_names_the_command(
    site: Site, shell: Shell, windows: Windows
) -> None:
    run, _ = interrupted(site, shell)
    page = signed_in(site, windows)
    name = site.server.get(f"/api/runs/{run}")["display_id"]
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox")).to_be_focused()
    page.keyboard.type(name)
    expect(page.get_by_role("option", name=re.compile(f"{name} bakery.*onward show {name}"))).to_be_visible()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(run))
    expect(page.get_by_label("Recovery")).to_be_visible()
    page.keyboard.press("Control+k")
    expect(
        page.get_by_role("option", name=re.compile(f"Resume {name}.*onward resume {name}"))
    ).to_be_visible()
    expect(page.get_by_role("option", name=re.compile(f"Fork {name}.*onward replay {name}"))).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("combobox")).to_have_count(0)
