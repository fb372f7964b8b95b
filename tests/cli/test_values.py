"""Values of the context in prompts, in gates and in commands."""

from __future__ import annotations

from pathlib import Path

from tests.cli.shell import Shell

PLAN = """\
digraph plan {
  goal = "Ship"
  start [shape=Mdiamond]
  exit [shape=Msquare]
  plan [prompt="Plan $goal for ${context.customer}; $$5, $unheard"]
  look [shape=parallelogram, tool_command="COMMAND"]
  ask [shape=hexagon, label="Deploy $version of ${plan.name}?"MORE]
  start -> plan -> look -> ask
  ask -> exit [label="[Y] Yes, $version"]
  ask -> plan [label="No"]
}
"""
SCRIPT = '{"plan": [{"text": "1. build\\n2. ship", "context_updates": {"plan": {"name": "rocket"}}}]}'


def prepared(shell: Shell, command: str = "true", more: str = "") -> tuple[str, ...]:
    shell.write("plan.dot", PLAN.replace("COMMAND", command).replace("MORE", more))
    shell.write("script.json", SCRIPT)
    flags = ("--set", "customer=$(touch owned)", "--set", "version=2.1", "--run-id", "plan")
    return ("run", "plan.dot", "--simulate", "script.json", "--real-tools", *flags)


def prompt(directory: Path) -> str:
    return (directory / "plan" / "1" / "prompt.md").read_text()


def test_a_prompt_has_the_values_that_it_names(shell: Shell) -> None:
    assert shell.inside(*prepared(shell), "--files", "full").code == 75
    kept = next(path.parent for path in Path(shell.db).parent.rglob("manifest.json"))
    said = "Plan Ship for $(touch owned); $5, $unheard"
    assert prompt(kept) == said
    assert shell.inside("files", "plan", "--out", "again").code == 0
    assert prompt(shell.directory / "again") == said, "what is made from the log is what the agent was asked"


def test_a_prompt_has_the_whole_last_response(shell: Shell) -> None:
    long = "x" * 5_000 + "END"
    shell.write(
        "two.dot",
        "digraph two { start [shape=Mdiamond]; exit [shape=Msquare]; a [label=a]; "
        'b [prompt="Go on: $last_response"]; start -> a -> b -> exit }',
    )
    shell.write("script.json", f'{{"a": [{{"text": "{long}"}}]}}')
    assert shell.inside("run", "two.dot", "--simulate", "script.json", "--run-id", "two").code == 0
    assert shell.inside("files", "two", "--out", "kept").code == 0
    assert (shell.directory / "kept" / "b" / "1" / "prompt.md").read_text() == f"Go on: {long}"


def test_an_unknown_name_stays_as_it_is_written_and_is_in_the_steps_log(shell: Shell) -> None:
    told = shell.inside(*prepared(shell)).out
    assert "  noted     plan#1  the prompt names $unheard, which is not in the context" in told, told
    (step,) = [one for one in shell.read("plan")["steps"] if one["step"] == "plan#1"]
    assert step["log"] == [
        "the prompt names $unheard, which is not in the context; the name is left in the prompt"
    ]


def test_a_command_gets_values_as_variables_and_never_in_its_text(shell: Shell) -> None:
    command = (
        'echo \\"$ONWARD_CONTEXT_CUSTOMER|$ONWARD_CONTEXT_PLAN|$ONWARD_CONTEXT_GRAPH_GOAL|'
        '$customer|${context.customer:-literal}\\" 2>&1 || true; echo $ONWARD_CONTEXT_NOTHING'
    ).replace("${context.customer:-literal}", "$version")
    shell.inside(*prepared(shell, command))
    shown = shell.read("plan")
    assert shown["context"]["tool.output"].strip() == '$(touch owned)|{"name":"rocket"}|Ship||'
    assert not (shell.directory / "owned").exists()
    (step,) = [one for one in shown["steps"] if one["step"] == "look#1"]
    assert step["log"] == [
        "the command names $ONWARD_CONTEXT_NOTHING, which is not set: the context has no such value"
    ]


def test_a_gate_shows_values_and_the_last_response_wherever_it_is_shown(shell: Shell) -> None:
    done = shell.inside(*prepared(shell))
    about = ["ask#1: Deploy 2.1 of rocket?", "  | 1. build", "  | 2. ship", "  Y   Yes, 2.1  → exit"]
    for text in (
        done.out,
        shell.inside("status", "plan").out,
        shell.inside("answer", "plan").out,
        shell.inside("answer").out,
        shell.inside("resume", "plan").out,
    ):
        assert "\n".join(f"  {line}" for line in about) in text
    shown = shell.inside("show", "plan").out
    assert "ask#1 asks: Deploy 2.1 of rocket?\n  | 1. build\n  | 2. ship\n  Y " in shown
    (gate,) = shell.read("plan")["gates"]
    assert gate["about"] == "1. build\n2. ship"


def test_a_choice_with_a_value_in_its_label_can_be_chosen_by_it(shell: Shell) -> None:
    shell.inside(*prepared(shell))
    assert shell.inside("answer", "plan", "yes, 2.1").code == 0
    assert shell.read("plan")["context"]["human.gate.label"] == "[Y] Yes, 2.1"


def test_a_gate_shows_what_its_node_says_to_show(shell: Shell) -> None:
    shell.inside(*prepared(shell, "printf 'all green'", ', human.show="Tests: ${tool.output}"'))
    assert shell.read("plan")["gates"][0]["about"] == "Tests: all green"


def test_an_unknown_name_in_a_gate_is_in_its_steps_log(shell: Shell) -> None:
    shell.inside(*prepared(shell, "true", ', human.show="$nothing"'))
    assert shell.read("plan")["gates"][0]["about"] == "$nothing"
    assert shell.inside("answer", "plan", "y").code == 0
    (step,) = [one for one in shell.read("plan")["steps"] if one["step"] == "ask#1"]
    assert step["log"] == [
        "the gate names $nothing, which is not in the context; the name is left in the text"
    ]


def test_a_gate_may_show_nothing(shell: Shell) -> None:
    shell.inside(*prepared(shell, "true", ', human.show=""'))
    assert shell.read("plan")["gates"][0]["about"] == ""


def test_a_long_response_is_cut_where_it_is_listed_and_whole_where_it_is_answered(shell: Shell) -> None:
    words = prepared(shell)
    lines = "\\n".join(f"line {number}" for number in range(30))
    shell.write("script.json", f'{{"plan": [{{"text": "{lines}"}}]}}')
    done = shell.inside(*words)
    assert "| line 19\n    | … 10 more lines; `onward answer` shows all\n" in done.out
    assert "| line 29\n" in shell.inside("answer", "plan").out
    assert "| line 29\n" in shell.inside("answer").out


def test_answer_without_a_run_lists_the_open_gates_of_all_runs(shell: Shell) -> None:
    assert shell.inside("answer").out.startswith("no run waits for an answer: ")
    shell.inside(*prepared(shell))
    shell.inside(*prepared(shell)[:-1], "other")
    done = shell.inside("answer")
    names = ["plan", "other"]
    assert [line for line in done.out.splitlines() if line.startswith("run ")] == [
        f"run {name} (plan): onward answer {name}" for name in names
    ]
    assert done.code == 0
    listed = shell.inside("answer", "--json").json
    assert [(gate["run"], gate["text"]) for gate in listed] == [
        ("plan", "Deploy 2.1 of rocket?"),
        ("other", "Deploy 2.1 of rocket?"),
    ]
    for name in ("other", "plan"):
        assert shell.inside("answer", name, "y").code == 0
    assert shell.inside("answer").out == "no run waits for an answer\n"
    assert shell.inside("answer", "--approve").code == 2


def test_validate_warns_of_names_that_nothing_sets(shell: Shell) -> None:
    shell.write(
        "plan.dot",
        PLAN.replace("$unheard", "$last_respons ${graph.gaol} ${context.last_respons} $mine").replace(
            "MORE", ""
        ),
    )
    done = shell.inside("validate", "plan.dot")
    assert done.code == 0
    assert [
        line.partition("[value_known] ")[2] for line in done.out.splitlines() if "value_known" in line
    ] == [
        "prompt of node 'plan' names $last_respons, which is nearly $last_response; did you mean that? (for "
        "the literal text write $$last_respons)",
        "prompt of node 'plan' names ${graph.gaol}, which nothing sets; did you mean ${graph.goal}? (for the "
        "literal text write $${graph.gaol})",
    ]
