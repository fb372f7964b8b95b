"""Workers on the command line: submitted, driven, drained, killed, recovered."""

from __future__ import annotations

import json
import signal

import pytest

from onward.model.ids import called
from tests.cli.shell import Shell, pipeline


def test_a_submitted_run_is_queued_until_a_worker_drives_it(shell: Shell) -> None:
    shell.write("tool.dot", pipeline(("a", "printf a")))
    done = shell.inside("submit", "tool.dot", "--run-id", "mine", "--priority", "3", "--json")
    assert done.code == 0
    assert (json.loads(done.out)["status"], json.loads(done.out)["on_owner_loss"]) == ("queued", "requeue")
    worked = shell.inside("worker", "--until-idle", "--concurrency", "2")
    assert worked.code == 0
    assert f"run {called('mine')} completed" in worked.out
    assert "1 run executed" in worked.out
    assert shell.read("mine")["status"] == "completed"


def test_wrong_flags_are_refused_in_a_sentence(shell: Shell) -> None:
    for flags, said in (
        (("--concurrency", "0"), "--concurrency: '0' is not a whole number from 1 to 1000."),
        (("--lease", "10"), "--lease: '10' is not a whole number with its unit"),
        (("--lease", "999ms"), "--lease: '999ms' is not a duration of at least 1s."),
        (("--grace", "0s"), "--grace: '0s' is not a duration of at least 0.001s."),
    ):
        done = shell.inside("worker", *flags)
        assert done.code == 2
        assert said in done.err


def test_a_worker_that_is_asked_to_stop_says_so_and_exits_well(shell: Shell) -> None:
    """S2-18, S2-19: SIGTERM takes no new runs and exits 0 when nothing is left."""
    worker = shell.start("worker")
    worker.wait_for("up to 4 runs at once")
    worker.signal(signal.SIGTERM)
    done = worker.end()
    assert done.code == 0
    assert "draining: taking no new runs" in done.out


@pytest.mark.parametrize("flags", [("--grace", "200ms"), ()], ids=["by the flag", "by the settings"])
def test_past_the_grace_time_a_worker_exits_1_and_the_run_can_be_taken_again(
    shell: Shell, flags: tuple[str, ...]
) -> None:
    """S2-18, S2-19."""
    shell.write("onward.toml", f"grace = {'3600' if flags else '0.2'}\n")
    latch = shell.latch("latch")
    shell.write("slow.dot", pipeline(("a", latch.command)))
    assert shell.inside("submit", "slow.dot", "--run-id", "slow").code == 0
    worker = shell.start("worker", *flags)
    latch.wait_reached()
    worker.signal(signal.SIGTERM)
    worker.process.wait(20)  # the default would be 30 s
    done = worker.end()
    assert done.code == 1
    assert "draining: 1 run remains" in done.out
    assert shell.read("slow")["status"] in ("queued", "interrupted", "running")


def test_a_killed_workers_run_is_found_by_recover(shell: Shell) -> None:
    latch = shell.latch("latch")
    shell.write("slow.dot", pipeline(("a", latch.command)))
    assert shell.inside("submit", "slow.dot", "--run-id", "slow", "--on-owner-loss", "interrupt").code == 0
    worker = shell.start("worker")
    latch.wait_reached()
    assert "alive" in shell.inside("workers").out
    worker.signal(signal.SIGKILL)
    worker.end()
    assert "dead" in shell.inside("workers").out
    done = shell.inside("recover")
    assert done.code == 0
    assert "1 run interrupted, 0 requeued, 0 waiting for an answer" in done.out
    found = shell.read("slow")
    assert (found["status"], found["detail"]) == (
        "interrupted",
        "Server restarted while workflow was running",
    )
    assert found["recoverable"]


def test_a_worker_is_not_idle_before_it_has_looked_for_runs_of_the_dead(shell: Shell) -> None:
    latch = shell.latch("latch")
    shell.write("slow.dot", pipeline(("a", f"test -e ready || {latch.command}")))
    assert shell.inside("submit", "slow.dot", "--run-id", "slow").code == 0
    worker = shell.start("worker")
    latch.wait_reached()
    worker.process.kill()
    worker.end()
    shell.write("ready", "")
    done = shell("worker", "--until-idle")
    assert done.code == 0
    assert "worker stopped: 1 run executed" in done.out
    assert shell.read("slow")["status"] == "completed"


@pytest.mark.parametrize("words", [("resume", "--retry"), ("retry",)], ids=" ".join)
def test_a_decision_alone_leaves_the_run_to_a_worker(shell: Shell, words: tuple[str, ...]) -> None:
    """The command says so in one line and executes nothing; the worker executes the step once."""
    shell.write("line.dot", pipeline(("a", shell.noting("test -e ready")), ("b", shell.noting())))
    assert shell.inside("run", "line.dot", "--run-id", "mine").code == 1
    (shell.directory / "ready").touch()
    done = shell.inside(*words, "mine", "--queue")
    name = called("mine")
    assert (done.code, done.out) == (0, f"run {name} is queued; a worker continues it (`onward worker`)\n")
    assert shell.ledger == ["a#1"]
    assert shell.inside("resume", "mine", "--queue", "--json").json["status"] == "queued"
    assert shell.inside("worker", "--until-idle").code == 0
    assert shell.ledger == ["a#1", "a#1", "b#1"]
    assert shell.read("mine")["status"] == "completed"


@pytest.mark.parametrize("flag", ["--abort", "--dry-run", "--wait"])
def test_what_is_left_to_a_worker_is_not_waited_for_or_given_up(shell: Shell, flag: str) -> None:
    shell.write("line.dot", pipeline(("a", "true")))
    done = shell.inside("resume", "mine", "--queue", flag)
    assert done.code == 2
    assert f"--queue and {flag} contradict each other; give one of them." in done.err


def test_a_cancelled_run_says_why_wherever_it_is_shown(shell: Shell) -> None:
    shell.write("line.dot", pipeline(("a", "true")))
    assert shell.inside("submit", "line.dot", "--run-id", "mine").code == 0
    done = shell.inside("cancel", "mine", "--reason", "wrong customer")
    assert (done.code, done.out) == (
        0,
        f"run {called('mine')} cancelled for good (wrong customer)\n",
    )
    for command in ("status", "show"):
        assert "cancelled (user): wrong customer" in shell.inside(command, "mine").out
        assert shell.inside(command, "mine", "--json").json["detail"] == "wrong customer"
    assert "detail=wrong customer" in shell.inside("events", "mine").out
