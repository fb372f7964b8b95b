"""The chaos list of receipts and handoffs (O1-15): each item with the real command line, on both."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

from tests.cli.shell import Shell, pipeline, wait_for_file


def run_directory(shell: Shell) -> Path:
    (found,) = (path.parent for path in shell.directory.rglob("manifest.json"))
    return found


def files_in(shell: Shell, folder: str) -> list[str]:
    return sorted(path.name for path in run_directory(shell).rglob(f"{folder}/*.json"))


def starts(shell: Shell) -> Counter[tuple[str, int]]:
    """How often each attempt of each step began."""
    begun = (event for event in shell.log("work") if event["kind"] == "StepStarted")
    return Counter((event["step"], event["attempt"]) for event in begun)


def checkpoint(shell: Shell) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((run_directory(shell) / "checkpoint.json").read_bytes())
    return state


def killed(shell: Shell, *, has_checkpoint: bool = False) -> None:
    """A run of three steps whose process was killed inside the second."""
    latch = shell.latch("latch")
    second = shell.noting(f"test -e dead || {{ touch dead; {latch.command}; }}")
    steps = (("a", shell.noting()), ("b", second), ("c", shell.noting()))
    shell.write("work.dot", pipeline(*steps))
    running = shell.start("run", "work.dot", "--run-id", "work")
    latch.wait_reached()
    if has_checkpoint:
        wait_for_file(run_directory(shell) / "checkpoint.json")  # which comes a second after the first step
    running.signal(signal.SIGKILL)
    running.end()


def test_golden_path_every_step_starts_once_and_leaves_its_receipt_and_handoff(any_shell: Shell) -> None:
    shell = any_shell
    shell.write("work.dot", pipeline(("a", shell.noting()), ("b", shell.noting())))
    assert shell.inside("run", "work.dot", "--run-id", "work").code == 0
    assert shell.ledger == ["a#1", "b#1"]
    assert set(starts(shell).values()) == {1}
    receipts = ["a-tool.json", "b-tool.json", "exit-exit.json", "start-start.json"]
    assert files_in(shell, "receipts") == receipts
    assert files_in(shell, "handoffs") == receipts
    assert shell.inside("verify", "work").code == 0


def test_stalled_worker_its_run_is_refused_to_others_taken_over_by_word_and_written_by_one(
    any_shell: Shell,
) -> None:
    shell = any_shell
    latch = shell.latch("latch")
    stall = shell.noting(f"test -e once || {{ touch once; {latch.command}; }}")
    shell.write("work.dot", pipeline(("a", stall), ("b", shell.noting())))
    stalled = shell.start("run", "work.dot", "--run-id", "work")
    latch.wait_reached()
    stalled.signal(signal.SIGSTOP)
    refused = shell.inside("resume", "work", "--json")
    assert (refused.code, refused.error["code"]) == (1, "occupied")
    assert shell.inside("resume", "work", "--take-over").code == 0
    done = shell.log("work")
    stalled.signal(signal.SIGCONT)
    assert stalled.end().code == 1
    assert shell.log("work") == done, "whoever wakes up writes nothing"
    assert shell.ledger == ["a#1", "a#1", "b#1"]
    assert shell.inside("verify", "work").code == 0


def test_kill_9_leaves_valid_state_json_before_and_after_the_resume(any_shell: Shell) -> None:
    killed(any_shell, has_checkpoint=True)
    state = checkpoint(any_shell)
    assert state["completed_nodes"][-1] == "a"
    for path in run_directory(any_shell).rglob("*.json"):
        json.loads(path.read_bytes())
    assert any_shell("resume", "work").code == 0
    assert checkpoint(any_shell)["completed_nodes"][-3:] == ["b", "c", "exit"]
    for path in run_directory(any_shell).rglob("*.json"):
        json.loads(path.read_bytes())


def test_kill_9_leaves_no_corrupt_event_lines(any_shell: Shell) -> None:
    killed(any_shell)
    for after in ("kill", "resume"):
        lines = any_shell.inside("events", "work", "--json").out.splitlines()
        assert [json.loads(line)["seq"] for line in lines] == list(range(1, len(lines) + 1)), after
        checked = any_shell.inside("verify", "work", "--json")
        assert checked.code == 0, after
        if after == "kill":
            assert any_shell("resume", "work").code == 0


def test_kill_9_leaves_receipts_only_for_finished_steps(any_shell: Shell) -> None:
    killed(any_shell)
    finished = ["a-tool.json", "start-start.json"]
    assert files_in(any_shell, "receipts") == files_in(any_shell, "handoffs") == finished
    assert any_shell("resume", "work").code == 0
    finished = ["a-tool.json", "b-tool.json", "c-tool.json", "exit-exit.json", "start-start.json"]
    assert files_in(any_shell, "receipts") == files_in(any_shell, "handoffs") == finished


def test_kill_9_and_a_resume_start_no_step_twice_but_the_one_that_was_cut_off(any_shell: Shell) -> None:
    killed(any_shell)
    assert any_shell("resume", "work").code == 0
    assert starts(any_shell) == {("a#1", 1): 1, ("b#1", 1): 2, ("c#1", 1): 1}
    assert any_shell.ledger == ["a#1", "b#1", "b#1", "c#1"]
    begun = [event for event in any_shell.log("work") if event.get("step") == "b#1"]
    tokens = [event["token"] for event in begun if event["kind"] == "StepStarted"]
    assert tokens[0] < tokens[1], "each start belongs to another owner"
