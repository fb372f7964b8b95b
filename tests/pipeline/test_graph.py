"""The questions the engine asks a graph on every step."""

from __future__ import annotations

import dataclasses

import pytest

from onward.errors import InvalidInput
from onward.pipeline.dot import parse
from onward.pipeline.graph import BUILT_IN_TYPES, SHAPE_KINDS, Edge, Graph, Node
from onward.pipeline.source import Attributes
from tests.pipeline.reading import body


def test_a_node_about_which_nothing_is_written_has_the_defaults() -> None:
    node = Node("A")
    assert (node.shape, node.type, node.kind, node.label, node.prompt) == ("box", "", "codergen", "A", "")
    assert (node.max_retries, node.timeout_s) == (None, None)
    assert (node.goal_gate, node.allow_partial, node.auto_status, node.repeatable) == (
        False,
        False,
        False,
        True,
    )
    assert (node.retry_target, node.fallback_retry_target, node.classes) == ("", "", ())


def test_typed_attributes_are_read_with_and_without_quotes() -> None:
    """D9: the dialect's own examples quote durations, integers and booleans."""
    graph = body(
        """
        A [max_retries=2, timeout=900s, goal_gate=true, repeatable=false, allow_partial=true,
           auto_status=true]
        B [max_retries="2", timeout="900s", goal_gate="true", repeatable="false", allow_partial="true",
           auto_status="true", retry_target=A, fallback_retry_target="C", label="Bee", prompt="p"]
        """
    )
    for node in graph.nodes.values():
        assert (node.max_retries, node.timeout_s, node.goal_gate, node.repeatable) == (2, 900.0, True, False)
        assert (node.allow_partial, node.auto_status) == (True, True)
    node = graph.nodes["B"]
    assert (node.retry_target, node.fallback_retry_target, node.label, node.prompt) == ("A", "C", "Bee", "p")


@pytest.mark.parametrize(("shape", "kind"), list(SHAPE_KINDS.items()))
def test_a_shape_stands_for_a_handler(shape: str, kind: str) -> None:
    """D22: the shape table."""
    assert Node("A", {"shape": shape}).kind == kind
    assert kind in BUILT_IN_TYPES


def test_a_type_beats_the_shape_and_an_unknown_shape_means_a_model() -> None:
    """D22: type, then shape, then codergen."""
    assert Node("A", {"shape": "hexagon", "type": "my.handler"}).kind == "my.handler"
    assert Node("A", {"shape": "egg"}).kind == "codergen"


def test_any_attribute_can_be_read_in_any_type() -> None:
    """D9: custom handlers read their own attributes with the same care."""
    node = body("A [n=4, m=-4, yes=true, wait=2m]").nodes["A"]
    assert (node.integer("n"), node.integer("m"), node.count("n")) == (4, -4, 4)
    assert (node.boolean("yes"), node.duration_s("wait"), node.text("wait")) == (True, 120.0, "2m")
    assert (node.integer("no"), node.count("no"), node.duration_s("no")) == (None, None, None)
    assert (node.text("no"), node.text("no", "-"), node.boolean("no", True)) == ("", "-", True)


@pytest.mark.parametrize(
    ("owner", "subject"),
    [
        (Node("A", {"x": "many"}), "node 'A'"),
        (Edge("A", "B", {"x": "many"}), "edge A -> B"),
        (Graph(attrs={"x": "many"}), "the graph"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_its_owner(owner: Attributes, subject: str) -> None:
    with pytest.raises(InvalidInput, match=f"^x of {subject} is 'many'; write a whole number such as 3.$"):
        owner.integer("x")


def test_edges_are_found_from_both_ends_in_declaration_order() -> None:
    graph = body("A -> C; A -> B; B -> C; A -> C [label=again]")
    assert [(edge.target, edge.order) for edge in graph.outgoing("A")] == [("C", 0), ("B", 1), ("C", 3)]
    assert [(edge.source, edge.order) for edge in graph.incoming("C")] == [("A", 0), ("B", 2), ("A", 3)]
    assert graph.outgoing("C") == graph.incoming("A") == graph.outgoing("nowhere") == ()


@pytest.mark.parametrize(
    ("statements", "start", "end"),
    [
        ("a [shape=Mdiamond]; z [shape=Msquare]", "a", "z"),
        ("a [shape=Mdiamond]; start; z [shape=Msquare]; exit; end", "a", "z"),
        ("start; exit", "start", "exit"),
        ("Start; end", "Start", "end"),
        ("START; Exit; End", None, None),
        ("start; Start; exit; end", None, None),
        ("a [shape=Mdiamond]; b [shape=Mdiamond]; y [shape=Msquare]; z [shape=Msquare]", None, None),
    ],
)
def test_start_and_exit_are_found_by_shape_and_else_by_name(
    statements: str, start: str | None, end: str | None
) -> None:
    """D11, D12: none or several is no answer."""
    graph = body(statements)
    assert (graph.start_id, graph.exit_id) == (start, end)


@pytest.mark.parametrize(
    ("attrs", "count"),
    [
        ("", 0),
        ("default_max_retries=3", 3),
        ('default_max_retry="4"', 4),
        ("default_max_retry=4; default_max_retries=3", 3),
    ],
)
def test_the_retry_default_has_an_older_name(attrs: str, count: int) -> None:
    assert body(attrs).default_max_retries == count


def test_the_graph_has_retry_targets_of_its_own() -> None:
    graph = body("retry_target=A; fallback_retry_target=B")
    assert (graph.retry_target, graph.fallback_retry_target, graph.goal) == ("A", "B", "")


def test_a_graph_cannot_be_changed() -> None:
    graph = body("A [x=1]")
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.nodes["A"].id = "B"  # type: ignore[misc]
    with pytest.raises(TypeError):
        graph.nodes["A"].attrs["x"] = 2  # type: ignore[index]
    with pytest.raises(TypeError):
        graph.nodes["B"] = Node("B")  # type: ignore[index]


def test_a_changed_copy_of_a_node_is_a_new_node() -> None:
    """D73: transforms do not change their input."""
    node = body("A [x=1, label=one]").nodes["A"]
    assert node.label == "one"
    changed = node.with_attrs({"label": "two"})
    assert (changed.label, changed.attrs["x"], node.label) == ("two", 1, "one")
    assert (changed.line, changed.column) == (node.line, node.column)
    assert sorted(changed.written) == ["x"]


def test_two_graphs_that_say_the_same_are_equal_wherever_it_stands() -> None:
    one = "digraph G { x=1; A [x=1]; A -> B [x=1] }"
    other = "\n // moved\n  digraph G {\n x=1\n A [ x = 1 ]\n A->B[x=1] }"
    assert parse(one, file="one.dot") == parse(other, file="other.dot")
    assert body("A [x=1]") != body("A [x=2]")
