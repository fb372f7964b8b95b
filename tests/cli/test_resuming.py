"""Resuming through the command line: what it goes on with, and everything it refuses."""

from __future__ import annotations

import re
import signal

import pytest

from tests.cli.shell import GATE, Shell, pipeline

IN_DOUBT = """
digraph doubt {{
  start [shape=Mdiamond]
  exit [shape=Msquare]
  pay [shape=parallelogram, repeatable=false, tool_command="{pay}"]
  tell [shape=parallelogram, tool_command="{tell}"]
  start -> pay -> tell -> exit
}}
"""


def failed_run(shell: Shell) -> None:
    """A run `work` that failed at its second step, which works as soon as `mended` exists."""
    mended = shell.directory / "mended"
    shell.write(
        "work.dot",
        pipeline(("a", shell.noting()), ("b", shell.noting(f"test -e {mended}")), ("c", shell.noting())),
    )
    assert shell.inside("run", "work.dot", "--run-id", "work").code == 1


def test_of_two_resumers_one_wins_and_the_other_names_the_holder(any_shell: Shell) -> None:
    """K4: refused cleanly with exit 1, and nothing runs twice."""
    shell = any_shell
    latch = shell.latch("latch")
    shell.write("work.dot", pipeline(("a", shell.noting(latch.command))))
    running = shell.start("run", "work.dot", "--run-id", "work")
    latch.wait_reached()
    running.process.kill()
    running.end()
    winner = shell.start("resume", "work")
    latch.wait_reached()
    loser = shell.inside("resume", "work", "--json")
    assert loser.code == 1
    assert loser.error["code"] == "occupied"
    assert f"process {winner.process.pid} on " in loser.error["holder"]
    assert f"is held by process {winner.process.pid} on " in loser.err
    latch.release()
    assert winner.end().code == 0
    assert shell.ledger == ["a#1", "a#1"]


def test_many_resumers_at_once_leave_one_winner(shell: Shell) -> None:
    latch = shell.latch("latch")
    shell.write("work.dot", pipeline(("a", "false"), ("b", shell.noting(latch.command))))
    assert shell.inside("run", "work.dot", "--run-id", "work").code == 1
    rivals = [shell.start("resume", "work", "--skip") for _ in range(3)]
    latch.wait_reached()
    latch.release()
    codes = sorted(rival.end().code for rival in rivals)
    assert codes == [0, 1, 1]
    assert shell.ledger == ["b#1"]


def test_waiting_for_the_holder_ends_when_it_lets_go(shell: Shell) -> None:
    latch = shell.latch("latch")
    shell.write("work.dot", pipeline(("a", latch.command), ("b", shell.noting())))
    running = shell.start("run", "work.dot", "--run-id", "work")
    latch.wait_reached()
    waiting = shell.start("resume", "work", "--wait")
    waiting.wait_for("waiting for process")
    running.signal(signal.SIGTERM)
    running.wait_for("stopping")
    latch.release()
    assert running.end().code == 75
    assert waiting.end().code == 0
    assert shell.read("work")["status"] == "completed"


def test_a_stuck_holder_is_robbed_and_can_write_nothing_more(shell: Shell) -> None:
    latch, once = shell.latch("latch"), shell.directory / "once"
    stall = f"test -e {once} || {{ touch {once}; {latch.command}; }}"
    shell.write("work.dot", pipeline(("a", stall), ("b", shell.noting())))
    stuck = shell.start("run", "work.dot", "--run-id", "work")
    latch.wait_reached()
    stuck.signal(signal.SIGSTOP)
    robbing = shell.inside("resume", "work", "--take-over")
    assert robbing.code == 0
    assert f"taking the run from process {stuck.process.pid} on " in robbing.err
    stuck.signal(signal.SIGCONT)
    robbed = stuck.end()
    assert robbed.code == 1
    assert "another process holds the run" in robbed.err
    assert shell.ledger == ["b#1"]


def test_an_edited_file_is_refused_with_both_hashes_and_the_changed_nodes(shell: Shell) -> None:
    """K6: and both ways on work: under the changed file, or under the stored source."""
    failed_run(shell)
    source = (shell.directory / "work.dot").read_text()
    was = shell.read("work")["pipeline_hash"]
    shell.write("work.dot", source.replace("c [shape", "c [label=New, shape"))
    before = shell.log("work")
    refused = shell.inside("resume", "work", "--json")
    assert refused.code == 1
    error = refused.error
    assert (error["code"], error["was"], error["changed"]) == ("pipeline_changed", was, ["c"])
    assert was[:12] in refused.err
    assert error["is"][:12] in refused.err
    assert "changed: c" in refused.err
    assert shell.log("work") == before
    assert shell.inside("resume", "work", "--dry-run").code == 1

    assert (
        shell.inside("resume", "work", "--original").code == 1
    )  # the step fails again, under the old source
    assert shell.read("work")["pipeline_hash"] == was
    (shell.directory / "mended").touch()
    assert shell.inside("resume", "work", "--accept-changes").code == 0
    assert shell.read("work")["pipeline_hash"] == error["is"]


def test_a_changed_file_without_a_recorded_node_is_refused_even_if_accepted(shell: Shell) -> None:
    failed_run(shell)
    shell.write("work.dot", pipeline(("b", "true"), ("c", "true")))
    refused = shell.inside("resume", "work", "--accept-changes", "--json")
    assert refused.code == 1
    assert refused.error["missing"] == ["a"]


def test_a_missing_file_means_the_stored_source_with_a_notice(shell: Shell) -> None:
    failed_run(shell)
    (shell.directory / "work.dot").unlink()
    (shell.directory / "mended").touch()
    done = shell.inside("resume", "work")
    assert done.code == 0
    assert "work.dot no longer exists; continuing with the source stored with the run." in done.err


def test_the_file_is_found_from_another_directory(shell: Shell) -> None:
    failed_run(shell)
    (shell.directory / "mended").touch()
    (shell.directory / "elsewhere").mkdir()
    done = Shell(shell.directory / "elsewhere", shell.db).inside("resume", "work")
    assert (done.code, done.err) == (0, "")


def test_resume_says_what_it_continues_with(shell: Shell) -> None:
    failed_run(shell)
    (shell.directory / "mended").touch()
    first = shell.inside("resume", "work").out.splitlines()[0]
    assert re.fullmatch(r"resuming run work \(line\) from checkpoint 5: step a#1, \d+ s ago", first)


def test_a_dry_run_shows_what_would_be_skipped_and_run_and_changes_nothing(shell: Shell) -> None:
    failed_run(shell)
    before, ledger = shell.log("work"), shell.ledger
    dry = shell.inside("resume", "work", "--dry-run")
    assert dry.code == 0
    assert dry.out.splitlines() == [
        "SKIP  start#1",
        "SKIP  a#1",
        "RUN   b#1  (attempt 2)",
        "nothing was changed",
    ]
    seen = shell.inside("resume", "work", "--skip", "--dry-run", "--json").json
    assert seen["skip"] == ["start#1", "a#1"]
    assert [(one["does"], one["what"]) for one in seen["plan"]] == [("pass", "b#1"), ("run", "c#1")]
    assert (
        shell.inside("resume", "work", "--from", "a", "--dry-run").out.splitlines()[-2]
        == "RUN   a#2  (attempt 1)"
    )
    assert shell.inside("resume", "work", "--abort", "--dry-run").out.splitlines()[-2] == "END   cancelled"
    assert (shell.log("work"), shell.ledger) == (before, ledger)
    assert shell.read("work")["status"] == "failed"


def test_a_dry_run_of_a_waiting_run_shows_the_question(shell: Shell) -> None:
    shell.write("gate.dot", GATE)
    assert shell.inside("run", "gate.dot", "--run-id", "gate").code == 75
    assert "ASK   ask#1  (Ship it?)" in shell.inside("resume", "gate", "--dry-run").out


@pytest.mark.parametrize(
    ("flag", "code", "ledger", "status"),
    [
        ("--retry", 0, ["pay#1", "pay#1", "tell#1"], "completed"),
        ("--continue", 0, ["pay#1", "pay#1", "tell#1"], "completed"),
        ("--skip", 0, ["pay#1", "tell#1"], "completed"),
        ("--abort", 0, ["pay#1"], "cancelled"),
    ],
)
def test_a_step_in_doubt_waits_for_a_persons_word(
    shell: Shell, flag: str, code: int, ledger: list[str], status: str
) -> None:
    latch, once = shell.latch("latch"), shell.directory / "once"
    pay = shell.noting(f"test -e {once} || {{ touch {once}; {latch.command}; }}")
    shell.write("doubt.dot", IN_DOUBT.format(pay=pay, tell=shell.noting()))
    running = shell.start("run", "doubt.dot", "--run-id", "doubt")
    latch.wait_reached()
    running.process.kill()
    running.end()
    refused = shell.inside("resume", "doubt", "--json")
    assert refused.code == 1
    assert (refused.error["code"], refused.error["step"]) == ("in_doubt", "pay#1")
    assert "--retry, --skip, --continue or --abort" in refused.err
    done = shell.inside("resume", "doubt", flag)
    assert done.code == code, done.err
    assert shell.ledger == ledger
    assert shell.read("doubt")["status"] == status


def test_from_starts_at_an_earlier_node(shell: Shell) -> None:
    """S1-21: a person names the step to start at."""
    failed_run(shell)
    (shell.directory / "mended").touch()
    assert shell.inside("resume", "work", "--from", "a").code == 0
    assert shell.ledger == ["a#1", "b#1", "a#2", "b#2", "c#1"]


@pytest.mark.parametrize(
    "flags",
    [
        ("--retry", "--skip"),
        ("--continue", "--abort"),
        ("--skip", "--fresh"),
        ("--accept-changes", "--original"),
        ("--from", "nowhere"),
    ],
)
def test_flags_that_make_no_sense_are_usage_errors(shell: Shell, flags: tuple[str, ...]) -> None:
    failed_run(shell)
    before = shell.log("work")
    assert shell.inside("resume", "work", *flags).code == 2
    assert shell.log("work") == before


def test_a_named_step_is_the_one_that_is_skipped(shell: Shell) -> None:
    failed_run(shell)
    assert shell.inside("resume", "work", "--skip", "--step", "zzz").code == 1
    assert shell.inside("resume", "work", "--skip", "--step", "b").code == 0
    assert shell.ledger == ["a#1", "b#1", "c#1"]


def test_a_killed_run_is_interrupted_in_the_list_and_goes_on(shell: Shell) -> None:
    """K17: a stale run is not called running, whoever looks first."""
    latch = shell.latch("latch")
    shell.write("work.dot", pipeline(("a", shell.noting(latch.command))))
    running = shell.start("run", "work.dot", "--run-id", "work")
    latch.wait_reached()
    (alive,) = shell.inside("status", "--json").json
    assert (alive["status"], alive["completed"]) == ("running", ["start#1"])
    assert alive["holder"].startswith(f"process {running.process.pid} on ")
    running.process.kill()
    running.end()
    (dead,) = shell.inside("status", "--json").json
    assert (dead["status"], dead["reason"], dead["recoverable"]) == ("interrupted", "crash", True)
    assert [one["id"] for one in shell.inside("status", "--status", "interrupted", "--json").json] == ["work"]
    assert shell.inside("status", "--status", "running", "--json").json == []
    going = shell.start("resume", "work")
    latch.wait_reached()
    latch.release()
    assert going.end().code == 0
