"""Flows on the command line: one that sleeps, one that failed, and a file that is no graph."""

from __future__ import annotations

import os

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
PARTS = """
from onward import StepFailed, flow, gather, step

@step
async def part(number: int) -> int:
    return number

@step(retries=1)
async def refuse() -> int:
    raise ValueError("no such part")

@flow
async def parts() -> int:
    await gather(part(1), part(2))
    try:
        await refuse()
    except StepFailed:
        pass
    return await part(3)
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


UNFIT = """
from onward import ask, flow, step

@step
async def count() -> int:
    return "seven"

@step
async def asks() -> str:
    return (await ask("Ship it?")).choice

@flow
async def counts() -> int:
    return await count()

@flow
async def asking() -> str:
    return await asks()
"""


@pytest.mark.parametrize(
    ("flow", "told", "line"),
    [
        ("counts", "is not what it declares: Expected `int`, got `str`", "return await count()"),
        ("asking", "ask does not work inside a step", 'return (await ask("Ship it?")).choice'),
    ],
)
def test_a_step_that_onward_refuses_shows_the_line_of_the_flow_and_none_of_onward(
    shell: Shell, flow: str, told: str, line: str
) -> None:
    shell.write("unfit.py", UNFIT)
    failed = shell.inside("run", f"unfit.py:{flow}")
    assert failed.code == 1
    assert told in failed.out
    assert line in failed.out
    assert "/onward/" not in failed.out


@pytest.mark.parametrize("command", ["run", "submit", "validate"])
def test_a_file_of_python_without_a_flow_asks_which_flow_is_meant(shell: Shell, command: str) -> None:
    shell.write("nap.py", SLEEPER)
    refused = shell.inside(command, "nap.py")
    assert refused.code == 2
    assert "to run one of its flows, write nap.py:FLOW" in refused.err
    assert "digraph" not in refused.err


def test_the_steps_of_a_flow_are_told_as_they_end(shell: Shell) -> None:
    shell.write("parts.py", PARTS)
    told = shell.inside("run", "parts.py:parts", "--run-id", "one").out
    for begun in ("  finished  gather.0/part  ", "  finished  gather.1/part  ", "  finished  part  "):
        assert told.count(begun) == 1, told
    assert told.count("  failed    refuse  try 1: ValueError: no such part\n") == 1, told
    assert told.count("  failed    refuse  try 2: ValueError: no such part\n") == 1, told


def test_what_a_flow_returned_is_printed_when_it_has_completed(shell: Shell) -> None:
    shell.write("parts.py", PARTS)
    done = shell.inside("run", "parts.py:parts", "--run-id", "one")
    assert done.out.endswith("\nits result: 3\n")
    assert "its result" not in shell.inside("resume", "one").out


def test_a_resumed_flow_tells_no_step_that_had_finished(shell: Shell) -> None:
    shell.write("nap.py", SLEEPER.replace("return await look()", "raise ValueError"))
    begun, again = shell.inside("run", "nap.py:nap", "--run-id", "one"), shell.inside("resume", "one")
    assert "  finished  look  " in begun.out
    assert "  finished  look  " not in again.out


def test_what_continues_a_flow_names_its_file_only_where_it_is_not_found_again(shell: Shell) -> None:
    """The hint is copied into another directory, where the file of `--app FILE` would not be found."""
    shell.write("broken.py", BROKEN)
    failed = shell("run", "broken.py:broken", "--run-id", "one")
    assert "continue with: onward resume one\n" in failed.out
    assert "its output: onward logs one 'flow#1'\n" in failed.out
    again = shell("run", "broken.py:broken", "--run-id", "two")
    assert "to continue that one instead: onward resume one\n" in again.err
    shell.write("own.py", BROKEN + "from onward import Onward\napp = Onward('own.db')\n")
    del shell.environment["ONWARD_DB"]
    assert (
        "onward resume three --app own.py\n" in shell.inside("run", "own.py:broken", "--run-id", "three").out
    )


VERSIONED = """
from onward import ask, flow

@flow(version="{version}")
async def asks() -> str:
    return (await ask("Ship it?")).choice
"""


def test_a_flow_that_is_not_served_says_to_name_its_file(shell: Shell) -> None:
    shell.write("asks.py", VERSIONED.format(version="1"))
    assert shell("submit", "asks.py:asks", "--run-id", "one").code == 0
    refused = shell("resume", "one")
    assert refused.code == 2
    assert "this process has no flow 'asks@1'; import the file that defines it" in refused.err
    assert "--app FILE.py" in refused.err
    assert shell("worker", "--app", "asks.py", "--until-idle").code == 0
    assert "continue onward answer one --app FILE.py" in shell("show", "one").out
    shell.write("asks.py", VERSIONED.format(version="2"))
    refused = shell("answer", "one", "yes", "--app", "asks.py")
    assert refused.code == 2
    assert "this process has no flow 'asks@1', only 'asks@2'; import the file" in refused.err


def test_a_file_that_cannot_be_imported_says_why_in_one_sentence(shell: Shell) -> None:
    shell.write("plain.py", "from onward import flow\n@flow\ndef build() -> None: ...\n")
    for words in (("run", "plain.py:build"), ("worker", "--app", "plain.py", "--until-idle")):
        refused = shell(*words)
        assert refused.code == 2
        assert refused.err.endswith("put blocking code into a step, which may be a plain function.\n")


ASKING = """
from onward import ask, flow, step

@step
async def look() -> str:
    return "seen"

@flow
async def asking() -> str:
    await look()
    return (await ask("Good?")).choice
"""


def test_a_flow_that_waited_for_an_answer_was_never_cut_off_and_tells_its_result(shell: Shell) -> None:
    shell.write("asking.py", ASKING)

    def rows() -> dict[str, dict[str, str]]:
        return {row["key"]: row for row in shell.inside("show", "one", "--json").json["timeline"]}

    shell.inside("run", "asking.py:asking", "--run-id", "one")
    waiting = rows()
    assert waiting["flow#1"]["state"] == "waiting"
    assert waiting["flow#1/1.1"]["state"] == "finished", "it has worked until it asked"
    look = waiting["flow#1:look.1"]
    assert look["began_at"] is not None, "its bar is drawn from here"
    assert look["began_at"] <= look["ended_at"]
    told = shell.inside("answer", "one", "yes").out
    assert "\nits result: yes\n" in told, told
    assert {row["state"] for row in rows().values()} == {"finished"}


def test_a_run_whose_id_begins_that_of_another_is_continued_with_its_own_flow(shell: Shell) -> None:
    """As a fork is often named: `replay order-17 --run-id order-17-again`."""
    shell.write("broken.py", BROKEN)
    shell.inside("run", "broken.py:broken", "--run-id", "order-17")
    shell.inside("replay", "order-17", "--from", "check", "--run-id", "order-17-again")
    shell.write("broken.py", BROKEN.replace("1 // number", "number"))
    done = shell.inside("resume", "order-17")
    assert done.code == 0, done.err


FORKING = """
import asyncio, os

from onward import flow, step


def fork(how: str) -> None:
    copy = os.fork()
    if copy:
        assert os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1]) == 1
    elif how == "raises":
        raise ValueError("in the copy")
    elif how == "exits":
        raise SystemExit(0)


@step
async def work(how: str) -> str:
    fork(how)
    await asyncio.sleep(0)
    with open("ledger", "a") as file:
        file.write("done\\n")
    return how


@flow
async def forking(how: str) -> list[str]:
    return [await work(how) for _ in range(5)]
"""


@pytest.mark.parametrize("how", ["returns", "raises", "exits"])
def test_a_copy_of_the_process_that_a_step_forks_takes_no_part_in_the_run(any_shell: Shell, how: str) -> None:
    """It has the same selector and the same connections: what it did with them left the run waiting."""
    any_shell.write("forking.py", FORKING)
    done = any_shell("run", "forking.py:forking", "--set", f"how={how}")
    assert done.code == 0, done.err
    assert done.err.count("the copy ends here") == 5
    assert (any_shell.directory / "ledger").read_text() == "done\n" * 5


def test_an_edit_of_a_flow_counts_although_its_file_has_the_same_size_and_time(shell: Shell) -> None:
    """Python's cache of compiled files compares only these, and an agent edits in less than a second."""
    path = shell.directory / "broken.py"
    shell.write("broken.py", BROKEN)
    before = path.stat()
    assert shell("run", "broken.py:broken", "--run-id", "one").code == 1
    shell.write("broken.py", BROKEN.replace("check(0)", "check(1)"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    done = shell("run", "broken.py:broken", "--run-id", "two")
    assert done.code == 0, done.err
