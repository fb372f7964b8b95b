"""What ends a run in the middle: it continues, nothing that was finished is done or asked for again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onward.testing.postgres import PostgresServer
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.cli.agents import with_model
from tests.cli.shell import Done, Latch, Shell, pipeline

THINK = '  think [prompt="Think"]\n'


@contextmanager
def at_work(shell: Shell, latch: Latch, model: ModelScript) -> Iterator[Any]:
    """A run whose step `a` has finished, whose agent has answered, and whose step `b` waits."""
    wait = shell.noting(f"test -e once || {{ touch once; {latch.command}; }}")
    source = pipeline(("a", shell.noting()), ("b", wait), ("c", shell.noting()), more=THINK)
    shell.write("work.dot", source.replace("a -> b", "a -> think -> b"))
    with with_model(shell, model):
        running = shell.start("run", "work.dot", "--run-id", "work")
        latch.wait_reached()
        yield running


def continued(shell: Shell, *, repeated: int) -> Done:
    """Resume: what was finished stays so, and the model is asked nothing more."""
    done = shell("resume", "work")
    assert done.code == 0, done.out + done.err
    assert shell.ledger == ["a#1", *["b#1"] * (1 + repeated), "c#1"]
    assert [one["try"] for one in shell.inside("calls", "work", "--json").json if one["call"] == "m1"] == [1]
    assert shell.inside("verify", "work").code == 0
    return done


THOUGHT = ModelScript(default=ScriptedReply(text="Thought."))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_crash_and_a_person_who_interrupts_cost_the_open_step_at_most(
    any_shell: Shell, number: signal.Signals
) -> None:
    """S1-1: of a process that died, or whose person pressed Ctrl-C."""
    latch = any_shell.latch("latch")
    with at_work(any_shell, latch, THOUGHT) as running:
        running.signal(number)
        if number is signal.SIGINT:
            running.wait_for("stopping after the current step")  # two signals at the same moment are one
            running.signal(number)
        running.end()
        continued(any_shell, repeated=1)


@pytest.mark.slow
@pytest.mark.postgres
def test_a_machine_that_fails_costs_the_open_step_at_most(tmp_path: Path) -> None:
    """S1-1: the database is gone for longer than anything waits for it."""
    with PostgresServer(fsync=True) as server:
        shell = Shell(tmp_path, server.create_database())
        latch = shell.latch("latch")
        try:
            with at_work(shell, latch, THOUGHT) as running:
                os.kill(server.pid, signal.SIGQUIT)
                server.wait()
                latch.release()
                assert running.end().code == 1
                server.restart()
                continued(shell, repeated=1)
        finally:
            shell.close()


def test_a_service_that_times_out_is_asked_again_and_costs_nothing(shell: Shell) -> None:
    """S1-1: the endpoint says so, or breaks off in the middle of an answer."""
    late = (
        ScriptedReply(status=504),
        ScriptedReply(text="Thought.", break_after=1),
        ScriptedReply(status=408),
    )
    rules = tuple(ScriptRule(nth=nth, reply=reply) for nth, reply in enumerate(late, start=1))
    source = pipeline(("a", shell.noting()), ("b", shell.noting()), more=THINK)
    shell.write("work.dot", source.replace("a -> b", "a -> think -> b"))
    with with_model(shell, ModelScript(rules=rules, default=ScriptedReply(text="Thought."))):
        done = shell.inside("run", "work.dot", "--run-id", "work")
    assert done.code == 0, done.out + done.err
    assert shell.ledger == ["a#1", "b#1"]
    states = [one["state"] for one in shell.inside("calls", "work", "--json").json if one["call"] == "m1"]
    assert states == ["error", "error", "error", "ok"]


STATE = r"""
printf '{"outcome": "success", "context_updates": {"total": 7}}' > "$ONWARD_STEP_DIR/status.json"
printf 'seven' > answer.txt; printf 'counting\n'
"""


def test_a_step_that_is_executed_twice_leaves_what_one_execution_leaves(any_shell: Shell) -> None:
    """S1-12, S1-14: what it says replaces what it said before, in the context, its files and its receipt."""
    latch = any_shell.latch("latch")
    any_shell.write("state.sh", STATE)
    once = f"sh state.sh; test -e once || {{ touch once; {latch.command}; }}"
    any_shell.write("work.dot", pipeline(("count", once)))
    running = any_shell.start("run", "work.dot", "--run-id", "cut")
    latch.wait_reached()
    running.signal(signal.SIGKILL)
    running.end()
    assert any_shell("resume", "cut").code == 0
    assert any_shell("run", "work.dot", "--run-id", "whole").code == 0
    cut, whole = left_by(any_shell, "cut"), left_by(any_shell, "whole")
    assert cut == whole
    assert cut["context"]["total"] == 7
    assert len(cut["receipts"]) == 3
    assert (any_shell.directory / "answer.txt").read_text() == "seven"


def left_by(shell: Shell, run_id: str) -> dict[str, Any]:
    """What a run left, without what differs between any two runs."""
    shown = shell.read(run_id)
    receipts = shell.inside("receipts", run_id, "--json").json["receipts"]
    return {
        "context": shown["context"],
        "completed": shown["completed"],
        "receipts": [
            [one[key] for key in ("file", "step_id", "status", "error", "routing")] for one in receipts
        ],
    }
