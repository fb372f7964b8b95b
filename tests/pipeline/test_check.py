"""The rules of the checker, each shown once to be quiet and once to speak."""

from __future__ import annotations

import pytest

from onward.pipeline.graph import BUILT_IN_TYPES, Graph, Node
from onward.pipeline.rules.check import FINDINGS_MAX, RULES, check
from onward.pipeline.source import Severity
from tests.pipeline.reading import body, findings, graph_of, place

GOOD = """digraph Good {
    goal = "Ship"
    model_stylesheet = "* { llm_model: m }"
    default_fidelity = compact
    start [shape=Mdiamond]
    work [prompt="Do it", goal_gate=true, retry_target=start, fidelity="summary:high", timeout=5s]
    done [shape=Msquare]
    start -> work
    work -> done [condition="outcome=success", fidelity=full, weight=2]
}"""


def test_a_good_pipeline_has_no_findings() -> None:
    """D11 to D18: silence means something only because every rule below speaks."""
    assert check(graph_of(GOOD), known_types=BUILT_IN_TYPES) == ()


def test_the_table_has_the_dialects_rules_with_their_severities() -> None:
    """V1 to V13, the types of attributes, what steers a run, what human gates ask, and what tools run."""
    assert [(rule.name, rule.severity.value) for rule in RULES] == [
        ("start_node", "error"),
        ("terminal_node", "error"),
        ("reachability", "error"),
        ("edge_target_exists", "error"),
        ("start_no_incoming", "error"),
        ("exit_no_outgoing", "error"),
        ("condition_syntax", "error"),
        ("stylesheet_syntax", "error"),
        ("type_known", "warning"),
        ("fidelity_valid", "warning"),
        ("dead_end", "warning"),
        ("retry_target_exists", "warning"),
        ("goal_gate_has_retry", "warning"),
        ("prompt_on_llm_nodes", "warning"),
        ("thread_id_once", "warning"),
        ("attribute_type", "error"),
        ("messages_described", "error"),
        ("inputs_described", "error"),
        ("effort_known", "warning"),
        ("parallel_join", "warning"),
        ("fan_in_has_parallel", "warning"),
        ("branch_restart", "error"),
        ("fan_out_in_itself", "error"),
        ("manager_loop_child", "error"),
        ("human_gate", "error"),
        ("tool_command", "error"),
        ("tool_known", "warning"),
        ("value_known", "warning"),
        ("tool_variable", "warning"),
        ("name_length", "error"),
        ("value_ours", "warning"),
        ("exit_reachable", "warning"),
        ("loop_bounded", "warning"),
        ("shape_known", "error"),
        ("attribute_known", "error"),
        ("attribute_unused", "error"),
        ("outcome_known", "error"),
    ]


@pytest.mark.parametrize(
    ("rule", "statements", "expected"),
    [
        ("name_length", f"{'n' * 500}\nB [type={'t' * 500}]", []),
        (
            "name_length",
            f"{'n' * 501}\nB [type={'t' * 501}]",
            [
                f"2:1 name_length the node id '{'n' * 40}'… has 501 characters",
                f"3:1 name_length the handler name '{'t' * 40}'… has 501 characters",
            ],
        ),
        ("start_node", "A", ["1:1 start_node the pipeline has no start node"]),
        (
            "start_node",
            "A [shape=Mdiamond]\nB [shape=Mdiamond]",
            ["3:1 start_node the pipeline has 2 start nodes: A, B"],
        ),
        ("terminal_node", "A", ["1:1 terminal_node the pipeline has no exit node"]),
        (
            "terminal_node",
            "".join(f"n{number} [shape=Msquare]\n" for number in range(7)),
            ["3:1 terminal_node the pipeline has 7 exit nodes: n0, n1, n2, n3, n4 and 2 more"],
        ),
        (
            "reachability",
            "start; A; B; C\nstart -> A -> start; B -> C",
            [
                "2:11 reachability node 'B' cannot be reached from the start",
                "2:14 reachability node 'C' cannot be reached from the start",
            ],
        ),
        ("reachability", "A; B", []),
        (
            "dead_end",
            "start; exit; A; B\n  C; start -> A -> exit; A -> B\n A -> C",
            [
                "2:17 dead_end node 'B' has no outgoing edges; a run or branch that reaches it ends there",
                "3:3 dead_end node 'C' has no outgoing edges; a run or branch that reaches it ends there",
            ],
        ),
        (
            "dead_end",
            "start; exit; A [retry_target=B]; B; start -> A -> exit",
            ["2:34 dead_end node 'B' has no outgoing edges; a run or branch that reaches it ends there"],
        ),
        ("dead_end", "start; A; start -> A", []),  # without an exit, that is what is wrong
        ("dead_end", "start; exit; A; start -> exit", []),  # nothing leads to it
        (
            "start_node",
            "".join(f"n{number} [shape=Mdiamond]\n" for number in range(5)),
            ["3:1 start_node the pipeline has 5 start nodes: n0, n1, n2, n3, n4"],
        ),
        (
            "edge_target_exists",
            "start; A\nstart -> B\n  C -> A",
            [
                "3:1 edge_target_exists edge start -> B names node 'B', which is not declared",
                "4:3 edge_target_exists edge C -> A names node 'C', which is not declared",
            ],
        ),
        (
            "edge_target_exists",
            "X -> X",
            ["2:1 edge_target_exists edge X -> X names node 'X', which is not declared"],
        ),
        (
            "start_no_incoming",
            "start; A\nA -> start",
            ["3:1 start_no_incoming edge A -> start leads to the start node"],
        ),
        (
            "exit_no_outgoing",
            "exit; A\nexit -> A",
            ["3:1 exit_no_outgoing edge exit -> A leaves the exit node"],
        ),
        (
            "condition_syntax",
            'A -> B [label=x,\n condition="outcome=\\"a\\" || b"]',
            [
                "3:27 condition_syntax the condition of edge A -> B does not parse: '||' is not allowed: OR "
                "is not supported; write one edge per alternative"
            ],
        ),
        (
            "condition_syntax",
            "A -> B [condition=outcome-]",
            [],
        ),
        (
            "condition_syntax",
            "A -> B [condition=a:b]",
            [
                "2:20 condition_syntax the condition of edge A -> B does not parse: "
                "expected '&&' or the end of the condition, found ':b'; quote a value that has spaces"
            ],
        ),
        (
            "stylesheet_syntax",
            'model_stylesheet = "\n  * { llm_model: \\"m\\" }\n  box { color: red }"',
            [
                "4:9 stylesheet_syntax the model stylesheet does not parse: unknown property 'color'; "
                "use one of llm_model, llm_provider, reasoning_effort, agent_program"
            ],
        ),
        (
            "type_known",
            'A [label=x, type="my.handler"]',
            ["2:18 type_known node 'A' needs handler 'my.handler', which is not registered"],
        ),
        (
            "fidelity_valid",
            'default_fidelity = best\nA [fidelity=worst]\nA -> A [fidelity="summary:huge"]',
            [
                "2:20 fidelity_valid default_fidelity of the graph is 'best'",
                "3:13 fidelity_valid fidelity of node 'A' is 'worst'",
                "4:18 fidelity_valid fidelity of edge A -> A is 'summary:huge'",
            ],
        ),
        (
            "thread_id_once",
            "A [thread_id=own]\nB\nA -> A [thread_id=own]\nB -> A [thread_id=other]\nA -> B [thread_id=x]",
            ["5:19 thread_id_once thread_id of edge B -> A is 'other', but node 'A' has its own"],
        ),
        (
            "retry_target_exists",
            "fallback_retry_target=X\nA [retry_target=Y, fallback_retry_target=A]",
            [
                "2:23 retry_target_exists fallback_retry_target of the graph names node 'X', "
                "which is not declared",
                "3:17 retry_target_exists retry_target of node 'A' names node 'Y', which is not declared",
            ],
        ),
        (
            "goal_gate_has_retry",
            'A [goal_gate=true]\nB [goal_gate="true", fallback_retry_target=A]\nC [goal_gate=false]\nD',
            [
                "2:1 goal_gate_has_retry node 'A' is a goal gate without a retry target; "
                "if it is unmet, the run fails"
            ],
        ),
        ("goal_gate_has_retry", "retry_target=A; A [goal_gate=true]", []),
        ("goal_gate_has_retry", "A [goal_gate=maybe]", []),
        (
            "prompt_on_llm_nodes",
            'start; exit; A; B [label="x"]; C [prompt="x"]; D [shape=hexagon]; E [prompt="", label=""]',
            [
                "2:14 prompt_on_llm_nodes node 'A' has neither a prompt nor a label",
                "2:67 prompt_on_llm_nodes node 'E' has neither a prompt nor a label",
            ],
        ),
        (
            "attribute_type",
            'A [max_retries="many", timeout="soon", goal_gate=maybe]\nA -> A [weight=heavy]',
            [
                "2:16 attribute_type max_retries of node 'A' is 'many'",
                "2:32 attribute_type timeout of node 'A' is 'soon'",
                "2:50 attribute_type goal_gate of node 'A' is 'maybe'",
                "3:16 attribute_type weight of edge A -> A is 'heavy'",
            ],
        ),
        (
            "attribute_type",
            "default_max_retries=-1\nA [max_retries=-1, max_parallel=0, manager.max_cycles=0, timeout=900]\n"
            "A -> A [weight=1.5, loop_restart=1]",
            [
                "2:21 attribute_type default_max_retries of the graph is '-1'",
                "3:16 attribute_type max_retries of node 'A' is '-1'",
                "3:33 attribute_type max_parallel of node 'A' is '0'",
                "3:55 attribute_type manager.max_cycles of node 'A' is '0'",
                "3:66 attribute_type timeout of node 'A' is '900'",
                "4:16 attribute_type weight of edge A -> A is '1.5'",
                "4:34 attribute_type loop_restart of edge A -> A is '1'",
            ],
        ),
        (
            "attribute_type",
            "max_visits=0; max_steps=0; max_running=0\n"
            "A [timeout=0s, human.timeout=0ms, human.remind=0s]\n"
            "B [manager.poll_interval=0m, tool_hooks.timeout=0s]",
            [
                "2:12 attribute_type max_visits of the graph is '0'",
                "2:25 attribute_type max_steps of the graph is '0'",
                "2:40 attribute_type max_running of the graph is '0'",
                "3:12 attribute_type timeout of node 'A' is '0s'",
                "3:30 attribute_type human.timeout of node 'A' is '0ms'",
                "3:48 attribute_type human.remind of node 'A' is '0s'",
                "4:26 attribute_type manager.poll_interval of node 'B' is '0m'",
                "4:49 attribute_type tool_hooks.timeout of node 'B' is '0s'",
            ],
        ),
        (  # here 0 has a meaning: no retries, no redirects, no restarts, no pause
            "attribute_type",
            "default_max_retries=0; max_reroutes=0; max_restarts=0\n"
            "A [max_retries=0, manager.steer_cooldown=0s]",
            [],
        ),
        (
            "attribute_type",
            'A [max_retries="2", timeout="900s", goal_gate="true", manager.poll_interval=45s, label=5]',
            [],
        ),
    ],
)
def test_a_rule_names_what_is_wrong_at_its_place(rule: str, statements: str, expected: list[str]) -> None:
    """V1 to V13, D11 to D18, P4 to P6, C14.

    D12, D13, D14, D15, D16, D17, V2, V3, V4, V5, V6, V7, V8, V9, V10, V11, V12.
    """
    found = findings(f"digraph G {{\n{statements}\n}}", rule)
    assert [place(finding) for finding in found] == expected


def test_diagnostics_carry_node_edge_severity_file_and_fix() -> None:
    """D20: everything a tool needs."""
    (lost,) = findings("digraph { start; A }", "reachability")
    assert (lost.node_id, lost.edge, lost.severity, lost.file) == ("A", None, Severity.ERROR, "flow.dot")
    assert lost.fix == "add an edge to it, or remove it"
    (back,) = findings("digraph { start; A; A -> start }", "start_no_incoming")
    assert (back.node_id, back.edge) == (None, ("A", "start"))


def test_the_rules_that_can_judge_a_graph_with_holes_are_marked() -> None:
    """D19: a finding about one attribute stays true whatever statement is missing."""
    assert {rule.name for rule in RULES if rule.local} == {
        "condition_syntax",
        "stylesheet_syntax",
        "type_known",
        "fidelity_valid",
        "attribute_type",
        "effort_known",
        "name_length",
        "attribute_known",
        "value_ours",
        "tool_known",
    }


def test_a_retry_target_does_not_make_a_node_reachable_but_changes_the_advice() -> None:
    """V3: an error by the letter, with the way out."""
    text = "digraph { start [retry_target=A]; graph [fallback_retry_target=B]; A; B; C }"
    fixes = {finding.node_id: finding.fix for finding in findings(text, "reachability")}
    assert (
        fixes["A"]
        == fixes["B"]
        == "a retry target does not make it reachable: add an edge, with a condition if needed"
    )
    assert fixes["C"] == "add an edge to it, or remove it"


def test_a_misspelt_node_comes_with_a_suggestion() -> None:
    """V4, V11: did you mean."""
    (edge,) = findings("digraph { review; review -> revew }", "edge_target_exists")
    assert edge.fix == "did you mean 'review'?"
    (other,) = findings("digraph { review; review -> deploy }", "edge_target_exists")
    assert other.fix == "declare deploy"
    (target,) = findings("digraph { review [retry_target=Review] }", "retry_target_exists")
    assert target.fix == "did you mean 'review'?"


def test_in_a_large_graph_no_suggestion_is_searched() -> None:
    """S22: looking for similar names would take long."""
    nodes = ";".join(f"node{number}" for number in range(300))
    (edge,) = findings(f"digraph {{ {nodes}; node1 -> node_1 }}", "edge_target_exists")
    assert edge.fix == "declare node_1"


def test_the_types_that_are_known_can_be_extended() -> None:
    """V9: by whoever registers handlers."""
    graph = body('A [type="my.handler", label=x]')
    (warning,) = (item for item in check(graph, known_types=["tool"]) if item.rule == "type_known")
    assert warning.fix == "registered: tool; name its app with --app"
    assert not [item for item in check(graph, known_types=["my.handler"]) if item.rule == "type_known"]


def test_a_rule_with_endless_findings_says_that_there_are_more() -> None:
    """S22: and does not hide what the other rules found."""
    nodes = ";".join(f"n{number}" for number in range(FINDINGS_MAX + 1))
    found = findings(f"digraph {{ start; {nodes} }}", "reachability")
    assert len(found) == FINDINGS_MAX + 1
    assert [item.message for item in found if item.node_id is None] == [
        "reachability has more than these 100 findings"
    ]
    assert (
        len(findings("digraph { start; " + nodes.removesuffix(";n100") + "}", "reachability")) == FINDINGS_MAX
    )


def test_what_a_transform_added_is_reported_at_its_node() -> None:
    """D20: a value that was never written has no place of its own."""
    node = Node("A", {"max_retries": "many"}, line=7, column=3)
    (finding,) = (
        item for item in check(Graph(nodes={"A": node}), known_types=()) if item.rule == "attribute_type"
    )
    assert (finding.line, finding.column, finding.fix) == (7, 3, "write a whole number such as 3")
