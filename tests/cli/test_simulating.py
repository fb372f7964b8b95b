"""`--simulate` on the command line: nothing is executed, and a script that does not fit is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.shell import Shell

LOOP = """\
digraph loop {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  plan [prompt="Plan it"]
  check [shape=parallelogram, tool_command="echo ran >> effects"]
  deploy [type=deploy]
  ask [shape=hexagon, label="Ship it?"]
  start -> plan -> check -> deploy
  check -> plan [condition="outcome=fail"]
  deploy -> ask
  ask -> exit [label="[Y] Yes"]
}
"""
APP = """\
from onward import Onward

app = Onward()

@app.handler("deploy")
def deploy(step):
    with open("effects", "a") as file:
        file.write("deployed ")
    return {"deployed": True}
"""


@pytest.fixture
def loop(shell: Shell) -> Shell:
    shell.write("loop.dot", LOOP)
    shell.write("mine.py", APP)
    return shell


def effects(shell: Shell) -> list[str]:
    path = shell.directory / "effects"
    return path.read_text().split() if path.exists() else []


def script(shell: Shell, entries: Any, *flags: str) -> Any:
    shell.write("script.json", entries if isinstance(entries, str) else json.dumps(entries))
    return shell.inside(
        "run", "loop.dot", "--simulate", "script.json", "--run-id", "loop", "--answers", "auto", *flags
    )


def test_a_simulated_run_executes_no_command_and_no_handler(loop: Shell) -> None:
    flags = ("--simulate", "--answers", "auto", "--run-id", "loop")
    done = loop.inside("run", "loop.dot", "--app", "mine:app", *flags)
    assert (done.code, effects(loop)) == (0, [])
    assert "simulated: nothing is executed" in done.out
    shown = loop.read("loop")
    assert shown["simulated"] == "all"
    assert shown["completed"] == ["start#1", "plan#1", "check#1", "deploy#1", "ask#1", "exit#1"]
    assert shown["context"]["tool.output"] == "[simulated] check done"


def test_a_simulated_run_needs_no_handler_to_be_there(loop: Shell) -> None:
    assert loop.inside("run", "loop.dot", "--simulate", "--answers", "auto").code == 0


def test_real_tools_executes_commands_and_handlers_and_simulates_only_agents(loop: Shell) -> None:
    flags = ("--simulate", "--real-tools", "--answers", "auto", "--run-id", "loop")
    done = loop.inside("run", "loop.dot", "--app", "mine:app", *flags)
    assert (done.code, effects(loop)) == (0, ["ran", "deployed"])
    assert "simulated agents; everything else is executed" in done.out
    assert loop.read("loop")["simulated"] == "agents"


def test_a_resume_of_a_simulated_run_executes_nothing_either(loop: Shell) -> None:
    source = LOOP.replace("plan -> check", "plan -> first; first -> check").replace(
        "start [", 'first [shape=hexagon, label="Go?"]; start [', 1
    )
    loop.write("loop.dot", source)
    assert loop.inside("run", "loop.dot", "--simulate", "--run-id", "loop").code == 75
    assert loop.inside("answer", "loop", "--approve", "--answers", "auto").code == 0
    assert effects(loop) == []


def test_a_submitted_simulation_is_executed_by_any_worker_and_executes_nothing(loop: Shell) -> None:
    assert loop.inside("submit", "loop.dot", "--simulate", "--run-id", "loop").code == 0
    assert loop.inside("worker", "--until-idle").code == 0
    assert (loop.read("loop")["status"], effects(loop)) == ("waiting", [])


def test_a_script_answers_for_tools(loop: Shell) -> None:
    failing = {"exit_code": 2, "stdout": "1 failed", "stderr": "boom", "delay_ms": 1}
    entries = {"check": [failing, {"stdout": "PASS", "context_updates": {"passed": 3}}]}
    assert script(loop, entries).code == 0
    shown = loop.read("loop")
    assert shown["completed"][:5] == ["start#1", "plan#1", "check#1", "plan#2", "check#2"]
    assert (shown["context"]["tool.output"], shown["context"]["passed"]) == ("PASS", 3)
    assert next(one["reason"] for one in shown["steps"] if one["step"] == "check#1") == "exit code 2: boom"


def test_a_simulated_step_says_so_in_its_receipt(loop: Shell) -> None:
    assert script(loop, {}).code == 0
    modes = {
        one["step_id"]: one["mode"] for one in loop.inside("receipts", "loop", "--json").json["receipts"]
    }
    assert (modes["plan#1"], modes["check#1"], modes["deploy#1"]) == ("stub", "stub", "stub")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{\n "chek": []}', "script.json:2: chek: there is no such node; did you mean 'check'?"),
        ('{\n "zzz": []}', "script.json:2: zzz: there is no such node"),
        ('{"plan": [],\n "ask": [{}]}', "script.json:2: ask: is a gate, which --answers answers"),
        ('{"start": [{}]}', "script.json:1: start: is the start of the run"),
        (
            '{"plan": [{},\n  {"exit_code": 1}]}',
            "script.json:2: plan[1]: exit_code is for tools",
        ),
        ('{"check": [{},\n  {"text": "x"}]}', "script.json:2: check[1]: text is not for tools; write stdout"),
        (
            '{"check": [{"exit_code": 1, "status": "success"}]}',
            "script.json:1: check[0]: exit_code 1 and status success contradict each other",
        ),
        (
            '{"plan": [\n {"statuss": "fail"}]}',
            "script.json:2: plan[0]: Object contains unknown field `statuss`",
        ),
        ('{"plan": {"status": "fail"}}', "script.json:1: plan: write a list of entries"),
        (
            '{"plan": [{"context_updates":\n {"outcome": "x"}}]}',
            "plan[0]: the context key 'outcome' is set by",
        ),
        ('{"plan": [], "plan": [{}]}', "script.json has 'plan' twice"),
        ("[]", "script.json is not a simulation script: write an object with a list for each node"),
    ],
)
def test_a_script_that_cannot_be_played_is_refused_with_its_place(loop: Shell, text: str, says: str) -> None:
    done = script(loop, text)
    assert (done.code, says in done.err, done.err.count("onward: ")) == (2, True, 1), done.err
    assert loop.inside("status", "--json").json == []
    refused = loop.inside("submit", "loop.dot", "--simulate", "script.json")
    assert (refused.code, says in refused.err) == (2, True)


def test_an_entry_for_what_is_executed_for_real_is_refused(loop: Shell) -> None:
    done = script(loop, {"check": [{}]}, "--real-tools", "--app", "mine:app")
    assert (done.code, "check: is executed with --real-tools" in done.err) == (2, True)


def test_real_tools_alone_mean_nothing(loop: Shell) -> None:
    done = loop.inside("run", "loop.dot", "--real-tools")
    assert (done.code, "--real-tools needs --simulate" in done.err) == (2, True)


def test_a_script_that_never_ends_is_refused(loop: Shell) -> None:
    done = loop.inside("run", "loop.dot", "--simulate=/dev/zero")
    assert (done.code, "/dev/zero is larger than" in done.err) == (2, True)


def test_a_script_may_name_the_nodes_of_a_managed_pipeline(shell: Shell) -> None:
    child = (
        "digraph c { start [shape=Mdiamond]; exit [shape=Msquare]; inner [label=x]; start -> inner -> exit }"
    )
    shell.write("child.dot", child)
    shell.write(
        "loop.dot",
        'digraph p { stack.child_dotfile="child.dot"; start [shape=Mdiamond]; exit [shape=Msquare]; '
        "m [shape=house, manager.poll_interval=10ms]; start -> m -> exit }".replace(
            'stack.child_dotfile="child.dot"', 'graph [stack.child_dotfile="child.dot"]'
        ),
    )
    assert script(shell, {"inner": [{"text": "played"}]}).code == 0
    assert "innr: there is no such node; did you mean 'inner'?" in script(shell, {"innr": []}).err
    assert "m: manages another run" in script(shell, {"m": [{}]}).err


def test_a_template_has_an_entry_for_every_node_that_can_be_played_and_runs_as_it_is(loop: Shell) -> None:
    printed = loop.inside("simulate-script", "loop.dot")
    assert printed.code == 0
    template = json.loads(printed.out)
    assert list(template) == ["plan", "check", "deploy"]
    assert template["check"] == [{"exit_code": 0, "stdout": "", "stderr": "", "delay_ms": 0}]
    assert template["plan"][0]["status"] == "success"
    assert script(loop, printed.out).code == 0
    assert list(loop.inside("simulate-script", "loop.dot", "--real-tools", "--json").json) == ["plan"]


def test_a_template_meets_the_first_condition_after_a_node(shell: Shell) -> None:
    shell.write(
        "loop.dot",
        "digraph p { start [shape=Mdiamond]; exit [shape=Msquare]; "
        'test [shape=parallelogram, tool_command="x"]; '
        "grade [label=g]; route [shape=diamond]; start -> test; "
        'test -> grade [condition="context.tool.output=PASS"]; test -> test [condition="outcome=fail"]; '
        'grade -> route; route -> exit [condition="context.score=high"]; route -> test }',
    )
    template = shell.inside("simulate-script", "loop.dot").json
    assert template["test"][0]["stdout"] == "PASS"
    assert template["grade"][0]["context_updates"] == {"score": "high"}


def test_a_template_of_a_broken_pipeline_is_refused(shell: Shell) -> None:
    shell.write("broken.dot", "digraph {")
    assert shell.inside("simulate-script", "broken.dot").code == 2
    assert shell.inside("simulate-script", "none.dot").code == 2
