"""`onward show RUN STEP`: everything about one step, on one page."""

from __future__ import annotations

import re

import pytest

from tests.cli.shell import GATE, Shell, pipeline

AGENT = """digraph agent { start [shape=Mdiamond]; exit [shape=Msquare]
  plan [prompt="Plan the work."]; start -> plan -> exit }"""
REPORTING = "echo body > $ONWARD_STEP_DIR/artifacts/report; echo said; echo odd >&2"


def lines_below(page: str, heading: str) -> list[str]:
    """The lines of one part of a page."""
    _, _, rest = page.partition(f"\n{heading}")
    return [line.strip() for line in rest.partition("\n\n")[0].splitlines()[1:]]


def test_a_tool_shows_its_command_attempts_output_changes_and_artifacts(any_shell: Shell) -> None:
    shell = any_shell
    shell.write("line.dot", pipeline(("a", f"mkdir $ONWARD_STEP_DIR/artifacts; {REPORTING}")))
    shell.inside("run", "line.dot", "--run-id", "run")
    page = shell.inside("show", "run", "a").out
    assert re.match(r"step a#1 of run run \(line\)\n  status   success\n  handler  tool: mkdir ", page)
    assert re.search(
        r"\n  next     exit \(\w+\)\n  files    \S+/run/a/1\n  receipt  \S+/a-tool\.json\n", page
    )
    assert re.search(r"\nATTEMPT  STARTED +TOOK +OUTCOME\n1        \S+ \S+ +[\d.]+ m?s +success\n", page)
    assert lines_below(page, "OUTPUT of attempt 1") == ["said", "odd"]
    assert lines_below(page, "CONTEXT, what it changed (1 other") == ['tool.output: (not set) → "said"']
    assert lines_below(page, "ARTIFACTS") == ["report: report, 5 bytes"]


def test_an_agent_shows_its_prompt_and_its_response(shell: Shell) -> None:
    shell.write("agent.dot", AGENT)
    shell.inside("run", "agent.dot", "--simulate", "--run-id", "run")
    page = shell.inside("show", "run", "plan#1").out
    assert lines_below(page, "PROMPT") == ["Plan the work."]
    assert lines_below(page, "RESPONSE") == ["[simulated] plan done"]


def test_a_gate_shows_its_question_and_who_answered(shell: Shell) -> None:
    shell.write("gate.dot", GATE)
    shell.inside("run", "gate.dot", "--run-id", "run")
    shell.inside("answer", "run", "Y")
    page = shell.inside("show", "run", "ask").out
    assert "\n  answer   [Y] Yes (by user)\n" in page
    assert lines_below(page, "QUESTION") == ["Ship it?"]


def test_json_has_every_try_with_its_output_and_the_context_on_both_sides(shell: Shell) -> None:
    command = "echo attempt $ONWARD_ATTEMPT; test $ONWARD_ATTEMPT = 2"
    shell.write("line.dot", pipeline(("a", command), more="  a [max_retries=1]\n"))
    shell.inside("run", "line.dot", "--run-id", "run", "--set", "city=Bonn")
    page = shell.inside("show", "run", "a", "--json").json
    assert (page["step"], page["status"], page["attempts"]) == ("a#1", "success", 2)
    assert [(one["attempt"], one["outcome"]) for one in page["tries"]] == [(1, "fail"), (2, "success")]
    assert [one["output"]["lines"][0]["text"] for one in page["tries"]] == ["attempt 1", "attempt 2"]
    assert [one["directory"].partition("/run/")[2] for one in page["tries"]] == ["a/1", "a/1/attempt-2"]
    assert (page["context_before"]["city"], page["context_after"]["city"]) == ("Bonn", "Bonn")
    assert page["changed"] == ["tool.output"]


def looping(until: int) -> str:
    """A pipeline whose step fails until this visit."""
    edges = 'a -> a [condition="outcome=fail"]; a -> exit [condition="outcome=success"]'
    ends = "start [shape=Mdiamond]; exit [shape=Msquare]; start -> a"
    node = f'a [shape=parallelogram, tool_command="test $ONWARD_STEP = a#{until}"]'
    return f"digraph g {{ {ends}; {node}; {edges} }}"


def test_a_node_stands_for_its_last_visit(shell: Shell) -> None:
    shell.write("loop.dot", looping(until=2))
    shell.inside("run", "loop.dot", "--run-id", "run")
    assert "step a#2 of run" in shell.inside("show", "run", "a").out
    first = shell.inside("show", "run", "a#1").out
    assert "step a#1 of run" in first
    assert "\n  visits   also a#2\n" in first


def test_of_many_visits_the_first_and_the_last_are_shown(shell: Shell) -> None:
    shell.write("loop.dot", looping(until=13))
    shell.inside("run", "loop.dot", "--run-id", "run")
    shown = "a#1, a#2, a#3, a#4, a#5, … (2 more), a#8, a#9, a#10, a#11, a#12"
    assert f"\n  visits   also {shown}\n" in shell.inside("show", "run", "a").out


def test_a_failed_handler_shows_its_traceback(shell: Shell) -> None:
    handler = "@app.handler('x')\ndef x(step):\n    step.log('hm')\n    1 / 0\n"
    app = f"from onward import Onward\napp = Onward()\n{handler}"
    shell.write("some_app.py", app)
    shell.write(
        "g.dot", "digraph g { start [shape=Mdiamond]; exit [shape=Msquare]; a [type=x]; start -> a -> exit }"
    )
    shell.inside("run", "g.dot", "--app", "some_app:app", "--run-id", "run")
    page = shell.inside("show", "run", "a").out
    assert lines_below(page, "TRACEBACK")[-1] == "ZeroDivisionError: division by zero"
    assert lines_below(page, "LOG") == ["hm"]


@pytest.mark.parametrize("json", [(), ("--json",)])
def test_a_step_that_is_not_there_is_refused_with_those_that_are(shell: Shell, json: tuple[str, ...]) -> None:
    shell.write("line.dot", pipeline(("a", "true")))
    shell.inside("run", "line.dot", "--run-id", "run")
    done = shell.inside("show", "run", "b", *json)
    assert (done.code, done.err) == (
        1,
        "onward: this run has not started a step 'b'; it has start#1, a#1, exit#1.\n",
    )
    assert not json or done.error["code"] == "step_not_found"
