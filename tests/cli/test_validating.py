"""What `validate` says is what `run` does."""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell

TYPED = "digraph g {\n  start; exit\n  a [type=%s]\n  start -> a -> exit\n}"
MINE = """
from onward import Onward

app = Onward()

@app.handler("mine")
async def mine(step):
    return {}
"""


def test_a_handler_that_will_be_missing_is_an_error_as_it_is_for_a_run(shell: Shell) -> None:
    shell.write("mine.py", MINE)
    shell.write("typed.dot", TYPED % "mine")
    checked, run = shell.inside("validate", "typed.dot"), shell.inside("run", "typed.dot")
    assert (checked.code, run.code) == (2, 2)
    assert checked.out.startswith(
        "typed.dot:3:11: error [type_known] node 'a' needs handler 'mine', which is not"
    )
    assert checked.out.rstrip().endswith("; name its app with --app)")
    assert checked.err == "typed.dot cannot run: 1 error, 0 warnings\n"
    assert run.err.count("needs handler 'mine'") == 1
    for command in ("validate", "run"):
        assert shell.inside(command, "typed.dot", "--app", "mine:app").code == 0


def test_a_handler_that_workers_have_may_be_missing_here(shell: Shell) -> None:
    shell.write("typed.dot", TYPED % "mine")
    checked = shell.inside("validate", "typed.dot", "--for-workers")
    assert (checked.code, checked.out.splitlines()[-1]) == (0, "typed.dot is valid: 3 nodes, 1 warning")
    assert shell.inside("submit", "typed.dot").code == 0


@pytest.mark.parametrize(
    ("kind", "meant"), [("wait.humn", "wait.human"), ("Tool", "tool"), ("parallel_fan_in", "parallel.fan_in")]
)
def test_a_misspelt_type_comes_with_the_right_one(shell: Shell, kind: str, meant: str) -> None:
    shell.write("typed.dot", TYPED % kind)
    checked = shell.inside("validate", "typed.dot", "--json")
    assert checked.code == 2
    (fix,) = (found["fix"] for found in checked.json if found["rule"] == "type_known")
    assert fix == f"did you mean {meant}?"


def test_an_agent_step_without_a_provider_is_mentioned_before_a_run_refuses_it(shell: Shell) -> None:
    shell.write("agent.dot", TYPED.replace("type=%s", "prompt=p") % ())
    checked = shell.inside("validate", "agent.dot")
    assert checked.code == 0
    assert checked.out.splitlines() == [
        "agent.dot:3:3: info [agent_served] node 'a' is an agent step and no model provider is set up "
        "(set OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY or [providers.NAME], and ONWARD_MODEL, "
        "as docs/agents.md says; or run it with --simulate; "
        "or name with --app an app that has a handler for 'codergen')",
        "agent.dot is valid: 3 nodes, 0 warnings",
    ]
    refused = shell.inside("run", "agent.dot")
    assert refused.code == 2
    for name in (
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
        "OPENAI_BASE_URL",
        "[providers.NAME]",
        "ONWARD_MODEL",
        "--simulate",
        "--app",
    ):
        assert name in refused.err
    assert shell.inside("run", "agent.dot", "--simulate").code == 0
    shell.write("mine.py", MINE.replace('"mine"', '"codergen"'))
    assert "info" not in shell.inside("validate", "agent.dot", "--app", "mine:app").out
    assert "info" not in shell.inside("validate", "agent.dot", "--for-workers").out


def test_a_misspelt_command_is_one_finding(shell: Shell) -> None:
    shell.write(
        "typo.dot",
        "digraph {\n  start; exit; start -> a -> exit\n  a [shape=parallelogram, tool_comand=ls]\n}",
    )
    checked = shell.inside("validate", "typo.dot")
    assert checked.out.splitlines() == [
        "typo.dot:3:39: error [tool_command] tool node 'a' has no command to run "
        "(tool_comand has no effect; did you mean tool_command?)"
    ]


def test_the_warning_that_explains_an_error_is_shown_beside_it(shell: Shell) -> None:
    """Without it, a missing exit says nothing of the shape that was meant to be one."""
    shell.write(
        "no.dot",
        "digraph {\n  start; a [prompt=p]\n  last [shape=doublecircle, label=end]\n  start -> a -> last\n}",
    )
    checked = shell.inside("validate", "no.dot")
    assert [line.split("]")[0].split("[")[1] for line in checked.out.splitlines()] == [
        "terminal_node",
        "shape_known",
    ]
    assert checked.err == "no.dot cannot run: 1 error, 1 warning\n"
    assert "[shape_known]" in shell.inside("run", "no.dot").err
