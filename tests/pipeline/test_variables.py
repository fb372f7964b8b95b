"""The variables that a command names, and the warning about those that it does not get."""

from __future__ import annotations

import pytest

from onward.model.values import Variables
from onward.pipeline.build import build
from onward.pipeline.rules.steps import variables_of

PASSED = Variables(
    passed=frozenset({"HOME", "DEPLOY_KEY"}), present=frozenset({"HOME", "DEPLOY_KEY", "TOKEN"})
)


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("deploy $A ${B}", ["A", "B"]),
        ('echo "$A and ${B%.txt} and ${#C}"', ["A", "B", "C"]),
        ("echo '$A' \\$B $$ $1 $? $(date) $((1+1))", []),
        ('echo "it\'s $A"', ["A"]),
        ('echo "\\$A" \'"\' $B', ["B"]),
        ("echo ${A:-x} ${B-x} ${C:+x} ${D:=x} ${E=x} ${F+x}", []),
        ("echo ${A:?needed}", ["A"]),
        ("A=1; B=2 run; echo $A $B", []),
        ("export A=1 && echo $A", []),
        ("for A in 1 2; do echo $A; done", []),
        ("while read -r A B; do echo $A $B; done", []),
        ("echo x | while IFS= read A; do echo $A $IFS; done", []),
        ("echo $PWD $OLDPWD $PPID $RANDOM $LINENO $OPTARG", []),
        ("true # don't use $A\necho $B", ["B"]),
        ("echo a#$A", ["A"]),
        ("awk '{print $NF}' && awk \"{print \\$NF}\"", []),
        ("echo $A $A", ["A"]),
        ("echo $ONWARD_RUN_ID", ["ONWARD_RUN_ID"]),
        ("echo '", []),
        ("echo ${", []),
    ],
)
def test_the_variables_that_a_command_takes_from_outside(command: str, names: list[str]) -> None:
    assert list(variables_of(command)) == names


def warnings(attributes: str, variables: Variables | None = PASSED, *, graph: str = "") -> list[str]:
    source = (
        f"digraph g {{ {graph} start [shape=Mdiamond]; exit [shape=Msquare]\n"
        f"a [shape=parallelogram, {attributes}]\nstart -> a -> exit }}"
    )
    found = build(source, file="<test>", variables=variables).warnings
    return [str(one) for one in found if one.rule == "tool_variable"]


def test_a_variable_that_is_not_set_is_a_warning_with_its_place() -> None:
    (said,) = warnings('tool_command="deploy $STAGE"')
    assert said.startswith("<test>:2:")
    assert "the command of node 'a' uses $STAGE, which is not set here" in said


def test_a_variable_that_is_set_and_not_passed_says_what_to_write() -> None:
    (said,) = warnings('tool_command="deploy $TOKEN"')
    assert "uses $TOKEN, which commands do not receive" in said
    assert 'tool_env = ["TOKEN"]' in said


def test_the_goal_in_a_command_is_told_its_variable() -> None:
    (said,) = warnings('tool_command="echo $goal"')
    assert "uses $goal, which only prompts replace" in said
    assert 'write "$ONWARD_CONTEXT_GOAL"' in said


@pytest.mark.parametrize("name", ["HOME", "DEPLOY_KEY", "ONWARD_STEP", "ONWARD_DB"])
def test_a_variable_that_commands_get_is_no_warning(name: str) -> None:
    assert warnings(f'tool_command="echo ${name}"') == []


def test_hooks_are_commands_too() -> None:
    assert len(warnings('tool_command="true", tool_hooks.pre="log $STAGE"')) == 1
    assert len(warnings('tool_command="true"', graph='graph [tool_hooks.post="log $STAGE"]')) == 1


def test_where_the_environment_is_not_known_nothing_is_said() -> None:
    assert warnings('tool_command="deploy $STAGE"', None) == []


def test_a_prompt_is_not_a_command() -> None:
    assert warnings('tool_command="true", prompt="say $STAGE"') == []
