"""Servers of `onward.toml`, as a process of Onward uses them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from onward.agents.tools.port import ToolAnswer
from onward.agents.tools.toolbox import Toolbox
from onward.config import load_settings, redactor_of
from onward.errors import InvalidInput
from onward.wiring import make_mcp
from tests.agents.tools.mcp_servers import PROGRAM
from tests.agents.tools.using import a_step, used

SETTINGS = f"""
[mcp.files]
command = ["{sys.executable}", "-S", "{PROGRAM}"]
env = ["WANTED"]
cwd = "below"
tools = ["e*"]
"""


async def test_a_step_uses_the_tools_of_a_server_that_settings_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onward.toml").write_text(SETTINGS)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANTED", "yes")
    monkeypatch.setenv("ACME_API_KEY", "canary-0123456789")
    settings = load_settings()
    mcp = make_mcp(settings, redactor_of(settings), warn=print)
    assert mcp is not None
    try:
        box = Toolbox([mcp])
        step = a_step('allowed_tools="files__echo, files__env*"')
        box.check_node(step.node)
        offered = await box.of(step)
        assert sorted(offered) == ["files__echo", "files__environment"]
        assert offered["files__echo"].problems({"text": 3}) == ["`text` must be a string, not 3"]
        assert await used(offered["files__echo"].tool, {"text": "x"}) == ToolAnswer("echo: x")
        found = (await used(offered["files__environment"].tool)).text
        assert '"WANTED": "yes"' in found
        assert "canary" not in found
    finally:
        await mcp.close()


def test_without_servers_there_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_settings()
    assert make_mcp(settings, redactor_of(settings), warn=print) is None


def test_a_bad_setting_is_refused_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onward.toml").write_text("[mcp.files]\n")
    monkeypatch.chdir(tmp_path)
    settings = load_settings()
    with pytest.raises(InvalidInput, match=r"^\[mcp.files\] in onward.toml needs either a command or a url"):
        make_mcp(settings, redactor_of(settings), warn=print)
