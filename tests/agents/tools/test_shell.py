"""The shell tool: it ends with everything that it started, and knows no key of a provider."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.agents.tools.commands import ShellTool
from onward.agents.tools.port import ToolUse
from onward.agents.tools.toolbox import FixedTools, HookedTools
from onward.config import tool_environment
from onward.handlers.room import AttemptOutput, Room
from onward.handlers.shell import ToolHooks
from onward.process import SystemSpawn
from tests.agents.tools.in_workspace import step_in, using
from tests.world import until

PATH = {"PATH": os.defpath}


@pytest.fixture
def spawn() -> Iterator[SystemSpawn]:
    found = SystemSpawn(grace_s=0.5, linger_s=0.5)
    yield found
    found.close()


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_a_command_runs_in_the_workspace_and_its_output_is_the_answer(
    tmp_path: Path, spawn: SystemSpawn
) -> None:
    tool, step = ShellTool(spawn, PATH), step_in(tmp_path)
    answer = await using(tool, step, command="pwd; echo made > made.txt")
    assert (answer.text, answer.is_error) == (f"{tmp_path}\n", False)
    assert (tmp_path / "made.txt").read_text() == "made\n"
    assert (await using(tool, step, command="true")).text == "[exit code 0, no output]"
    both = await using(tool, step, command="echo out; echo err >&2")
    assert both.text == "stdout:\nout\n\nstderr:\nerr\n"


async def test_a_failure_is_an_answer_with_the_exit_code_and_the_output(
    tmp_path: Path, spawn: SystemSpawn
) -> None:
    tool, step = ShellTool(spawn, PATH), step_in(tmp_path)
    failed = await using(tool, step, command="echo half; echo why >&2; exit 3")
    assert (failed.text, failed.is_error) == ("exit code 3\nstdout:\nhalf\n\nstderr:\nwhy\n", True)
    killed = await using(tool, step, command="kill -9 $$")
    assert (killed.text, killed.is_error) == ("ended by signal 9", True)


async def test_a_command_that_takes_too_long_is_ended_and_its_output_so_far_is_shown(
    tmp_path: Path, spawn: SystemSpawn
) -> None:
    tool, step = ShellTool(spawn, PATH), step_in(tmp_path)
    ended = await using(tool, step, command="echo begun; sleep 1000", time_limit_s=0.5)
    assert ended.is_error
    assert ended.text == (
        "timed out: the command was ended after 0.5 s, with everything that it started\nstdout:\nbegun\n"
    )


async def test_the_time_limit_of_the_rules_counts_whatever_the_model_asks_for(
    tmp_path: Path, spawn: SystemSpawn
) -> None:
    tool, step = ShellTool(spawn, PATH), step_in(tmp_path)
    ended = await using(tool, step, rules={"time_limit_s": 1.0}, command="sleep 1000", time_limit_s=1e6)
    assert "ended after 1 s" in ended.text


@pytest.mark.slow
async def test_what_outlives_its_parent_is_ended_at_the_time_limit(
    tmp_path: Path, spawn: SystemSpawn
) -> None:
    """Children in sessions of their own, that ignore signals and start more of their kind, but for a few."""
    again = 'n=$1; [ "$n" -gt 0 ] && setsid sh again.sh $((n - 1)) & trap "" TERM HUP; echo $$ >> pids; '
    (tmp_path / "again.sh").write_text(f"{again} exec sleep 1000\n")
    tool, step = ShellTool(spawn, PATH), step_in(tmp_path)
    ended = await using(tool, step, command="setsid sh again.sh 8 & sleep 1000", time_limit_s=5)
    assert "timed out" in ended.text
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert pids
    assert [pid for pid in pids if is_alive(pid)] == []


async def test_a_cancelled_use_leaves_nothing_running(tmp_path: Path, spawn: SystemSpawn) -> None:
    tool, step = ShellTool(spawn, PATH), step_in(tmp_path)
    command = "echo $$ > part; mv part pid; sleep 1000"
    use = asyncio.create_task(tool.run(ToolUse(step, {"command": command}, "k", tool.rules)))
    await until((tmp_path / "pid").exists)
    use.cancel()
    with pytest.raises(asyncio.CancelledError):
        await use
    assert not is_alive(int((tmp_path / "pid").read_text()))


async def test_keys_of_providers_are_not_in_the_environment(
    tmp_path: Path, spawn: SystemSpawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "ONWARD_DB",
    ):
        monkeypatch.setenv(name, "canary-0123456789")
    shown = await using(
        ShellTool(spawn, tool_environment()), step_in(tmp_path), command="env; cat /proc/$$/environ"
    )
    assert "canary" not in shown.text
    assert "ONWARD_RUN_ID=run" in shown.text


async def test_what_a_command_prints_is_heard_while_it_prints(tmp_path: Path, spawn: SystemSpawn) -> None:
    heard: list[tuple[str, str]] = []
    output = AttemptOutput(Room(), show=lambda stream, line: heard.append((stream, line)))
    await using(ShellTool(spawn, PATH), step_in(tmp_path, output=output), command="echo hello")
    assert ("stdout", "hello") in heard


async def test_only_the_end_of_very_much_output_is_kept(tmp_path: Path) -> None:
    spawn = SystemSpawn(output_bytes_max=100)
    shown = await using(ShellTool(spawn, PATH), step_in(tmp_path), command="seq 10000")
    assert shown.text.startswith("[only the end of its output was kept]\nstdout:\n")
    assert shown.text.endswith("\n9999\n10000\n")
    spawn.close()


async def test_a_hook_may_forbid_any_tool_and_learns_what_came_of_it(
    tmp_path: Path, spawn: SystemSpawn
) -> None:
    hooks = ToolHooks(spawn, environment=PATH, cwd=str(tmp_path))
    attrs = """tool_hooks.pre="cat > pre.json; grep -q forbidden pre.json && exit 1 || true",
        tool_hooks.post="cat > post.json" """
    step = step_in(tmp_path, attrs)
    source = HookedTools(FixedTools("built-in", [ShellTool(spawn, PATH)]), hooks)
    (tool,) = await source.tools(step, ["shell"])
    forbidden = await using(tool, step, command="touch forbidden")
    assert forbidden.is_error
    assert "the hook tool_hooks.pre forbids it" in forbidden.text
    assert not (tmp_path / "forbidden").exists()
    assert not (await using(tool, step, command="echo fine", key="run/a#1/m1.t1")).is_error
    told = (tmp_path / "post.json").read_text()
    assert '"name":"shell","call_id":"run/a#1/m1.t1","arguments":{"command":"echo fine"}' in told
    assert '"result":{"output":"fine\\n","is_error":false}' in told
