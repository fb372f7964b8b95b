"""Agents with built-in tools, from the command line: what they do, and what a person is asked first."""

from __future__ import annotations

import json
import sys
from typing import Any

from onward.agents.model import ToolCall
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.agents.tools.mcp_servers import PROGRAM
from tests.cli.agents import with_model
from tests.cli.shell import Shell

WORK = """
digraph work {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  a [prompt="Work", allowed_tools="read, write, shell"]
  start -> a -> exit
}
"""


def wishes(*calls: tuple[str, dict[str, Any]]) -> ModelScript:
    """A model that wants these uses, all at once, and is then done."""
    wanted = tuple(
        ToolCall(f"call_{at}", name, json.dumps(given)) for at, (name, given) in enumerate(calls, start=1)
    )
    return ModelScript(
        rules=(ScriptRule(nth=1, reply=ScriptedReply(tool_calls=wanted)),),
        default=ScriptedReply(text="Done."),
    )


def test_an_agent_writes_a_file_and_cannot_leave_its_workspace(shell: Shell) -> None:
    shell.write("work.dot", WORK)
    script = wishes(
        ("write", {"path": "made/by-an-agent.txt", "content": "hello"}),
        ("write", {"path": "../outside.txt", "content": "hello"}),
        ("read", {"path": ".onward/onward.db"}),
    )
    with with_model(shell, script):
        done = shell.inside("run", "work.dot", "--run-id", "fine")
    assert done.code == 0, done.out + done.err
    assert "used" in done.out
    assert 'write  {"path": "made/by-an-agent.txt", "content": "hello"}' in done.out
    assert (shell.directory / "made/by-an-agent.txt").read_text() == "hello"
    assert not (shell.directory.parent / "outside.txt").exists()
    calls = shell.inside("calls", "fine", "--json").json
    assert [call["name"] for call in calls if call["type"] == "tool"] == ["write", "write", "read"]


def test_an_agent_does_not_read_the_database_wherever_it_is(shell: Shell) -> None:
    shell.write("work.dot", WORK)
    with with_model(
        shell, wishes(("read", {"path": "mine.db"}), ("write", {"path": "mine.db", "content": ""}))
    ):
        done = shell.inside("run", "work.dot", "--run-id", "fine", "--db", "mine.db")
        assert done.code == 0, done.out + done.err
    events = shell.inside("events", "fine", "--db", "mine.db", "--json").out
    assert events.count("mine.db belongs to Onward; tools cannot read or write it.") == 2


def test_a_command_of_an_agent_waits_for_a_person_and_knows_no_key(shell: Shell) -> None:
    """S10, S16: nothing runs before it is allowed, and then without the keys of the process."""
    shell.write("work.dot", WORK)
    with with_model(shell, wishes(("shell", {"command": "env > env.txt"}))):
        waiting = shell.inside("run", "work.dot", "--run-id", "asks", "--answers", "wait")
        assert waiting.code == 75, waiting.out + waiting.err
        assert not (shell.directory / "env.txt").exists()
        assert "env > env.txt" in shell.inside("show", "asks").out
        done = shell.inside("answer", "asks", "yes")
    assert done.code == 0, done.out + done.err
    printed = (shell.directory / "env.txt").read_text()
    assert "ONWARD_RUN_ID=asks" in printed
    assert "canary" not in printed
    assert "ONWARD_DB=" not in printed


def test_an_agent_uses_a_tool_of_a_server_of_the_project(shell: Shell) -> None:
    shell.write("onward.toml", f'[mcp.files]\ncommand = ["{sys.executable}", "-S", "{PROGRAM}"]\n')
    shell.write("work.dot", WORK.replace("shell", "files__echo"))
    with with_model(shell, wishes(("files__echo", {"text": "far away"}))):
        done = shell.inside("run", "work.dot", "--run-id", "fine", "--answers", "auto")
    assert done.code == 0, done.out + done.err
    assert "echo: far away" in shell.inside("events", "fine", "--json").out


def test_a_tool_that_nobody_offers_is_refused_before_the_run_begins(shell: Shell) -> None:
    shell.write("work.dot", WORK.replace("shell", "http_get"))
    with with_model(shell, ModelScript()):
        refused = shell.inside("run", "work.dot")
    assert refused.code == 2
    assert "node 'a' allows the tool 'http_get', which does not exist" in refused.err


def test_what_a_use_that_was_cut_off_left_is_shown_to_people_and_to_the_agent(shell: Shell) -> None:
    """S1-9, S1-11: as of every kind of step; the agent continues, and is told of it."""
    shell.write("onward.toml", "[tools.shell]\napproval = false\n")
    shell.write("work.dot", WORK)
    latch = shell.latch("latch")
    command = f"echo half > made.txt; echo part > $ONWARD_STEP_DIR/part.txt; {latch.command}"
    told = ScriptRule(contains="part.txt (5 bytes)", reply=ScriptedReply(text="It was told."))
    script = wishes(("shell", {"command": command}))
    with with_model(
        shell, ModelScript(rules=(*script.rules, told), default=ScriptedReply(text="It was not."))
    ):
        running = shell.start("run", "work.dot", "--run-id", "cut")
        latch.wait_reached()
        running.process.kill()
        running.end()
        (left,) = shell.read("cut")["left"]
        (effect,) = left["effects"]
        assert (effect["key"], effect["state"]) == ("m1.t1", "in_doubt")
        assert effect["about"].startswith('shell {"command": "echo half > made.txt')
        assert "made.txt" in [file["path"] for file in left["changed"]]
        for words in (("show", "cut"), ("resume", "cut"), ("resume", "cut", "--dry-run")):
            done = shell.inside(*words)
            said = done.out + done.err
            assert 'm1.t1 started and never finished: shell {"command": "echo half > made.txt' in said, words
            assert "part.txt (5 bytes)" in said, words
        done = shell.inside("resume", "cut", "--continue")
    assert done.code == 0, done.out + done.err
    assert shell.read("cut")["context"]["last_response"] == "It was told."
