"""From source to a pipeline that may run."""

from __future__ import annotations

from dataclasses import replace

import blake3
import pytest

from onward.errors import InvalidPipeline
from onward.model.context import expand
from onward.pipeline.build import build, changed_nodes, expand_goal
from onward.pipeline.graph import Graph, Node
from tests.pipeline.reading import body, place

SMOKE = """digraph Smoke {
    goal = "Ship 'é'"
    start [shape=Mdiamond]
    plan [prompt="Plan $goal"]
    implement [prompt="Build $goal, $goal!", goal_gate=true, retry_target=plan]
    review [label="Review $goal"]
    done [shape=Msquare]
    start -> plan -> implement
    implement -> review [condition="outcome=success"]
    implement -> plan [condition="outcome=fail"]
    review -> done [label="ok"]
    review -> plan [label="fix"]
}
"""


def refused(source: str) -> list[str]:
    """The errors of a pipeline that cannot be built."""
    with pytest.raises(InvalidPipeline) as caught:
        build(source, file="flow.dot")
    return [place(diagnostic) for diagnostic in caught.value.diagnostics]


def test_a_good_source_becomes_a_pipeline() -> None:
    """D1, D19: five nodes, six edges, no error, a loop without a bound; identity is name and hash."""
    pipeline = build(SMOKE, file="flows/smoke.dot")
    assert (pipeline.name, pipeline.path, pipeline.source) == ("Smoke", "flows/smoke.dot", SMOKE)
    assert pipeline.hash == blake3.blake3(SMOKE.encode("utf-8")).hexdigest()
    assert (len(pipeline.graph.nodes), len(pipeline.graph.edges)) == (5, 6)
    assert [found.rule for found in pipeline.warnings] == ["loop_bounded"]


@pytest.mark.parametrize(
    ("file", "name", "path"),
    [("flows/my.flow.dot", "my.flow", "flows/my.flow.dot"), ("<request>", "request", None), ("a", "a", "a")],
)
def test_an_anonymous_graph_is_named_after_its_file(file: str, name: str, path: str | None) -> None:
    pipeline = build(SMOKE.replace("digraph Smoke", "digraph"), file=file)
    assert (pipeline.name, pipeline.path) == (name, path)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("digraph { A [shape=Msquare] }", "1:1 start_node the pipeline has no start node"),
        ("digraph { A [shape=Mdiamond] }", "1:1 terminal_node the pipeline has no exit node"),
        (
            "digraph { start; exit; A [label=x]; start -> exit }",
            "1:24 reachability node 'A' cannot be reached from the start",
        ),
    ],
)
def test_a_pipeline_that_cannot_run_is_refused(source: str, expected: str) -> None:
    """P4, P5, P6, D19: missing start, missing exit, orphan."""
    assert refused(source) == [expected]


def test_warnings_do_not_stop_a_pipeline_and_come_in_order() -> None:
    """D17, D19: those of the reader and those of the checker together."""
    pipeline = build("digraph {\n start; exit;\n A [x=1;\n type=mine]\n start -> A -> exit }", file="w.dot")
    assert [place(warning) for warning in pipeline.warnings] == [
        "3:2 prompt_on_llm_nodes node 'A' has neither a prompt nor a label",
        "3:8 separator attributes are separated by ','",
        "4:7 type_known node 'A' needs handler 'mine', which is not registered",
    ][1:]
    known = build(pipeline.source, file="w.dot", known_types={"mine"})
    assert [warning.rule for warning in known.warnings] == ["separator"]


def test_errors_of_reader_and_checker_come_together() -> None:
    """D19: if no statement was lost, all rules speak: errors first, then warnings."""
    assert refused("digraph {\n start\n A [x=1 max_retries=many]\n}") == [
        "1:1 terminal_node the pipeline has no exit node",
        "3:2 reachability node 'A' cannot be reached from the start",
        "3:9 separator a ',' is missing before 'max_retries'",
        "3:21 attribute_type max_retries of node 'A' is 'many'",
        "3:2 prompt_on_llm_nodes node 'A' has neither a prompt nor a label",
    ]


def test_where_statements_were_lost_only_local_rules_speak() -> None:
    """D19: "no such node" would be an echo of the statement that could not be read."""
    assert refused('digraph {\n start\n "A" [label=x]\n start -> A [condition="("]\n}') == [
        "3:2 unsupported '\"A\"' cannot be a node id",
        "4:25 condition_syntax the condition of edge start -> A does not parse: '(' is not allowed: "
        "parentheses are not supported",
    ]


def test_the_goal_is_expanded_once() -> None:
    """D74, P19, C22: in every prompt, and in a label that stands in for one."""
    nodes = build(SMOKE, file="s.dot").graph.nodes
    assert nodes["plan"].prompt == "Plan Ship 'é'"
    assert nodes["implement"].prompt == "Build Ship 'é', Ship 'é'!"
    assert (nodes["review"].prompt, nodes["review"].label) == ("Review Ship 'é'", "Review $goal")
    assert "prompt" not in nodes["done"].attrs


def test_a_goal_that_names_itself_is_not_expanded_again() -> None:
    """C22: what the goal contains is text."""
    graph = body('goal="say $goal"; A [prompt="<$goal>"]')
    prompt = expand_goal(graph).nodes["A"].prompt
    assert expand(prompt, {"graph.goal": "say $goal"}).text == "<say $goal>"
    assert graph.nodes["A"].prompt == "<$goal>"


def test_a_graph_without_the_variable_is_left_as_it_is() -> None:
    """D74: nothing is copied for nothing."""
    graph = body('goal="x"; A [prompt="$gaol"]')
    assert expand_goal(graph) is graph


def test_transforms_run_in_order_between_reading_and_checking() -> None:
    """D72, D73, D75: the second sees what the first did, and the rules see both."""

    def add_exit(graph: Graph) -> Graph:
        assert graph.nodes["A"].prompt == "Do it"
        return replace(graph, nodes={**graph.nodes, "exit": Node("exit")})

    def retype(graph: Graph) -> Graph:
        assert "exit" in graph.nodes
        return replace(
            graph, nodes={**graph.nodes, "A": graph.nodes["A"].with_attrs({"type": "conditional"})}
        )

    source = 'digraph { goal="it"; start; A [prompt="Do $goal"]; start -> A -> exit }'
    pipeline = build(source, file="t.dot", transforms=[add_exit, retype])
    assert pipeline.graph.nodes["A"].kind == "conditional"
    assert pipeline.source == source


def test_transforms_do_not_see_a_graph_with_holes() -> None:
    """D72: they may rely on every statement being there."""

    def never(graph: Graph) -> Graph:
        raise AssertionError(graph)

    with pytest.raises(InvalidPipeline):
        build("digraph { A -- B }", file="t.dot", transforms=[never])


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("A; B; A -> B", "B; A\n A->B // moved", ()),
        ("A [x=1]", 'A [x="1"]', ()),
        ("A [x=1]", "A [x=true]", ("A",)),
        ("A [x=1]", "A", ("A",)),
        ("A", "A; B", ("B",)),
        ("A; B", "A", ("B",)),
        ("A; B", "B; C", ("C", "A")),
        ("A; B; A -> B", "A; B; A -> B [weight=1]", ("A",)),
        ("A; B; A -> B", "A; B", ("A",)),
        ("A; B; A -> B; A -> A", "A; B; A -> A; A -> B", ("A",)),
        ("A", 'subgraph { label="x"; A }', ("A",)),
    ],
)
def test_changed_nodes_are_those_that_may_act_differently(old: str, new: str, names: tuple[str, ...]) -> None:
    """K6: added, removed, or changed in attributes, classes or ways out."""
    assert changed_nodes(body(old), body(new)) == names
