"""Programs below the real command line, and `kill -9` of it: the stand-in's own ledger counts the turns."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
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


def test_the_receipt_of_an_agent_says_what_its_calls_came_to_now_and_when_made_from_the_log(
    shell: Shell,
) -> None:
    """O1-1, O1-13: tokens of each kind, cost, calls, the model, and the commits before and after."""
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org"]
    repository = shell.directory / "repository"
    repository.mkdir()
    (repository / "README").write_text("one\n")
    for words in (["init", "-q"], ["add", "README"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], cwd=repository, check=True)
    mine = played(shell, {**answering("Done."), "write": {"new.txt": "hello"}})
    shell.write("work.dot", line("a", a='agent_program="mine"'))
    done = shell.inside("run", "work.dot", "--run-id", "work", "--workspace", "repository")
    assert (done.code, len(mine.starts)) == (0, 1), done.err
    runs = shell.directory / "onward.db-runs"
    file = runs / "work" / "line" / "receipts" / "a-codergen.json"
    receipt = json.loads(file.read_bytes())
    assert receipt["schema_version"] == 2
    assert receipt["tokens"] == {"prompt": 100, "completion": 20, "total": 120}
    usage = {"input": 100, "output": 20, "cached": 40, "cache_write": 0, "reasoning": 0}
    assert (receipt["usage"], receipt["cost_micro"], receipt["models"]) == (usage, 12_500, ["mine:tiny"])
    answered = {"models": 0, "programs": 1, "tools": 0, "functions": 0}
    assert receipt["calls"] == {**answered, "failed": 0, "lost": 0}
    before, after = receipt["workspace"]["before"], receipt["workspace"]["after"]
    shown = subprocess.run(
        ["git", "diff", "--name-only", before, after],
        cwd=repository,
        check=True,
        capture_output=True,
        text=True,
    )
    assert shown.stdout.split() == ["new.txt"]
    assert json.loads((file.parent / "start-start.json").read_bytes())["schema_version"] == 1
    written = file.read_bytes()
    assert shell.inside("receipts", "work").err == "", "the log stands for it"
    shutil.rmtree(runs)
    assert shell.inside("receipts", "work").code == 0
    assert file.read_bytes() == written


@pytest.mark.crash
def test_what_a_killed_program_left_is_shown_its_text_its_call_and_its_files(shell: Shell) -> None:
    """S1-9, S1-11: of an agent's step as of a command's; a person decides, and nothing is lost."""
    pid = shell.directory / "pid"
    lost = {"print": [{"type": "text", "text": "I have begun."}], "child": str(pid), "hangs": True}
    played(shell, {**lost, "write": {"half.txt": "half"}}, answering("Done."))
    (shell.directory / "place").mkdir()
    shell.write("work.dot", line("a", a='agent_program="mine", repeatable=false'))
    running = shell.start("run", "work.dot", "--run-id", "work", "--cwd", "place")
    wait_for(pid)
    give_up_at = time.monotonic() + PATIENCE_S
    while "I have begun." not in shell.inside("messages", "work").out:
        assert time.monotonic() < give_up_at, "its text was never stored"
    running.signal(signal.SIGKILL)
    running.end()
    refused = shell.inside("resume", "work")
    assert refused.code == 1
    assert "half.txt (4 bytes)" in refused.err
    shown = shell.read("work")
    (left,), (progress,) = shown["left"], shown["progress"]
    assert [file["path"] for file in left["changed"]] == ["half.txt"]
    assert [(one["key"], one["state"]) for one in left["effects"]] == [("m1", "in_doubt")]
    assert progress["text"] == "I have begun."
    assert shell.inside("resume", "work", "--continue").code == 0
