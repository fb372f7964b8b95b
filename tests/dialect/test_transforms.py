"""Transforms of one's own: their order, their freedom, and what happens when one is wrong (D72 to D75)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from onward import Onward
from onward.errors import InvalidInput, InvalidPipeline
from onward.pipeline.build import Transform, build
from onward.pipeline.graph import Edge, Graph
from onward.pipeline.source import Diagnostic, Severity
from tests.pipeline.reading import place

SOURCE = """digraph flow {
    goal = "it"
    model_stylesheet = "* { llm_model: m }"
    start; exit
    a [prompt="Do $goal"]
    start -> a -> exit
}"""


def built(*transforms: Any) -> Graph:
    return build(SOURCE, file="flow.dot", transforms=transforms).graph


def refusal(transform: Any) -> str:
    """What a person is told about a transform that failed, without the advice."""
    with pytest.raises(InvalidPipeline) as caught:
        built(transform)
    (diagnostic,) = caught.value.diagnostics
    return place(diagnostic)


@dataclass(frozen=True)
class Append:
    """A transform with a setting."""

    text: str

    def apply(self, graph: Graph) -> Graph:
        node = graph.nodes["a"]
        return replace(
            graph, nodes={**graph.nodes, "a": node.with_attrs({"prompt": node.prompt + self.text})}
        )


def test_an_object_with_apply_is_a_transform_like_a_function() -> None:
    """D73, D75: they follow one another in the order they were given."""
    assert built(Append("!"), Append("?"), lambda graph: graph).nodes["a"].prompt == "Do it!?"


def test_ones_own_transforms_come_after_the_goal_and_the_stylesheet() -> None:
    """D72, D74, D75: they see what the built-in ones did, and the checks see what they did."""
    seen: list[tuple[str, str]] = []

    def look(graph: Graph) -> Graph:
        seen.append((graph.nodes["a"].prompt, graph.nodes["a"].llm_model))
        return replace(
            graph, nodes={**graph.nodes, "a": graph.nodes["a"].with_attrs({"max_retries": "many"})}
        )

    with pytest.raises(InvalidPipeline, match="max_retries of node 'a' is 'many'"):
        built(look)
    assert seen == [("Do it", "m")]


def test_a_transform_that_raises_is_named_in_one_sentence() -> None:
    def explode(graph: Graph) -> Graph:
        raise ValueError("no luck\nat all")

    assert refusal(explode) == "1:1 transform transform 'explode' raised ValueError: no luck"


def test_a_transform_that_changes_the_graph_it_was_given_is_stopped() -> None:
    """D73: what was read cannot be changed, only replaced."""

    def scribble(graph: Graph) -> Graph:
        graph.nodes["a"].attrs["prompt"] = "mine"  # type: ignore[index]
        return graph

    assert refusal(scribble).startswith("1:1 transform transform 'scribble' raised TypeError: ")


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (None, "returned None, not a graph"),
        ("a", "returned a str, not a graph"),
        (Graph(nodes={"x": "y"}), "returned a graph whose node 'x' is a str"),  # type: ignore[dict-item]
        (Graph(nodes=["x"]), "returned a graph whose nodes are a list, not a mapping by id"),  # type: ignore[arg-type]
        (Graph(edges=("x",)), "returned a graph whose edges contain a str"),  # type: ignore[arg-type]
    ],
)
def test_a_transform_that_returns_no_graph_is_named_in_one_sentence(result: Any, said: str) -> None:
    def forget(graph: Graph) -> Any:
        return result

    assert refusal(forget) == f"1:1 transform transform 'forget' {said}"


def test_a_transform_that_renames_a_node_by_half_is_named() -> None:
    def rename(graph: Graph) -> Graph:
        return replace(graph, nodes={**graph.nodes, "b": graph.nodes["a"]})

    assert refusal(rename) == (
        "1:1 transform transform 'rename' returned a graph whose node 'b' has the id 'a'"
    )


def test_a_transform_may_refuse_a_pipeline_in_its_own_words() -> None:
    def forbid(graph: Graph) -> Graph:
        raise InvalidPipeline([Diagnostic("house_rule", Severity.ERROR, "not here", graph.file, 3, 1)])

    assert refusal(forbid) == "3:1 house_rule not here"


def test_edges_that_a_transform_adds_are_numbered_by_their_place() -> None:
    """A run remembers the edge it took by its number."""

    def detour(graph: Graph) -> Graph:
        return replace(graph, edges=(Edge("start", "exit"), *graph.edges))

    assert [edge.order for edge in built(detour).edges] == [0, 1, 2]


@pytest.mark.parametrize(
    ("transform", "said"), [(Append, "Append is a class; register an object"), (7, "int is not a transform")]
)
def test_what_can_be_no_transform_is_refused_when_it_is_registered(transform: Any, said: str) -> None:
    app = Onward(":memory:")
    with pytest.raises(InvalidInput, match=said):
        app.transform(transform)
    assert app.transforms == []


async def test_an_app_applies_its_transforms_in_the_order_of_their_registration() -> None:
    """D75: on the Python surface."""
    app = Onward(":memory:")
    app.transform(Append("!"))

    @app.transform
    def question(graph: Graph) -> Graph:
        return Append("?").apply(graph)

    transforms: list[Transform] = app.transforms
    assert transforms == [Append("!"), question]
    async with app:
        assert (await app.pipeline(SOURCE)).graph.nodes["a"].prompt == "Do it!?"
