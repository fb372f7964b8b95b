"""`onward tools`: which tools of agents are set up, and under which rules."""

from __future__ import annotations

from tests.cli.shell import Shell


def test_the_built_in_tools_are_shown_with_their_rules(shell: Shell) -> None:
    shown = shell.inside("tools")
    assert shown.code == 0
    rows = {line.split()[0]: line for line in shown.out.splitlines() if line}
    assert "asks first" in rows["shell"]
    assert "built-in" in rows["read"]
    assert "asks first" not in rows["read"]
    assert "http_get" not in rows, "no host is allowed"
    assert "without it, none" in shown.out


def test_settings_change_what_is_shown(shell: Shell) -> None:
    shell.write(
        "onward.toml",
        """
        [agents]
        allowed_tools = ["read", "s*"]
        [tools.shell]
        approval = false
        [tools.shel]
        approval = true
        [tools.http]
        allow = ["api.example.com"]
        """,
    )
    shown = shell.inside("tools")
    assert "nodes without allowed_tools get: read, s*" in shown.out
    assert "onward.toml names unknown tools: shel" in shown.out
    found = shell.inside("tools", "--json").json
    by_name = {one["name"]: one for one in found["tools"]}
    assert by_name["shell"]["approval"] is False
    assert by_name["http_send"]["approval"] is True
    assert (found["default"], found["unknown"]) == (["read", "s*"], ["shel"])


def test_functions_of_an_app_are_shown(shell: Shell) -> None:
    shell.write(
        "till_with_refunds.py",
        """
from onward import Onward
app = Onward()

@app.tool(approval=True)
def refund(order: str) -> str:
    "Give the money back."
    return order
""",
    )
    found = shell.inside("tools", "--app", "till_with_refunds:app", "--json").json
    (refund,) = [one for one in found["tools"] if one["origin"] == "app"]
    assert (refund["name"], refund["approval"]) == ("refund", True)
    assert refund["description"] == "Give the money back."


def test_a_bad_setting_is_a_usage_error(shell: Shell) -> None:
    shell.write("onward.toml", "[tools.shell]\napproval = 1\n")
    refused = shell.inside("tools")
    assert refused.code == 2
    assert "approval of [tools.shell] in onward.toml is 1; write true or false." in refused.err
