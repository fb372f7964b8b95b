"""The model stylesheet decides what nodes leave open (D8, D66 to D71, P18)."""

from __future__ import annotations

from itertools import combinations

import pytest

from onward.pipeline.build import build, changed_nodes, prepared
from onward.pipeline.dot import parse
from onward.pipeline.graph import Graph, Node
from onward.pipeline.stylesheet import apply_stylesheet
from tests.pipeline.reading import FILE, body


def styled(sheet: str, statements: str) -> Graph:
    """Some statements under a stylesheet, prepared as for a run."""
    return prepared(body(f'model_stylesheet = "{sheet}"\n{statements}'))


def model(sheet: str, statements: str, node_id: str = "a") -> str:
    """The model that a node ends up with."""
    return styled(sheet, statements).nodes[node_id].llm_model


def test_the_stylesheet_is_read_from_the_graphs_attribute_over_several_lines() -> None:
    """D66: the form of the dialect's own examples."""
    sheet = """
        * { llm_model: claude-sonnet-4-5; llm_provider: anthropic; }
        .code { llm_model: claude-opus-4-6; }
        #review { llm_model: \\"gpt-5.2\\"; llm_provider: openai; reasoning_effort: low }
    """
    graph = styled(sheet, "plan\ncode [class=code]\nreview [class=code]")
    assert [(node.llm_model, node.llm_provider, node.reasoning_effort) for node in graph.nodes.values()] == [
        ("claude-sonnet-4-5", "anthropic", "high"),
        ("claude-opus-4-6", "anthropic", "high"),
        ("gpt-5.2", "openai", "low"),
    ]


def test_a_shape_selects() -> None:
    """D67, P18: a node without a shape is a box."""
    graph = styled("box { llm_model: b } hexagon { llm_model: h }", "a\nb [shape=hexagon]\nc [shape=house]")
    assert [node.llm_model for node in graph.nodes.values()] == ["b", "h", ""]


def test_a_class_selects_whether_written_or_derived() -> None:
    """D8, D68: a list of classes, and the label of a subgraph."""
    graph = styled(
        ".fast { llm_model: f } .loop-a { llm_model: l }",
        'a [class="slow, fast"]\nsubgraph { label="Loop A"\n b }\nc [class="fastest"]',
    )
    assert [node.llm_model for node in graph.nodes.values()] == ["f", "l", ""]


def test_an_id_selects_one_node() -> None:
    """D69."""
    graph = styled("#b { llm_model: x }", "a\nb\nB")
    assert [node.llm_model for node in graph.nodes.values()] == ["", "x", ""]


SELECTORS = [
    "* { llm_model: all }",
    "box { llm_model: shape }",
    ".c { llm_model: class }",
    "#a { llm_model: id }",
]


@pytest.mark.parametrize(("weaker", "stronger"), list(combinations(SELECTORS, 2)))
def test_the_more_specific_selector_wins_wherever_it_stands(weaker: str, stronger: str) -> None:
    """D70: `*`, shape, class, id, in this order of strength."""
    winner = stronger.split()[-2]
    assert model(weaker + stronger, "a [class=c]") == winner
    assert model(stronger + weaker, "a [class=c]") == winner


@pytest.mark.parametrize("selector", ["*", "box", "#a", ".c"])
def test_of_equally_specific_rules_the_later_wins(selector: str) -> None:
    """D70."""
    sheet = f"{selector} {{ llm_model: first }} {selector} {{ llm_model: second; llm_model: third }}"
    assert model(sheet, "a [class=c]") == "third"


def test_of_two_classes_the_later_rule_wins_and_not_the_later_class() -> None:
    """D70: the order of a node's classes means nothing."""
    sheet = ".x { llm_model: x } .y { llm_model: y }"
    assert model(sheet, 'a [class="x,y"]') == model(sheet, 'a [class="y,x"]') == "y"


def test_properties_are_resolved_one_by_one() -> None:
    """D70: a stronger rule that says nothing about a property leaves it to the weaker."""
    node = styled("* { llm_model: m; reasoning_effort: low } #a { llm_provider: p }", "a").nodes["a"]
    assert (node.llm_model, node.llm_provider, node.reasoning_effort) == ("m", "p", "low")


def test_what_the_node_says_wins() -> None:
    """D71: an attribute, or a default of its scope; property by property."""
    sheet = "* { llm_model: m; reasoning_effort: low } #a { llm_model: id } #b { llm_model: id }"
    graph = styled(sheet, "a [llm_model=own]\nnode [llm_model=scoped]\nb\nc [llm_model=own]")
    assert [node.llm_model for node in graph.nodes.values()] == ["own", "scoped", "own"]
    assert {node.reasoning_effort for node in graph.nodes.values()} == {"low"}


def test_the_order_is_node_stylesheet_graph_handler() -> None:
    """D71: four voices, and the last of them is silence."""
    defaults = "graph [llm_model=graph, llm_provider=house]\n"
    assert model("#a { llm_model: sheet }", defaults + "a [llm_model=node]") == "node"
    assert model("#a { llm_model: sheet }", defaults + "a") == "sheet"
    assert model("#b { llm_model: sheet }", defaults + "a") == "graph"
    node = prepared(body("a")).nodes["a"]
    assert (node.llm_model, node.llm_provider, node.reasoning_effort) == ("", "", "high")


def test_what_was_read_is_not_changed_and_nothing_is_copied_for_nothing() -> None:
    """D73: a transform gives another graph."""
    graph = body('model_stylesheet="* { llm_model: m }"; a; b [llm_model=own]')
    after = apply_stylesheet(graph)
    assert (graph.nodes["a"].llm_model, after.nodes["a"].llm_model) == ("", "m")
    assert after.nodes["b"] is graph.nodes["b"]
    plain = body("a")
    assert apply_stylesheet(plain) is plain


def test_a_stylesheet_that_does_not_parse_styles_nothing_and_is_an_error_of_its_own() -> None:
    """V8: the checker says what is wrong, so nobody runs with half a stylesheet."""
    graph = body('model_stylesheet="* { llm_model: m } box {"; graph [llm_model=g]; a')
    assert apply_stylesheet(graph).nodes["a"].llm_model == "g"


def test_a_change_of_the_stylesheet_is_a_change_of_the_nodes_it_touches() -> None:
    """K6, O8: who resumes after an edit is told which nodes now ask for another model."""
    old, new = (styled(f".deep {{ llm_model: {name} }}", "a [class=deep]\nb") for name in ("m1", "m2"))
    assert changed_nodes(old, new) == ("a",)


def test_a_thousand_rules_for_five_thousand_nodes_are_soon_applied() -> None:
    """S22: a node costs what is said about it."""
    rules = " ".join(f".c{number} {{ llm_model: m{number} }}" for number in range(1_000))
    nodes = "\n".join(f"n{number} [class=c{number % 1_000}]" for number in range(4_000))
    text = f'digraph {{ model_stylesheet = "{rules}"\n{nodes} }}'
    graph = apply_stylesheet(parse(text, file=FILE).graph)
    assert graph.nodes["n3999"].llm_model == "m999"


def test_an_unknown_effort_is_pointed_at_where_it_is_written() -> None:
    """D20: also inside the stylesheet, and once rather than for every node it touches."""
    source = """digraph {
        graph [reasoning_effort=huge]
        model_stylesheet = "* { reasoning_effort:
            highest }"
        start; exit; a [label=a, reasoning_effort=hgih]; start -> a -> exit
    }"""
    warnings = build(source, file=FILE).warnings
    assert [(warning.line, warning.message) for warning in warnings] == [
        (2, "reasoning_effort is 'huge'"),
        (3, "reasoning_effort is 'highest'"),
        (5, "reasoning_effort is 'hgih'"),
    ]


def test_nodes_that_a_program_makes_are_read_the_same_way() -> None:
    """D71: the typed properties do not depend on a file."""
    node = Node("a", {"llm_model": "m", "reasoning_effort": ""})
    assert (node.llm_model, node.llm_provider, node.reasoning_effort) == ("m", "", "high")
