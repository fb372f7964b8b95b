"""Whoever sees that a step failed sees why: the last lines are where the failure is."""

from __future__ import annotations

import json

from tests.cli.shell import Shell, pipeline

ASSERTING = "seq 20; echo 'E  assert 1 == 2'; exit 1"
BROKEN_APP = """
from onward import Onward

app = Onward()


@app.handler("broken")
async def broken(step):
    raise KeyError("customer")
"""


def test_a_failed_tool_shows_its_last_lines_in_run_resume_and_show(shell: Shell) -> None:
    shell.write("line.dot", pipeline(("test", ASSERTING)))
    wanted = [f"    | {number}" for number in range(12, 21)] + ["    | E  assert 1 == 2"]
    started = shell.inside("run", "line.dot", "--run-id", "run")
    for done in (started, shell.inside("resume", "run")):
        lines = done.out.splitlines()
        at = next(number for number, text in enumerate(lines) if text.startswith("  failed    test#1"))
        assert lines[at + 1 : at + 11] == wanted
        assert any(text.startswith("its output: onward logs ") for text in lines[at:])
    page = shell.inside("show", "run").out
    assert "\n".join(wanted) in page
    assert "attempt 2, the last lines (onward logs " in page


def test_lines_that_the_reason_says_already_are_not_repeated(shell: Shell) -> None:
    shell.write("line.dot", pipeline(("test", "echo no luck >&2; exit 3")))
    assert "    |" not in shell.inside("run", "line.dot").out


def test_a_failed_branch_shows_its_last_lines(shell: Shell) -> None:
    nodes = "\n".join(
        f'  {node} [shape=parallelogram, tool_command="{command}"]'
        for node, command in (("a", "true"), ("b", f"seq 300; echo {'x' * 99}; exit 1"))
    )
    shell.write(
        "fan.dot",
        f"digraph fan {{ start [shape=Mdiamond]; exit [shape=Msquare]\n{nodes}\n"
        "  fan [shape=component]; join [shape=tripleoctagon]\n"
        "  start -> fan; fan -> a -> join; fan -> b -> join; join -> exit }",
    )
    assert f"\n    | {'x' * 99}\n" in shell.inside("run", "fan.dot").out


def test_a_handler_that_raised_shows_its_traceback(shell: Shell) -> None:
    shell.write("broken_app.py", BROKEN_APP)
    shell.write(
        "g.dot",
        "digraph g { start [shape=Mdiamond]; exit [shape=Msquare]; a [type=broken]; start -> a -> exit }",
    )
    out = shell.inside("run", "g.dot", "--app", "broken_app:app", "--run-id", "run").out
    assert '    |   File "' in out
    assert 'broken_app.py", line 9, in broken\n    |     raise KeyError("customer")\n' in out
    assert "    | KeyError: 'customer'\n" in out
    (only,) = shell.read("run")["steps"][1]["tries"]
    assert only["output"]["error"] == "KeyError"


def test_the_log_of_a_worker_has_the_last_lines_and_the_exception(shell: Shell) -> None:
    shell.write("broken_app.py", BROKEN_APP)
    nodes = f'test [shape=parallelogram, tool_command="{ASSERTING}"]; a [type=broken]'
    edges = 'start -> test; test -> a [condition="outcome=fail"]; a -> exit'
    shell.write("g.dot", f"digraph g {{ start [shape=Mdiamond]; exit [shape=Msquare]; {nodes}; {edges} }}")
    app = ("--app", "broken_app:app")
    assert shell.inside("submit", "g.dot", *app).code == 0
    done = shell("worker", "--until-idle", "--log-format", "json", *app)
    lines = [json.loads(line) for line in done.err.splitlines()]
    (tool,) = [line for line in lines if line.get("step") == "test#1" and "reason" in line]
    assert tool["output"][-2:] == ["20", "E  assert 1 == 2"]
    assert len(tool["output"]) == 10
    (raised,) = [line for line in lines if "exception" in line]
    assert (raised["step"], raised["exception"]["type"]) == ("a#1", "KeyError")
    assert raised["exception"]["message"] == "'customer'"
    assert raised["exception"]["trace"].startswith("Traceback (most recent call last):")
