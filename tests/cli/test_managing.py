"""Runs that look after others, and instructions for runs under way, at the command line."""

from __future__ import annotations

import signal

from onward.model.ids import called
from tests.cli.shell import Latch, Shell, Started, pipeline

PARENT = """digraph parent {
  graph [stack.child_dotfile="child.dot", stack.child_workdir="place"]
  start [shape=Mdiamond]; exit [shape=Msquare]
  manage [shape=house]
  start -> manage -> exit
}
"""
AGENTS = """digraph agents {
  start [shape=Mdiamond]; exit [shape=Msquare]
  ask [shape=hexagon, label="Go?"]; write [prompt="Write"]
  start -> ask; ask -> write [label="[Y] Yes"]; write -> exit
}
"""


def child_of(shell: Shell, run_id: str) -> str:
    (child,) = [step["child"] for step in shell.read(run_id)["steps"] if "child" in step]
    return str(child)


def working(shell: Shell) -> tuple[Started, Latch]:
    """A parent `boss` whose child stands in the first of its two steps."""
    latch = shell.latch("latch")
    shell.write("child.dot", pipeline(("a", shell.noting(latch.command)), ("b", shell.noting("pwd"))))
    shell.write("parent.dot", PARENT)
    (shell.directory / "place").mkdir()
    running = shell.start("run", "parent.dot", "--run-id", "boss")
    latch.wait_reached()
    return running, latch


def test_a_parent_runs_its_child_and_both_show_the_other(shell: Shell) -> None:
    running, latch = working(shell)
    latch.release()
    done = running.end()
    assert done.code == 0, done.err
    child = child_of(shell, "boss")
    assert "finished  a#1  success" in done.out
    assert f"[{called(child)}]" in done.out
    shown = shell.read(child)
    assert (shown["status"], shown["managed_by"]["run"]) == ("completed", "boss")
    assert shown["context"]["tool.output"].strip() == str(shell.directory / "place")
    assert f"child    {called(child)} of step manage#1" in shell.inside("show", "boss").out
    assert f"manager  {called('boss')} in step manage#1" in shell.inside("show", child).out
    assert shell.inside("verify").code == 0


def test_ctrl_c_pauses_both_and_a_resume_of_the_parent_goes_on_with_the_child(shell: Shell) -> None:
    running, latch = working(shell)
    running.signal(signal.SIGINT)
    running.wait_for("stopping after the current step")
    latch.release()
    done = running.end()
    assert (done.code, shell.ledger) == (75, ["a#1"])
    child = child_of(shell, "boss")
    assert (shell.read("boss")["reason"], shell.read(child)["reason"]) == ("signal", "manager")
    assert shell.inside("resume", "boss").code == 0
    assert shell.ledger == ["a#1", "b#1"]
    assert child_of(shell, "boss") == child


def test_a_killed_process_repeats_only_the_childs_step_that_was_under_way(shell: Shell) -> None:
    running, latch = working(shell)
    child = child_of(shell, "boss")
    running.process.kill()
    running.end()
    again = shell.start("resume", "boss")
    latch.wait_reached()
    latch.release()
    assert again.end().code == 0
    assert shell.ledger == ["a#1", "a#1", "b#1"]
    assert child_of(shell, "boss") == child


def test_steering_waits_for_the_next_agent_step(shell: Shell) -> None:
    shell.write("agents.dot", AGENTS)
    assert shell.inside("run", "agents.dot", "--run-id", "work", "--simulate").code == 75
    told = shell.inside("steer", "work", "Be brief.")
    assert (told.code, "its next agent step receives it" in told.out) == (0, True)
    assert shell.inside("steer", "work", "In French.", "--json").json["steering"] == [
        "Be brief.",
        "In French.",
    ]
    assert "steering Be brief. (no agent step has received it yet)" in shell.inside("show", "work").out
    assert shell.inside("answer", "work", "Y").code == 0
    shown = shell.read("work")
    assert shown["steering"] == []
    assert shown["context"]["last_response"] == "[simulated] write done, told: Be brief. In French."
    refused = shell.inside("steer", "work", "Too late.")
    assert (refused.code, "no agent step left" in refused.err) == (1, True)


def test_whoever_answers_for_the_parent_answers_for_the_child(shell: Shell) -> None:
    shell.write("child.dot", AGENTS)
    shell.write("parent.dot", PARENT)
    assert shell.inside("run", "parent.dot", "--simulate", "--answers", "auto").code == 0


def test_a_child_that_is_missing_is_told_in_a_sentence(shell: Shell) -> None:
    shell.write("parent.dot", PARENT)
    done = shell.inside("run", "parent.dot", "--run-id", "boss")
    assert done.code == 1
    assert "cannot read the pipeline" in done.out
    assert "child.dot: there is no such file" in done.out
