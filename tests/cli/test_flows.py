"""Flows on the command line: one that sleeps, one that failed, and a file that is no graph."""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell

SLEEPER = """
from onward import flow, sleep, step

@step
async def look() -> str:
    return "seen"

@flow
async def nap() -> str:
    await look()
    await sleep("1h")
    return await look()
"""
BROKEN = """
from onward import flow, step

@step
async def check(number: int) -> int:
    return 1 // number

@flow
async def broken() -> int:
    return await check(0)
"""


def test_a_flow_that_sleeps_says_until_when_and_asks_for_no_answer(shell: Shell) -> None:
    shell.write("nap.py", SLEEPER)
    begun = shell.inside("run", "nap.py:nap", "--run-id", "one")
    for done in (begun, shell.inside("resume", "one")):
        assert done.code == 75, done.err
        assert "run one waits until " in done.out
        assert "continue with: onward resume one" in done.out
        assert "answer" not in done.out
    for words in (("show", "one"), ("status", "one")):
        told = shell.inside(*words).out
        assert "  status   waiting until " in told
        assert "  continue onward resume one" in told
    again = shell.inside("run", "nap.py:nap", "--run-id", "two")
    assert "to continue that one instead: onward resume one" in again.err


def test_a_failed_step_of_a_flow_shows_the_line_that_raised_and_none_of_onward(shell: Shell) -> None:
    shell.write("broken.py", BROKEN)
    failed = shell.inside("run", "broken.py:broken", "--run-id", "one")
    assert failed.code == 1
    for told in (failed.out, shell.inside("show", "one").out, shell.inside("logs", "one").out):
        assert "return 1 // number" in told
        assert "return await check(0)" in told
        assert "/onward/flows/" not in told
        assert "/onward/engine/" not in told


@pytest.mark.parametrize("command", ["run", "submit", "validate"])
def test_a_file_of_python_without_a_flow_asks_which_flow_is_meant(shell: Shell, command: str) -> None:
    shell.write("nap.py", SLEEPER)
    refused = shell.inside(command, "nap.py")
    assert refused.code == 2
    assert "to run a flow of it, name it: nap.py:FLOW" in refused.err
    assert "digraph" not in refused.err
