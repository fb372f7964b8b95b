"""Document 003's story in its own words: sessions that are run, listed, resumed and replayed, with kills.

Its session is a run, its context a log, its CXDB the database. Each command is a process of its own.
"""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.cli.shell import Shell, Started
from tests.cli.turnstile import Turnstile
from tests.worker.conftest import shell as shell
from tests.worker.conftest import turnstile as turnstile

pytestmark = [pytest.mark.slow, pytest.mark.crash]
PAUSED = 75


def source(shell: Shell, turnstile: Turnstile) -> str:
    """A branch, a goal gate that is met at the second visit, and a place to be stopped at in each part."""
    stand, review = shell.noting(turnstile.command), shell.noting("test -e good")
    return f"""digraph build {{
  graph [goal="Ship it", retry_target=write]
  start [shape=Mdiamond]
  exit [shape=Msquare]
  classify [shape=parallelogram, tool_command="{stand}"]
  write [shape=parallelogram, tool_command="{stand}"]
  drop [shape=parallelogram, tool_command="{shell.noting()}"]
  review [shape=parallelogram, goal_gate=true, continue_on_fail=true, tool_command="{review}"]
  ship [shape=parallelogram, tool_command="{stand}"]
  start -> classify
  classify -> write [condition="context.kind=feature"]
  classify -> drop [condition="context.kind!=feature"]
  drop -> exit
  write -> review -> ship -> exit
}}"""


def session(shell: Shell) -> Any:
    """The session as `onward status` lists it."""
    (one,) = shell.inside("status", "--json").json
    return one


def kinds(shell: Shell, run: str) -> list[str]:
    return [event["kind"] for event in shell.log(run)]


def last_checkpoint(shell: Shell, run: str) -> Any:
    return shell.inside("checkpoints", run, "--json").json[-1]


def test_the_whole_story_of_document_003(shell: Shell, turnstile: Turnstile) -> None:
    """S3-1, S3-2, S3-3, S3-4, S3-5, S3-6, S3-7, S3-8, S3-9, S3-10, S3-11, S3-12.

    A session is paused with Ctrl-C, killed twice, refused for a changed file, and completed; then it is
    replayed from a checkpoint, and stays as it was.
    """
    shell.write("build.dot", source(shell, turnstile))
    run = is_paused_by_ctrl_c(shell, turnstile)
    is_killed_and_found_interrupted(shell, turnstile, run)
    is_refused_for_a_changed_file(shell, run)
    is_sent_back_by_its_goal_gate_after_a_kill(shell, turnstile, run)
    is_refused_once_it_is_completed(shell, run)
    is_replayed_and_stays_as_it_was(shell, turnstile, run)


def kill(command: Started) -> None:
    """End it without a word."""
    command.process.kill()
    command.end()


def is_paused_by_ctrl_c(shell: Shell, turnstile: Turnstile) -> str:
    """SIGINT: the node finishes, a checkpoint is saved, the session is paused."""
    running = shell.start("run", "build.dot", "--set", "kind=feature")
    assert turnstile.arrival().step == "classify#1"
    run: str = session(shell)["id"]
    assert session(shell)["status"] == "running"
    running.signal(signal.SIGINT)
    running.wait_for("stopping after the current step")
    turnstile.let_through()
    assert running.end().code == PAUSED
    shown = session(shell)
    assert (shown["pipeline"], shown["status"], len(shown["display_id"])) == ("build", "paused", 6)
    assert kinds(shell, run)[-1] == "RunPaused"
    saved = last_checkpoint(shell, run)
    assert (saved["current_node"], saved["next_node_id"]) == ("classify", "write")
    return run


def is_killed_and_found_interrupted(shell: Shell, turnstile: Turnstile, run: str) -> None:
    """Resumed by its display id; a checkpoint without a pause is a crash."""
    resuming = shell.start("resume", session(shell)["display_id"])
    assert turnstile.arrival().step == "write#1"
    kill(resuming)
    shown = session(shell)
    assert (shown["id"], shown["status"], shown["next"]) == (run, "interrupted", "write")
    assert shell.ledger == ["classify#1", "write#1"]


def is_refused_for_a_changed_file(shell: Shell, run: str) -> None:
    """A file that was modified is found by its hash, and refused."""
    file = shell.directory / "build.dot"
    before = file.read_text()
    file.write_text(before.replace("Ship it", "Ship it now"))
    length = len(shell.log(run))
    refused = shell("resume", run)
    assert refused.code != 0
    assert "changed" in refused.err
    assert len(shell.log(run)) in (length, length + 1), "nothing was executed"
    assert shell.ledger == ["classify#1", "write#1"]
    file.write_text(before)


def is_sent_back_by_its_goal_gate_after_a_kill(shell: Shell, turnstile: Turnstile, run: str) -> None:
    """The review failed before the kill; the exit remembers it after, and counts the reroute."""
    resuming = shell.start("resume", run)
    assert turnstile.arrival().step == "write#1"
    turnstile.let_through()
    assert turnstile.arrival().step == "ship#1"
    kill(resuming)
    saved = last_checkpoint(shell, run)
    assert (saved["next_node_id"], saved["visited_outcomes"]["review"]) == ("ship", "fail")
    (shell.directory / "good").touch()
    again = shell.start("resume", run)
    for step in ("ship#1", "write#2", "ship#2"):
        assert turnstile.arrival().step == step
        turnstile.let_through()
    assert again.end().code == 0
    assert last_checkpoint(shell, run)["reroute_count"] == 1
    assert shell.ledger == [
        *("classify#1", "write#1", "write#1", "review#1", "ship#1", "ship#1"),
        *("write#2", "review#2", "ship#2"),
    ]


def is_refused_once_it_is_completed(shell: Shell, run: str) -> None:
    assert session(shell)["status"] == "completed"
    refused = shell("resume", run)
    assert (refused.code, "is completed and cannot be resumed" in refused.err) == (1, True)
    unknown = shell("resume", "nobody")
    assert (unknown.code, "no run 'nobody'" in unknown.err) == (1, True)


def is_replayed_and_stays_as_it_was(shell: Shell, turnstile: Turnstile, run: str) -> None:
    """A fork at a checkpoint goes another way, and adds nothing to the original."""
    before = shell.log(run)
    checkpoint = next(
        one["seq"]
        for one in shell.inside("checkpoints", run, "--json").json
        if one["current_node"] == "start"
    )
    words = ("--checkpoint", str(checkpoint), "--set", "kind=chore", "--run-id", "fork")
    assert shell.inside("verify", run).code == 0
    turnstile.let_through()  # classify
    done = shell("replay", run, *words)
    assert done.code == 0, done.err
    fork = shell.read("fork")
    assert (fork["status"], fork["parent"]) == ("completed", {"run": run, "seq": checkpoint})
    assert [step["node"] for step in fork["steps"]][-2:] == ["drop", "exit"]
    assert shell.log(run) == before
