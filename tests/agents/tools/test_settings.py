"""What a project says about tools: every setting counts, and a bad one is refused in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onward.agents.tools.port import ToolRules
from onward.agents.tools.toolbox import HTTP_READERS, SETTING_READERS, Toolbox, read_tools
from onward.config import load_settings
from onward.errors import InvalidInput
from onward.model.values import BUILT_IN_TOOLS
from onward.redact.redactor import NOTHING_SECRET
from onward.wiring import make_toolbox
from tests.agents.tools.in_workspace import step_in

PAGE = Path(__file__).parents[3] / "docs/configuration.md"
HTTP = '[tools.http]\nallow = ["api.example.com"]\n'


def toolbox(directory: Path, monkeypatch: pytest.MonkeyPatch, text: str = "") -> Toolbox:
    (directory / "onward.toml").write_text(text)
    monkeypatch.chdir(directory)
    return make_toolbox(load_settings(), redactor=NOTHING_SECRET)


async def names(box: Toolbox, directory: Path, attrs: str = "") -> list[str]:
    return sorted(await box.of(step_in(directory, attrs)))


async def test_a_step_gets_no_tool_unless_its_node_or_the_project_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = toolbox(tmp_path, monkeypatch)
    assert await names(box, tmp_path) == []
    assert await names(box, tmp_path, 'allowed_tools="read, list"') == ["list", "read"]
    box = toolbox(tmp_path, monkeypatch, '[agents]\nallowed_tools = ["read", "sh*"]')
    assert await names(box, tmp_path) == ["read", "shell"]
    assert await names(box, tmp_path, 'allowed_tools="list"') == ["list"]
    assert await names(box, tmp_path, 'allowed_tools=""') == []


async def test_every_built_in_tool_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = toolbox(tmp_path, monkeypatch, HTTP)
    assert await names(box, tmp_path, 'allowed_tools="*"') == sorted(BUILT_IN_TOOLS)


async def test_requests_are_offered_only_if_a_host_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = step_in(tmp_path, 'allowed_tools="http_get"').node
    with pytest.raises(InvalidInput, match="allows the tool 'http_get', which does not exist"):
        toolbox(tmp_path, monkeypatch).check_node(node)
    toolbox(tmp_path, monkeypatch, HTTP).check_node(node)


async def test_settings_change_the_rules_of_a_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
        [tools."*"]
        output_characters = 5000
        approval = true
        [tools."s*"]
        time_limit_s = 7
        [tools.shell]
        approval = false
        [tools."sh*"]
        approval = true
        repeatable = true
    """
    box = toolbox(tmp_path, monkeypatch, text)
    found = await box.of(step_in(tmp_path, 'allowed_tools="*"'))
    assert found["shell"].rules == ToolRules(
        repeatable=True, approval=False, is_concurrent=False, time_limit_s=7, output_characters=5000
    )
    assert found["read"].rules == ToolRules(approval=True, output_characters=5000)
    assert found["search"].rules.time_limit_s == 7


async def test_without_settings_only_what_can_do_harm_needs_approval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await toolbox(tmp_path, monkeypatch, HTTP).of(step_in(tmp_path, 'allowed_tools="*"'))
    careful = {name for name, offered in found.items() if offered.rules.approval}
    assert careful == {name for name, one in found.items() if not one.rules.repeatable}
    assert careful == {"shell", "http_send"}


@pytest.mark.parametrize(
    ("tables", "why"),
    [
        ({"shell": True}, "tools.shell in onward.toml is True; write a table [tools.shell]."),
        ({"a b": {}}, "[tools.a b] in onward.toml cannot be the name of a tool; use letters,"),
        (
            {"shell": {"aproval": True}},
            "[tools.shell] in onward.toml sets aproval; known settings are approval,",
        ),
        (
            {"shell": {"approval": "yes"}},
            "approval of [tools.shell] in onward.toml is 'yes'; write true or false.",
        ),
        (
            {"shell": {"repeatable": 1}},
            "repeatable of [tools.shell] in onward.toml is 1; write true or false.",
        ),
        ({"shell": {"time_limit_s": 0}}, "is 0, which is not a number of seconds from 0.1"),
        ({"shell": {"time_limit_s": float("nan")}}, "is nan, which is not a number of seconds"),
        ({"shell": {"output_characters": 10}}, "is 10, which is not a whole number from 1000 to 10000000."),
        ({"shell": {"output_characters": 1e6}}, "is 1000000.0, which is not a whole number"),
        ({"http": {"allow": "h"}}, "allow of [tools.http] in onward.toml is 'h'; write a list"),
        ({"http": {"allow": ["ftp://h"]}}, "has 'ftp://h': the address must begin with https:// or http://"),
        (
            {"http": {"allow_private": 1}},
            "allow_private of [tools.http] in onward.toml is 1; write true or false.",
        ),
        (
            {"http": {"approval": True}},
            "The rules of its tools belong in [tools.http_get] and [tools.http_send].",
        ),
    ],
)
def test_a_bad_setting_is_refused_in_one_sentence(tables: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_tools(tables)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("written", ['"read"', "[1]", '[""]'])
def test_a_default_that_is_no_list_of_names_is_refused(
    written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onward.toml").write_text(f"[agents]\nallowed_tools = {written}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        InvalidInput, match=r"allowed_tools of \[agents\] in onward.toml is .*; write a list of"
    ):
        load_settings()


def test_every_rule_can_be_set_and_every_setting_is_documented() -> None:
    assert SETTING_READERS.keys() == set(ToolRules.__struct_fields__) - {"is_concurrent"}
    page = PAGE.read_text()
    for key in SETTING_READERS:
        assert f"`tools.NAME.{key}`" in page
    for key in HTTP_READERS:
        assert f"`tools.http.{key}`" in page
