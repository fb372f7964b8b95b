"""What a run left, in its page: what its commands printed, its receipts, and what its answers cost."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.cli.shell import Shell, pipeline
from tests.web.site import Site, Window, model_at, site_at

pytestmark = pytest.mark.slow

Windows = Callable[..., Window]
ASKS = 'digraph w { start [shape=Mdiamond]; exit [shape=Msquare]; w [prompt="W"]; start -> w -> exit }'


def opened(site: Site, windows: Windows, path: str, *, token: str | None = None) -> Window:
    one = windows(site)
    one.sign_in(token=token)
    one.open(path)
    return one


def viewer(site: Site) -> str:
    """The token of somebody who may only look."""
    token: str = site.server.post("/api/tokens", {"name": "eyes", "roles": ["viewer"]})["token"]
    return token


def test_what_a_command_prints_is_shown_while_it_runs(site: Site, shell: Shell, windows: Windows) -> None:
    latch = shell.latch("here")
    site.add("line", pipeline(("test", f"echo begun; echo complaint >&2; cat {latch._path}; echo ended")))
    run = site.run("line")
    latch.wait_reached()
    log = opened(site, windows, f"/runs/{run}?step=test%231&panel=log").page.get_by_role(
        "tabpanel", name="Log"
    )
    expect(log).to_contain_text("begun")
    expect(log).to_contain_text("to standard error")
    expect(log).to_contain_text("complaint")
    expect(log).not_to_contain_text("ended")
    latch.release()
    expect(log).to_contain_text("ended")


def test_each_attempt_keeps_what_it_printed(site: Site, shell: Shell, windows: Windows) -> None:
    source = pipeline(("test", "echo number $ONWARD_ATTEMPT; exit 1"))
    site.add("line", source.replace("[shape=parallelogram,", "[max_retries=1, shape=parallelogram,"))
    run = site.run("line")
    site.server.until(run, "failed")
    one = opened(site, windows, f"/runs/{run}?step=test%231&panel=log")
    log = one.page.get_by_role("tabpanel", name="Log")
    expect(log).to_contain_text(re.compile("Attempt 1.*number 1.*Attempt 2.*number 2", re.DOTALL))
    # Who may only look sees the last lines, which are stored with the run.
    other = opened(site, windows, f"/runs/{run}?step=test%231&panel=log", token=viewer(site))
    expect(other.page.get_by_role("tabpanel", name="Log")).to_contain_text("number 2")


def test_receipts_are_listed_and_one_that_was_altered_is_named(site: Site, windows: Windows) -> None:
    site.add("line", pipeline(("a", "true"), ("b", "true")))
    run = site.run("line")
    site.server.until(run, "completed")
    here = site.shell("receipts", run, "--json").json
    (altered,) = (Path(here["directory"]) / "receipts").glob("*b*")
    kept = altered.read_bytes()
    altered.write_text("{}")
    one = opened(site, windows, f"/runs/{run}?tab=receipts")
    names = [os.path.basename(receipt["file"]) for receipt in here["receipts"]]
    for name in names:
        expect(one.page.get_by_role("cell", name=name)).to_have_count(int(name != altered.name))
    expect(one.page.get_by_role("alert")).to_contain_text(altered.name)
    altered.write_bytes(kept)
    one.page.reload()
    expect(one.page.get_by_role("alert")).to_have_count(0)
    one.page.get_by_role("row", name=re.compile("b#1")).get_by_role("button", name="Receipt").click()
    receipt = one.page.get_by_role("tabpanel", name="Receipt")
    expect(receipt).to_contain_text("schema_version")
    expect(receipt).to_contain_text("b#1")


def test_a_viewer_sees_the_receipts_steps_and_is_not_refused(
    site: Site, shell: Shell, windows: Windows
) -> None:
    site.add("line", pipeline(("a", "true")))
    run = site.run("line")
    site.server.until(run, "completed")
    one = opened(site, windows, f"/runs/{run}?tab=receipts", token=viewer(site))
    expect(one.page.get_by_role("cell", name="a#1")).to_be_visible()
    expect(one.page.get_by_text("Only an operator can read the files.")).to_be_visible()


@pytest.mark.parametrize(
    ("model", "says", "listed"),
    [("openai:scripted", "price unknown", "–"), ("openai:gpt-5", r"\$0\.00\d+", r"\$0\.00\d+")],
)
def test_a_price_that_is_not_known_is_not_shown_as_nothing(
    browser: Browser, shell: Shell, windows: Windows, model: str, says: str, listed: str
) -> None:
    """No page says "$0.00" about tokens that were used."""
    with (
        model_at(shell.directory, [{"contains": "", "reply": {"text": "Written."}}]) as address,
        site_at(shell, address, name=model) as site,
    ):
        site.add("w", ASKS)
        run = site.run("w")
        site.server.until(run, "completed")
        one = opened(site, windows, f"/runs/{run}")
        expect(one.page.locator("header.runtop")).to_contain_text(re.compile(f"tokens · {says}"))
        for path in (f"/runs/{run}?tab=cost", f"/runs/{run}?step=w%231", "/limits?by=model", "/runs"):
            one.open(path)
            main = one.page.get_by_role("main")
            expect(main).to_contain_text(re.compile(f"{listed}|{says}"))
            expect(main).not_to_contain_text(re.compile(r"\$0\.00(?!\d)"))


def test_the_drawing_follows_a_run_that_stops_twice_in_the_same_way(
    site: Site, shell: Shell, windows: Windows
) -> None:
    site.add("line", pipeline(("one", "test -e one"), ("two", "test -e two")))
    run = site.run("line", run_id="twice")
    site.server.until(run, "failed")
    page = opened(site, windows, f"/runs/{run}").page
    expect(page.get_by_text("twice", exact=True)).to_be_visible()  # the name that was chosen for it
    taken = page.locator("g.taken > path.wire")
    expect(taken).to_have_count(1)
    (shell.directory / "one").touch()
    page.get_by_label("Recovery").get_by_role("button", name="Resume").click()
    expect(page.get_by_label("Recovery")).to_contain_text("two failed")
    expect(taken).to_have_count(2)
