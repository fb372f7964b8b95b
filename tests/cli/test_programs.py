"""Programs below the real command line, and `kill -9` of it: the stand-in's own ledger counts the turns."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.agents.programs.playing import STAND_IN, Played, answering
from tests.cli.shell import Shell
from tests.world import line

PATIENCE_S = 60


def played(shell: Shell, *script: dict[str, object]) -> Played:
    """A program of the project's settings that a stand-in plays."""
    found = Played(shell.directory / "stand-in", script=list(script))
    assert found.program.name == "mine"
    command = json.dumps([sys.executable, STAND_IN, str(found.directory)])
    shell.write("onward.toml", f"[programs.mine]\ncommand = {command}\n")
    return found


def wait_for(path: Path) -> str:
    give_up_at = time.monotonic() + PATIENCE_S
    while not (path.exists() and path.read_text().strip()):
        assert time.monotonic() < give_up_at, f"{path} was never written"
        time.sleep(0.01)
    return path.read_text().strip()


def is_gone(pid: int) -> bool:
    """Whether no process of this id runs; one that nobody has waited for yet does not."""
    try:
        return (
            "(sleep)" not in Path(f"/proc/{pid}/stat").read_text()
            or " Z " in Path(f"/proc/{pid}/stat").read_text()
        )
    except OSError:
        return True


@pytest.mark.crash
def test_after_kill_9_an_answered_turn_is_not_asked_again_and_nothing_of_a_lost_one_is_left(
    shell: Shell,
) -> None:
    """S2-2, K12: the second step is killed in its turn; it is asked again, in the session of the first."""
    pid = shell.directory / "pid"
    lost = {"print": [{"type": "text", "text": "I have begun."}], "child": str(pid), "hangs": True}
    mine = played(shell, answering("Blue."), lost, answering("Green."))
    talk = 'agent_program="mine", fidelity=full, thread_id="talk"'
    shell.write("work.dot", line("a", "b", a=talk, b=talk))
    running = shell.start("run", "work.dot", "--run-id", "work")
    child = int(wait_for(pid))
    running.signal(signal.SIGKILL)
    running.end()
    give_up_at = time.monotonic() + PATIENCE_S
    while not is_gone(child):
        assert time.monotonic() < give_up_at, "what the program started is still there"
        time.sleep(0.01)
    done = shell.inside("resume", "work")
    assert (done.code, len(mine.starts)) == (0, 3), done.err
    told = [json.loads(start["stdin"]) for start in mine.starts]
    assert [(one["step"], one["session"]) for one in told] == [
        ("a#1", None),
        ("b#1", "s-1"),
        ("b#1", "s-1"),
    ]
    calls = shell.inside("calls", "work", "--json").json
    assert [(one["step"], one["try"], one["state"]) for one in calls] == [
        ("a#1", 1, "ok"),
        ("b#1", 1, "lost"),
        ("b#1", 2, "ok"),
    ]


def test_the_settings_of_the_project_say_what_a_name_means(shell: Shell) -> None:
    mine = played(shell, answering("Fine."))
    shell.write("work.dot", line("a", a='agent_program="mine"'))
    shell.environment["ANTHROPIC_API_KEY"] = "sk-ant-not-for-mine"
    done = shell.inside("run", "work.dot", "--run-id", "work")
    assert done.code == 0, done.err
    assert "ANTHROPIC_API_KEY" not in mine.starts[0]["env"]
    assert mine.starts[0]["env"]["HOME"] == str(shell.directory)
    shell.write("other.dot", line("a", a='agent_program="other"'))
    refused = shell.inside("run", "other.dot")
    assert refused.code == 2
    assert "[programs.other] in onward.toml" in refused.err


def test_a_program_that_is_not_installed_is_refused_with_what_to_do(shell: Shell) -> None:
    shell.environment["PATH"] = os.path.dirname(sys.executable)
    shell.write("work.dot", line("a", a='agent_program="codex"'))
    refused = shell.inside("run", "work.dot")
    assert refused.code == 2
    assert "the program 'codex'" in refused.err
    assert "install it" in refused.err
    assert "Traceback" not in refused.err
