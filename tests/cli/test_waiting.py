"""Queued runs that no live worker can serve are said so by every command that shows them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from onward.model.ids import called
from tests.cli.shell import GATE, Shell, pipeline, wait_until

NO_WORKER = "no worker is running; start one with `onward worker`"
NO_HANDLER = "no live worker has the handler 'greet': start one with --app"
APP = """
from onward import Onward

app = Onward()

@app.handler("greet")
def greet(step):
    return "hello"
"""
GREETING = """digraph greeting {
  start [shape=Mdiamond]; exit [shape=Msquare]; a [type=greet]
  start -> a -> exit
}"""


def submit(shell: Shell, *flags: str) -> None:
    shell.write("tool.dot", pipeline(("a", "printf a")))
    assert shell.inside("submit", "tool.dot", "--run-id", "mine", *flags).code == 0


def test_without_a_worker_submit_status_show_and_stats_say_so(shell: Shell) -> None:
    shell.write("tool.dot", pipeline(("a", "printf a")))
    done = shell.inside("submit", "tool.dot", "--run-id", "mine")
    assert (done.code, NO_WORKER in done.err) == (0, True)
    assert f"1 queued run waiting: {NO_WORKER}" in shell.inside("status").out
    assert f"  waiting  {NO_WORKER}" in shell.inside("status", "mine").out
    assert f"  waiting  {NO_WORKER}" in shell.inside("show", "mine").out
    assert f"waiting   1 due run: {NO_WORKER}" in shell.inside("stats").out
    assert "no worker is running" in shell.inside("workers").out


def test_the_same_facts_are_typed_fields_in_json(shell: Shell) -> None:
    submit(shell)
    wanted = {"workers": 0, "handlers": [], "directory": None, "says": NO_WORKER}
    assert shell.inside("status", "mine", "--json").json["waiting_for"] == wanted
    assert shell.inside("show", "mine", "--json").json["waiting_for"] == wanted
    assert shell.inside("stats", "--json").json["queue"]["unserved"] == [{"runs": 1, **wanted}]
    assert shell.inside("worker", "--until-idle").code == 0
    assert shell.inside("show", "mine", "--json").json["waiting_for"] is None


def test_a_decision_that_is_left_to_a_worker_says_that_there_is_none(shell: Shell) -> None:
    shell.write("tool.dot", pipeline(("a", "false")))
    assert shell.inside("run", "tool.dot", "--run-id", "mine").code == 1
    assert NO_WORKER in shell.inside("retry", "mine", "--queue").err


def test_an_answer_that_is_left_to_a_worker_says_that_there_is_none(shell: Shell) -> None:
    shell.write("gate.dot", GATE)
    assert shell.inside("run", "gate.dot", "--run-id", "mine", "--answers", "wait").code == 75
    assert NO_WORKER in shell.inside("answer", "mine", "Y", "--no-run").err


def test_a_watched_run_is_said_to_wait(shell: Shell) -> None:
    submit(shell)
    watching = shell.start("status", "mine", "--watch")
    watching.wait_for(f"queued  0 steps  next start  waiting: {NO_WORKER}")
    assert shell.inside("worker", "--until-idle").code == 0
    assert watching.end().code == 0


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_an_idle_worker_is_listed_while_it_lives(shell: Shell, ending: signal.Signals) -> None:
    worker = shell.start("worker", "--concurrency", "2")
    worker.wait_for("up to 2 runs at once")
    wait_until(lambda: "idle" in shell.inside("workers").out, "the worker in the list")
    (found,) = shell.inside("workers", "--json").json
    assert (found["is_alive"], found["runs"], found["concurrency"]) == (True, [], 2)
    assert "tool" in found["handlers"]
    worker.signal(ending)
    worker.end()
    assert [one["is_alive"] for one in shell.inside("workers", "--json").json] in ([], [False])
    submit(shell)
    assert shell.inside("status", "mine", "--json").json["waiting_for"]["workers"] == 0


def test_a_missing_handler_is_named_by_commands_and_by_the_worker(shell: Shell) -> None:
    shell.write("greeting.py", APP)
    shell.write("greeting.dot", GREETING)
    worker = shell.start("worker")
    worker.wait_for("up to 4 runs at once")
    wait_until(lambda: "idle" in shell.inside("workers").out, "the worker in the list")
    done = shell.inside("submit", "greeting.dot", "--run-id", "mine", "--app", "greeting:app")
    assert (done.code, NO_HANDLER in done.err) == (0, True)
    assert NO_HANDLER in shell.inside("status").out
    assert NO_HANDLER in shell.inside("show", "mine").out
    assert f"waiting   1 due run: {NO_HANDLER}" in shell.inside("stats").out
    worker.wait_for(f"run {called('mine')} stays in the queue: {NO_HANDLER}")
    worker.signal(signal.SIGTERM)
    assert worker.end().code == 0
    assert shell("worker", "--until-idle", "--app", "greeting:app").code == 0
    assert shell.read("mine")["status"] == "completed"


def test_a_missing_directory_is_named(shell: Shell, tmp_path: Path) -> None:
    place = tmp_path / "nowhere"
    submit(shell, "--cwd", str(place))
    says = f"no live worker has the directory {place}"
    worker = shell.start("worker")
    worker.wait_for(f"run {called('mine')} stays in the queue: {says}")
    assert says in shell.inside("status", "mine").out
    found = shell.inside("show", "mine", "--json").json["waiting_for"]
    assert (found["workers"], found["directory"], found["handlers"]) == (1, str(place), [])
    worker.signal(signal.SIGTERM)
    worker.end()
