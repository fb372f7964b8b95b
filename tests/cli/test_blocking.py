"""A blocking handler is named by the command that executes it."""

from __future__ import annotations

import json

import pytest

from tests.cli.shell import Shell

APP = """
import threading

from onward import Onward

app = Onward("onward.db")


@app.handler("slow")
async def slow(step):
    threading.Event().wait({blocks_s})
"""
SLOW = "digraph s { start [shape=Mdiamond]; a [type=slow]; exit [shape=Msquare]; start -> a -> exit }"


@pytest.fixture
def slow(shell: Shell) -> Shell:
    shell.write("s.dot", SLOW)
    return shell


def test_a_worker_logs_which_handler_blocks_and_where(slow: Shell) -> None:
    slow.write("shop.py", APP.format(blocks_s=1))
    slow.write("onward.toml", "blocked = 0.1\n")
    assert slow.inside("submit", "s.dot", "--run-id", "stuck", "--app", "shop:app").code == 0
    done = slow.start("worker", "--until-idle", "--app", "shop:app", "--log-format", "json").end()
    found = [json.loads(text) for text in done.err.splitlines() if "has blocked" in text]
    assert [(one["run"], one["step"], one["handler"]) for one in found] == [("stuck", "a#1", "slow")]
    assert "threading.Event().wait(1)" in found[0]["stack"]


def test_zero_turns_it_off(slow: Shell) -> None:
    """The default is a second, and this blocks for longer."""
    slow.write("shop.py", APP.format(blocks_s=2))
    slow.write("onward.toml", "blocked = 0\n")
    done = slow.start("run", "s.dot", "--app", "shop:app").end()
    assert (done.code, done.err) == (0, "")


def test_a_time_that_is_none_is_refused(slow: Shell) -> None:
    slow.write("onward.toml", 'blocked = "soon"\n')
    done = slow.inside("status")
    assert (done.code, "blocked is 'soon'; write a number of seconds" in done.err) == (2, True)
