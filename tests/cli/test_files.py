"""`onward files` and `onward artifacts`, the settings for files, and a status file after `kill -9`."""

from __future__ import annotations

import base64
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import Shell, pipeline

MAKES = "mkdir $ONWARD_STEP_DIR/artifacts && printf 'line 1' > $ONWARD_STEP_DIR/artifacts/report.txt"
BINARY = "mkdir $ONWARD_STEP_DIR/artifacts && printf '\\\\377' > $ONWARD_STEP_DIR/artifacts/b"
AGENT = (
    'digraph agent { start [shape=Mdiamond]; exit [shape=Msquare]; a [prompt="Do it"]; start -> a -> exit }'
)


def runs(shell: Shell) -> Path:
    return shell.directory / "onward.db-runs"


def status(directory: Path) -> Any:
    return json.loads((directory / "status.json").read_text())


def test_a_status_written_before_kill_9_does_not_count(shell: Shell) -> None:
    """The attempt is made again in a directory of its own; what the dead one said stays where it was."""
    latch = shell.latch("latch")
    said = '{\\"outcome\\":\\"fail\\",\\"notes\\":\\"of the dead\\"}'
    first = f"echo '{said}' > $ONWARD_STEP_DIR/status.json; mkdir $ONWARD_STEP_DIR/artifacts; touch dead"
    shell.write("work.dot", pipeline(("a", f"test -e dead || {{ {first}; {latch.command}; }}")))
    running = shell.start("run", "work.dot", "--run-id", "work")
    latch.wait_reached()
    running.signal(signal.SIGKILL)
    running.end()
    assert status(runs(shell) / "work" / "a" / "1")["notes"] == "of the dead"
    assert shell.inside("resume", "work").code == 0
    assert shell.read("work")["status"] == "completed"
    assert status(runs(shell) / "work" / "a" / "1")["notes"] == "of the dead"
    assert status(runs(shell) / "work" / "a" / "1" / "try-2")["outcome"] == "success"


def test_files_are_made_from_the_log_on_demand(shell: Shell) -> None:
    shell.write("agent.dot", AGENT)
    assert shell.inside("run", "agent.dot", "--simulate", "--run-id", "agent").code == 0
    assert not runs(shell).exists()
    done = shell.inside("files", "agent")
    *named, last = done.out.splitlines()
    assert (done.code, last.partition(": ")[2]) == (0, f"11 files written to {runs(shell)}/agent")
    there = sorted(str(path) for path in (runs(shell) / "agent").rglob("*") if path.is_file())
    assert sorted(line.removeprefix("wrote ") for line in named) == there
    assert (runs(shell) / "agent" / "a" / "1" / "prompt.md").read_text() == "Do it"
    assert (runs(shell) / "agent" / "a" / "1" / "response.md").read_text() == "[simulated] a done"
    elsewhere = shell.inside("files", "agent", "--out", "here", "--json")
    here = shell.directory / "here"
    assert (elsewhere.json["directory"], elsewhere.json["written"]) == (str(here), 11)
    assert str(here / "a" / "1" / "prompt.md") in elsewhere.json["files"]
    assert shell.inside("files", "agent", "--out", "here").out.count("\n") == 1, "nothing is written again"
    assert status(shell.directory / "here" / "a" / "1")["outcome"] == "success"


def test_files_are_not_put_where_something_else_is(shell: Shell) -> None:
    shell.write("agent.dot", AGENT)
    shell.inside("run", "agent.dot", "--simulate", "--run-id", "agent")
    done = shell.inside("files", "agent", "--out", ".")
    assert done.code == 2
    assert "contains files that do not belong to this run" in done.err


def test_artifacts_are_listed_and_fetched(shell: Shell) -> None:
    shell.write("work.dot", pipeline(("a", MAKES)))
    assert shell.inside("run", "work.dot", "--run-id", "work").code == 0
    listed = shell.inside("artifacts", "work")
    assert listed.out.splitlines()[1].split()[:4] == ["report.txt", "report.txt", "6", "a#1"]
    assert shell.inside("artifacts", "work", "report.txt").out == "line 1"
    assert shell.inside("artifacts", "work", "report.txt", "--out", "copy").code == 0
    assert (shell.directory / "copy").read_text() == "line 1"
    (info,) = shell.inside("artifacts", "work", "--json").json
    assert (info["id"], info["size_bytes"], info["step"]) == ("report.txt", 6, "a#1")
    fetched = shell.inside("artifacts", "work", "report.txt", "--json").json
    assert base64.b64decode(fetched["content_base64"]) == b"line 1"
    missing = shell.inside("artifacts", "work", "other")
    assert (missing.code, missing.err) == (
        1,
        "onward: no artifact 'other' in this run; it has report.txt.\n",
    )
    assert shell.inside("artifacts", "work", "--out", "x").code == 2


def test_a_terminal_is_shown_text_alone(shell: Shell) -> None:
    shell.write("work.dot", pipeline(("a", BINARY)))
    assert shell.inside("run", "work.dot", "--run-id", "work").code == 0
    terminal = shell.terminal("artifacts", "work", "b")
    done = terminal.end()
    assert done.code == 2
    assert "is not text" in done.out


@pytest.mark.parametrize("how", ["flag", "environment", "file"])
def test_where_files_go_and_whether_is_a_setting(shell: Shell, how: str) -> None:
    shell.write("agent.dot", AGENT)
    flags: list[str] = []
    match how:
        case "flag":
            flags = ["--runs", "there", "--files", "full"]
        case "environment":
            shell.environment |= {"ONWARD_RUNS": "there", "ONWARD_FILES": "full"}
        case _:
            shell.write("onward.toml", 'runs = "there"\nfiles = "full"\n')
    assert shell.inside("run", "agent.dot", "--simulate", "--run-id", "agent", *flags).code == 0
    assert status(shell.directory / "there" / "agent" / "a" / "1")["outcome"] == "success"
    refused = shell.inside("run", "agent.dot", "--simulate", "--files", "some")
    assert (refused.code, refused.err) == (2, "onward: files is 'some'; write one of full, lazy, off.\n")


def test_a_disk_that_takes_no_files_is_told_and_costs_no_step(shell: Shell) -> None:
    shell.write("onward.db-runs", "a file is in the way")
    shell.write("work.dot", pipeline(("a", shell.noting())))
    done = shell.inside("run", "work.dot", "--run-id", "work")
    assert done.code == 0
    assert (
        "is not a directory (a link is not followed); remove it. The run continues without them" in done.err
    )
    assert shell.ledger == ["a#1"]
