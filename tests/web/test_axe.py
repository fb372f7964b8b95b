"""Every page can be used by everybody: axe, both themes, wide and narrow; and nothing scrolls sideways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.cli.shell import Shell
from tests.web.site import ROOT, Window, model_at, site_at

pytestmark = pytest.mark.slow

AXE = ROOT / "web/node_modules/axe-core/axe.min.js"
Windows = Callable[..., Window]
PIPELINE = """digraph site {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  write [prompt="WRITE $user_message"]
  ask [shape=hexagon, label="Ship it?"]
  start -> write -> ask
  ask -> exit [label="[Y] Yes"]
  ask -> write [label="[N] No"]
}
"""
SIZES = ((1440, 900), (380, 800))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_keeps_anybody_out(browser: Browser, shell: Shell, windows: Windows, theme: str) -> None:
    if not AXE.is_file():
        pytest.skip("axe is not installed: `make web` installs it")
    reply = {"text": "**Done.** See `index.html`.\n\n1. one\n2. two", "reasoning": "I think."}
    with (
        model_at(shell.directory, [{"contains": "WRITE", "reply": reply}]) as model,
        site_at(shell, model) as site,
    ):
        site.add("site", PIPELINE)
        waiting = site.say("bakery", "build it")["run"]["id"]
        assert (
            site.server.ask("PUT", "/api/limits?scope=chat%2Fdeli", {"measure": "tokens", "value": 20}).status
            == 200
        )
        limited = site.say("deli", "build it")["run"]["id"]
        site.server.until(waiting, "waiting")
        site.server.until(limited, "interrupted")
        paths = [
            *("/runs", "/chats/bakery", "/chats/deli", "/gates", "/limits", "/limits?by=model"),
            *(f"/runs/{waiting}", f"/runs/{waiting}?step=write%231", f"/runs/{limited}?limits=open"),
            *(f"/runs/{waiting}?tab={tab}" for tab in ("messages", "events", "cost", "lineage")),
            f"/runs/{waiting}?fork=1",
        ]
        faults: list[str] = []
        for width, height in SIZES:
            one = windows(site, color_scheme=theme)
            one.page.set_viewport_size({"width": width, "height": height})
            one.open("/sign-in")
            expect(one.page.get_by_label("Token")).to_be_visible()
            faults += _faults(one, "/sign-in", width)
            one.sign_in()
            for path in paths:
                one.open(path)
                one.page.wait_for_timeout(900)  # axe looks at what has come up
                faults += _faults(one, path, width)
        assert faults == [], "\n".join(faults)


def _faults(one: Window, path: str, width: int) -> list[str]:
    one.page.evaluate(AXE.read_text())
    found: list[dict[str, Any]] = one.page.evaluate("axe.run().then(result => result.violations)")
    faults = [
        f"{path} at {width}: {fault['id']}: {node['html'][:140]}"
        for fault in found
        for node in fault["nodes"][:3]
    ]
    if one.page.evaluate("document.documentElement.scrollWidth") > width:
        faults.append(f"{path} at {width}: scrolls sideways")
    return faults
