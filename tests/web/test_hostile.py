"""What agents, users and pipelines write is shown, and does nothing."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, expect

from tests.cli.shell import Shell
from tests.web.site import Window, model_at, site_at

pytestmark = pytest.mark.slow

Windows = Callable[..., Window]
OUTSIDE = "http://127.0.0.1:9/stolen"
CORPUS = (
    "<img src=x onerror=window.pwned=1>",
    "<script>window.pwned=1</script>",
    "<svg onload=window.pwned=1><animate onbegin=window.pwned=1 attributeName=x dur=1s>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "[a link](javascript:window.pwned=1) and [another](data:text/html,<script>alert(1)</script>)",
    f'![a picture]({OUTSIDE}) ![b]({OUTSIDE} "onerror=alert(1)")',
    "<a href='jav&#x61;script:alert(1)' onmouseover=window.pwned=1>over</a>",
    f"<link rel=stylesheet href={OUTSIDE}><style>@import '{OUTSIDE}'</style>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--><img src onerror=window.pwned=1>'>",
    f"<form action={OUTSIDE}><input name=token><button>Approve</button></form>",
    "```html\n</code></pre><img src=x onerror=window.pwned=1>\n```",
    f"[x]: {OUTSIDE}\n\n![x][x] <https://example.org/> <base href={OUTSIDE}>",
    "{{constructor.constructor('window.pwned=1')()}} ${window.pwned=1}",
    "\x1b[31mred\x1b[0m \u202ereversed\u202c",
)
TALK = """digraph talk {
  graph [goal="<img src=x onerror=window.pwned=1>"]
  start [shape=Mdiamond]
  exit [shape=Msquare]
  say [label="<img src=x onerror=window.pwned=1>", prompt="SAY $user_message"]
  ask [shape=hexagon, label="<script>window.pwned=1</script> Ship it?"]
  start -> say -> ask
  ask -> exit [label="[Y] <b onclick=window.pwned=1>Yes</b>"]
  ask -> say [label="[N] No"]
}
"""
TABS = ("messages", "context", "events", "files", "receipts", "cost", "lineage")


def test_a_hostile_text_runs_nothing_and_asks_nobody(
    browser: Browser, shell: Shell, windows: Windows
) -> None:
    """S5, S6, S21: through every field that agents and users fill."""
    everything = "\n\n".join(CORPUS)
    reply = {"text": everything, "reasoning": everything}
    with (
        model_at(shell.directory, [{"contains": "SAY", "reply": reply}]) as model,
        site_at(shell, model) as site,
    ):
        site.add("talk", TALK)
        run = site.say("hostile", everything)["run"]["id"]
        site.server.until(run, "waiting")
        one = windows(site)
        one.sign_in()
        page = one.page
        expect(page.get_by_role("cell", name="Waiting")).to_be_visible()
        _is_well(one)
        for path in (
            "/chats/hostile",
            "/gates",
            f"/runs/{run}",
            f"/runs/{run}?step=say%231",
            "/limits?by=chat",
        ):
            one.open(path)
            expect(page.get_by_role("main")).to_contain_text("hostile" if "limits" in path else "pwned")
            page.wait_for_timeout(300)
            _is_well(one)
        for panel in ("prompt", "output", "context", "calls", "log", "receipt"):
            one.open(f"/runs/{run}?step=say%231&panel={panel}")
            expect(
                page.get_by_label("Step", exact=True).get_by_role("tab", name=panel.capitalize())
            ).to_have_attribute("aria-selected", "true")
            page.wait_for_timeout(200)
            _is_well(one)
        for tab in TABS:
            one.open(f"/runs/{run}?tab={tab}")
            page.wait_for_timeout(300)
            _is_well(one)
        one.open("/runs?text=" + "%3Cimg%20src%3Dx%20onerror%3Dwindow.pwned%3D1%3E")
        expect(page.get_by_text("No run matches.")).to_be_visible()
        _is_well(one)


def _is_well(one: Window) -> None:
    """Nothing ran, and no link leads to a script."""
    assert one.page.evaluate("window.pwned") is None
    links: list[str] = one.page.eval_on_selector_all(
        ".prose a", "all => all.map(a => a.getAttribute('href') ?? '')"
    )
    assert all(not link or link.startswith(("http:", "https:", "mailto:")) for link in links), json.dumps(
        links
    )
    assert (
        one.page.locator(".prose img, .prose script, .prose style, .prose form, .prose iframe").count() == 0
    )
