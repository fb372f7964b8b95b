"""Pausing and cancelling from another process."""

from __future__ import annotations

import signal

import pytest

from tests.cli.shell import GATE, Latch, Shell, Started, pipeline


def working(shell: Shell) -> tuple[Started, Latch]:
    """A run `work` in the middle of its first step."""
    latch = shell.latch("latch")
    shell.write("work.dot", pipeline(("a", shell.noting(latch.command)), ("b", shell.noting())))
    running = shell.start("run", "work.dot", "--run-id", "work")
    latch.wait_reached()
    return running, latch


def test_pause_waits_until_the_step_has_finished(shell: Shell) -> None:
    running, latch = working(shell)
    pausing = shell.start("pause", "work")
    pausing.wait_for("has the request; waiting for the process that holds it")
    latch.release()
    done = pausing.end()
    assert done.code == 0
    assert "paused (operator): asked by user" in done.out
    assert "continue with: onward resume" in done.out
    stopped = running.end()
    assert stopped.code == 75
    assert shell.read("work")["completed"] == ["start#1", "a#1"]


@pytest.mark.parametrize("after", ["now", "call"])
def test_a_pause_now_ends_the_step(shell: Shell, after: str) -> None:
    running, latch = working(shell)
    pausing = shell.start("pause", "work", "--after", after)
    if after == "call":
        pausing.wait_for("waiting for the process that holds it")
        latch.release()
    assert pausing.end().code == 0
    assert running.end().code == 75
    assert shell.read("work")["completed"] == (["start#1"] if after == "now" else ["start#1", "a#1"])


def test_a_pause_that_nobody_waits_for_is_only_asked(shell: Shell) -> None:
    running, latch = working(shell)
    asked = shell.inside("pause", "work", "--no-wait")
    assert asked.code == 0
    assert "has the request and is still running" in asked.out
    late = shell.inside("pause", "work", "--timeout", "0.01")
    assert late.code == 75
    latch.release()
    assert running.end().code == 75
    assert [event["kind"] for event in shell.log("work")].count("PauseRequested") == 1


def test_cancel_ends_the_step_and_the_run_for_good(shell: Shell) -> None:
    running, _ = working(shell)
    done = shell.inside("cancel", "work")
    assert done.code == 0
    assert "cancelled for good" in done.out
    assert running.end().code == 1
    assert shell.read("work")["status"] == "cancelled"
    assert shell.inside("cancel", "work").code == 0  # it is so already
    assert shell.inside("resume", "work").code == 1


def test_a_run_that_nobody_works_on_is_paused_and_cancelled_at_once(shell: Shell) -> None:
    shell.write("gate.dot", GATE)
    assert shell.inside("run", "gate.dot", "--run-id", "gate").code == 75
    assert shell.inside("pause", "gate").code == 0
    assert shell.read("gate")["status"] == "paused"
    assert shell.inside("resume", "gate").code == 75
    assert shell.inside("cancel", "gate", "--json").json["status"] == "cancelled"


def test_a_holder_that_died_does_not_keep_a_pause_waiting(shell: Shell) -> None:
    running, _ = working(shell)
    running.signal(signal.SIGSTOP)
    pausing = shell.start("pause", "work")
    pausing.wait_for("waiting for the process that holds it")
    running.process.kill()
    assert pausing.end().code == 0
    assert shell.read("work")["status"] == "paused"
    running.end()


def test_ctrl_c_ends_the_wait_and_not_the_request(shell: Shell) -> None:
    running, latch = working(shell)
    pausing = shell.start("pause", "work")
    pausing.wait_for("waiting for the process that holds it")
    pausing.signal(signal.SIGINT)
    assert pausing.end().code == 75
    latch.release()
    assert running.end().code == 75
    assert shell.read("work")["reason"] == "operator"
