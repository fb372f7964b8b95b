"""Rules for a process that executes runs itself, and hints about what was probably meant."""

from __future__ import annotations

import pytest

from onward.pipeline.branches import HOPS_MAX, branches_of
from onward.pipeline.dot import parse
from onward.pipeline.graph import BUILT_IN_TYPES, DEFAULT_ROUNDS, Node, cached
from onward.pipeline.rules.check import RULES, check, rules_here, secret_rule
from onward.pipeline.rules.rule import Rule
from onward.pipeline.rules.steps import rules_beside
from tests.pipeline.reading import body, findings

FLOW = "digraph g {{ start [shape=Mdiamond]; exit [shape=Msquare]; {} }}"


def found(statements: str, rules: list[Rule], name: str) -> list[str]:
    graph = parse(FLOW.format(statements), file="<test>").graph
    told = check(graph, known_types=BUILT_IN_TYPES, rules=rules)
    return [f"{one.severity.value}: {one.message}" for one in told if one.rule == name]


@pytest.mark.parametrize("agent", ["a [prompt=p]", "a [shape=tripleoctagon, prompt=p]"])
def test_the_first_agent_step_is_mentioned_where_no_model_is_set_up(agent: str) -> None:
    line = f"{agent}; b [prompt=p]; start -> a -> b -> exit"
    assert found(line, rules_here(RULES, has_agent=False), "agent_served") == [
        "info: node 'a' is an agent step and no model provider is set up"
    ]
    assert found(line, rules_here(RULES, has_agent=True), "agent_served") == []


def test_nothing_is_mentioned_where_no_step_needs_a_model() -> None:
    line = 'a [shape=parallelogram, tool_command="true"]; b [agent_program=codex]; start -> a -> b -> exit'
    assert found(line, rules_here(RULES, has_agent=False), "agent_served") == []


def test_a_handler_that_the_executing_process_lacks_is_an_error() -> None:
    line = "a [type=unheard]; start -> a -> exit"
    told = "node 'a' needs handler 'unheard', which is not registered"
    assert found(line, rules_here(RULES, has_agent=True), "type_known") == [f"error: {told}"]
    assert found(line, [*RULES], "type_known") == [f"warning: {told}"]


def test_a_secret_that_is_written_down_is_told_by_its_name() -> None:
    rules = [secret_rule(lambda text: ["API_KEY"] if "s3cret" in text else [])]
    assert found('a [prompt="use s3cret"]; start -> a -> exit', rules, "secret") == [
        "warning: prompt of node 'a' contains the value of API_KEY, which is stored with every run"
    ]


def test_a_misspelt_command_is_told() -> None:
    text = FLOW.format("a [shape=parallelogram, tool_comand=ls]; start -> a -> exit")
    (told,) = findings(text, "tool_command")
    assert told.fix == "tool_comand has no effect; did you mean tool_command?"


def test_only_an_apps_own_tool_handler_needs_no_command() -> None:
    assert rules_beside("shout", RULES) == [*RULES]


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        ("$last_respons", "names $last_respons, which is nearly $last_response; did you mean that?"),
        ("${graph.gaol}", "names ${graph.gaol}, which nothing sets; did you mean ${graph.goal}?"),
        ("${internal.xyz}", "names ${internal.xyz}, which nothing sets"),
    ],
)
def test_a_value_that_nothing_sets_is_told(prompt: str, told: str) -> None:
    text = FLOW.format(f'goal="g"; a [prompt="{prompt}"]; start -> a -> exit')
    (finding,) = findings(text, "value_known")
    assert finding.message == f"prompt of node 'a' {told}"


def test_a_condition_that_cannot_be_read_is_reported_and_stops_no_other_rule() -> None:
    text = FLOW.format(
        """fan [shape=component]; a [prompt=p]; b [prompt=p]; start -> a; a -> fan [condition="x=="]
        a -> b [condition="outcome=succes"]; fan -> b [condition="y=="]; fan -> exit
        b -> a [loop_restart=true]; b -> exit"""
    )
    assert len(findings(text, "condition_syntax")) == 2


def test_a_goal_gate_without_a_target_of_its_own_uses_the_graphs() -> None:
    """A restart that only a redirect of the graph leads to is outside all branches."""
    text = FLOW.format(
        """retry_target=r; r [prompt=p]; a [prompt=p, goal_gate=true]; start -> a -> exit; r -> a
        fan [shape=component]; join [shape=tripleoctagon]; b [prompt=p]; r -> fan -> b -> join -> a
        b -> a [loop_restart=true]; fan -> join"""
    )
    assert len(findings(text, "branch_restart")) == 1


def test_an_agent_may_take_as_many_rounds_as_its_node_says() -> None:
    graph = body("a [prompt=p]; b [prompt=p, max_rounds=3]; c [prompt=p, max_rounds=0]")
    assert [graph.nodes[name].rounds_max for name in "abc"] == [DEFAULT_ROUNDS, 3, DEFAULT_ROUNDS]


def test_a_value_that_is_kept_can_be_looked_at_on_the_class() -> None:
    assert isinstance(Node.kind, cached)


def test_a_pipeline_with_too_many_branches_to_follow_is_not_refused() -> None:
    """Each of these fan-outs leads into the next and through one long line, which none of them joins."""
    count = 320
    nodes = "; ".join(f"p{n} [shape=component]; c{n} [prompt=p]" for n in range(count))
    ways = "; ".join(f"p{n} -> c0; p{n} -> p{n + 1}; c{n} -> c{n + 1}" for n in range(count - 1))
    graph = parse(FLOW.format(f"{nodes}; start -> p0; {ways}"), file="<test>").graph
    assert count * count > HOPS_MAX
    assert branches_of(graph) is None
