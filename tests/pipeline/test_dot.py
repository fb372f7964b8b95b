"""What the dialect accepts, and what it means."""

from __future__ import annotations

import pytest

from onward.pipeline.dot import parse
from onward.pipeline.graph import Duration
from tests.pipeline.reading import FILE, body, edge_to, graph_of, pairs, warnings


def test_a_linear_pipeline_is_read() -> None:
    """P1, D1: start -> A -> B -> done."""
    graph = graph_of(
        """
        digraph Linear {
            start [shape=Mdiamond]
            A [prompt="do a"]
            B [prompt="do b"]
            done [shape=Msquare]
            start -> A -> B -> done
        }
        """
    )
    assert graph.name == "Linear"
    assert list(graph.nodes) == ["start", "A", "B", "done"]
    assert pairs(graph) == [("start", "A"), ("A", "B"), ("B", "done")]
    assert (graph.start_id, graph.exit_id) == ("start", "done")


def test_graph_attributes_come_from_blocks_and_from_declarations() -> None:
    """P2, D2: goal, label and stylesheet; dotted keys inside a block."""
    graph = body(
        """
        graph [goal="Ship", tool_hooks.pre="lint"]
        label = "My pipeline"
        model_stylesheet = "* { llm_model: m; }"
        rankdir = LR
        """
    )
    assert dict(graph.attrs) == {
        "goal": "Ship",
        "tool_hooks.pre": "lint",
        "label": "My pipeline",
        "model_stylesheet": "* { llm_model: m; }",
        "rankdir": "LR",
    }
    assert graph.goal == "Ship"


def test_a_block_may_span_lines() -> None:
    """P3, D3: newlines and comments inside a block."""
    graph = body(
        """
        A [
            label = "First",  // what people see
            prompt = "Do it", /* what the
                                 model sees */
            max_retries = 2
        ]
        """
    )
    assert dict(graph.nodes["A"].attrs) == {"label": "First", "prompt": "Do it", "max_retries": 2}


def test_edge_attributes_are_read() -> None:
    """D4: label, condition, weight, loop_restart."""
    edge = edge_to(body('A -> B [label="go", condition="outcome=success", weight=3, loop_restart=true]'), "B")
    assert (edge.label, edge.condition, edge.weight, edge.loop_restart) == ("go", "outcome=success", 3, True)


def test_an_edge_without_attributes_has_the_defaults() -> None:
    """D4: nothing written."""
    edge = edge_to(body("A -> B"), "B")
    assert (edge.label, edge.condition, edge.weight, edge.loop_restart) == ("", "", 0, False)


def test_a_chain_becomes_one_edge_per_pair_with_all_attributes() -> None:
    """D5: A -> B -> C [attrs]."""
    graph = body("A -> B -> C [weight=2]; C -> A")
    assert [(edge.source, edge.target, edge.weight, edge.order) for edge in graph.edges] == [
        ("A", "B", 2, 0),
        ("B", "C", 2, 1),
        ("C", "A", 0, 2),
    ]


def test_an_edge_does_not_declare_its_ends() -> None:
    """V4: otherwise no edge could ever name a node that does not exist."""
    assert list(body("A -> B").nodes) == []


def test_defaults_hold_for_later_declarations_only() -> None:
    """D6: before, after, overridden, and replaced."""
    graph = body(
        """
        A
        node [shape=hexagon, timeout=5s]; edge [weight=7]
        B
        C [shape=box]
        node [timeout=6s]
        D
        A -> B
        B -> C [weight=1]
        """
    )
    assert [(node.shape, node.timeout_s) for node in graph.nodes.values()] == [
        ("box", None),
        ("hexagon", 5.0),
        ("box", 5.0),
        ("hexagon", 6.0),
    ]
    assert [edge.weight for edge in graph.edges] == [7, 1]


def test_subgraphs_are_flattened_and_their_defaults_stay_inside() -> None:
    """D7: the content is kept, outer defaults are inherited, inner ones end with the braces."""
    graph = body(
        """
        node [timeout=1s]
        subgraph cluster_loop {
            node [thread_id="loop", timeout=2s]
            A
            subgraph { node [timeout=3s]; edge [weight=9]; B; A -> B }
            C
        }
        D
        C -> D
        """
    )
    assert [(node.id, node.timeout_s, node.text("thread_id")) for node in graph.nodes.values()] == [
        ("A", 2.0, "loop"),
        ("B", 3.0, "loop"),
        ("C", 2.0, "loop"),
        ("D", 1.0, ""),
    ]
    assert [edge.weight for edge in graph.edges] == [9, 0]


def test_a_labelled_subgraph_gives_its_nodes_a_class() -> None:
    """D8: a node's own classes, then those of its subgraphs from the inside out, wherever the label is."""
    graph = body(
        """
        subgraph outer {
            A [class="fast, careful,fast, "]
            subgraph { B; graph [label="In & Out 2"] }
            label = "Loop A"
        }
        C
        subgraph { label="!!"; D }
        """
    )
    assert {node.id: node.classes for node in graph.nodes.values()} == {
        "A": ("fast", "careful", "loop-a"),
        "B": ("in--out-2", "loop-a"),
        "C": (),
        "D": (),
    }
    assert graph.nodes["A"].derived == ("loop-a",)
    assert "label" not in graph.attrs


def test_a_node_named_again_inside_a_subgraph_belongs_to_it() -> None:
    """D8: belonging is a matter of where a node is named; defaults of where it is first declared."""
    node = body('A [prompt=x]; subgraph { label="Late"; node [shape=house]; A }').nodes["A"]
    assert node.classes == ("late",)
    assert node.shape == "box"


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("LR", "LR"),
        ("wait.human", "wait.human"),
        ("summary:high", "summary:high"),
        ("claude-opus-4-6", "claude-opus-4-6"),
        ("_x", "_x"),
        ("true", True),
        ("false", False),
        ("True", "True"),
        ("0", 0),
        ("-12", -12),
        ("1.5", 1.5),
        ("-.5", -0.5),
        ("250ms", Duration(0.25, "250ms")),
        ("900s", Duration(900.0, "900s")),
        ("15m", Duration(900.0, "15m")),
        ("2h", Duration(7200.0, "2h")),
        ("1d", Duration(86400.0, "1d")),
        ('"900s"', "900s"),
        ('""', ""),
        ('"a // b /* c */"', "a // b /* c */"),
        ('"say \\"hi\\"\\n\\tto \\\\n"', 'say "hi"\n\tto \\n'),
        ('"two\nlines"', "two\nlines"),
        ('"ünïcödé → 🙂"', "ünïcödé → 🙂"),
    ],
)
def test_values_are_quoted_or_not(written: str, value: object) -> None:
    """D9: every kind of value, in every place where one can stand."""
    for form in ("A [x={}]", "A [x = {} , y=1]", "A [\nx={}\n]", "graph [x={}]", "x={}", "A -> B [x={}]"):
        graph = body(form.format(written))
        owner = graph.nodes["A"] if "A" in graph.nodes else graph.edges[0] if graph.edges else graph
        assert owner.attrs["x"] == value, form
        assert type(owner.attrs["x"]) is type(value), form


@pytest.mark.parametrize("text", ["", "# x\n", "\ufeff# x\n", "# x\r", "#!/usr/bin/env onward\n# y\n"])
def test_a_line_that_begins_with_a_number_sign_is_a_comment(text: str) -> None:
    """As for Graphviz: a file may begin with its licence, or with the program that runs it."""
    source = 'digraph G {\n# about A\nA [label="a\n# b",\n# more\nprompt=p]\n#\n}'
    graph = graph_of(text + source)
    assert (list(graph.nodes), graph.nodes["A"].label) == (["A"], "a\n# b")


def test_comments_are_removed_everywhere_but_in_strings() -> None:
    """D10: both forms, before, between and after."""
    graph = graph_of(
        '// one\n/* two */ digraph /* { */ G { // }\n A /**/ [ /* ] */ x="//" ] // end\n} /* three */ // four'
    )
    assert graph.nodes["A"].attrs["x"] == "//"


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_every_kind_of_line_end_counts_as_one(newline: str) -> None:
    """D1: positions are the same whatever the editor writes; a comment ends with its line."""
    graph = graph_of(newline.join(["digraph G { // first", "  A", "  B -> C", "}"]))
    assert (graph.nodes["A"].line, graph.nodes["A"].column) == (2, 3)
    assert (graph.edges[0].line, graph.edges[0].column) == (3, 3)


def test_positions_are_exact() -> None:
    """D20: of the graph, of nodes, of each edge of a chain, and of values."""
    graph = graph_of('\n  digraph G {\n\tA; B [x="1",\n  yy = ok]; A -> B ->\n C }')
    assert (graph.line, graph.column) == (2, 3)
    assert [(node.line, node.column) for node in graph.nodes.values()] == [(3, 2), (3, 5)]
    assert [(edge.line, edge.column) for edge in graph.edges] == [(4, 13), (4, 18)]
    assert graph.nodes["B"].written["x"].position == (3, 10)
    assert graph.nodes["B"].written["yy"].position == (4, 8)


def test_a_place_past_the_end_of_a_value_is_its_end() -> None:
    """D20: whoever asks for it, the answer stays inside the file."""
    graph = body('x="ab"; y=ab')
    assert graph.written["x"].at(9) == (2, 6)
    assert graph.written["y"].at(9) == (2, 13)


def test_a_byte_order_mark_is_not_seen() -> None:
    """D1: it takes up no column."""
    graph = parse("\ufeffdigraph G { A }\n", file=FILE).graph
    assert (graph.line, graph.column) == (1, 1)
    assert (graph.nodes["A"].line, graph.nodes["A"].column) == (1, 13)


def test_semicolons_are_optional_and_may_repeat() -> None:
    """D1: also none at all between two statements of one line."""
    graph = body(";; A; B C;; x=1 y=2; D -> E F -> G;")
    assert list(graph.nodes) == ["A", "B", "C"]
    assert pairs(graph) == [("D", "E"), ("F", "G")]
    assert dict(graph.attrs) == {"x": 1, "y": 2}


@pytest.mark.parametrize("text", ["digraph { A }", "digraph{A[]}", "digraph G { subgraph { A [] } }"])
def test_names_and_blocks_may_be_empty(text: str) -> None:
    """D1: an anonymous graph, an anonymous subgraph, an empty block."""
    assert list(graph_of(text).nodes) == ["A"]


def test_unknown_attributes_are_kept() -> None:
    """D1: custom handlers rely on them."""
    assert body('A [my.own_key="x"]').nodes["A"].text("my.own_key") == "x"


def test_keywords_are_case_sensitive() -> None:
    """D1: only the lower-case words are reserved."""
    assert len(body("Node; Graph; Edge; Subgraph; Strict; Digraph").nodes) == 6


def test_a_bare_value_ends_before_an_arrow_and_a_comment() -> None:
    """D9: hyphens and slashes do not run on."""
    graph = body("x=a-b// no\ny=c/* no */;A->B")
    assert dict(graph.attrs) == {"x": "a-b", "y": "c"}


def test_other_separators_are_accepted_with_a_warning() -> None:
    """D1: ';', a new line, and a comma before the bracket."""
    text = "digraph G {\n A [x=1; y=2\n z=3,\n]\n}"
    assert warnings(text) == [
        "2:8 separator attributes are separated by ','",
        "3:2 separator a ',' is missing before 'z'",
        "3:5 separator nothing follows this ','",
    ]
    assert dict(parse(text, file=FILE).graph.nodes["A"].attrs) == {"x": 1, "y": 2, "z": 3}


def test_an_attribute_written_twice_is_a_warning_and_the_last_one_counts() -> None:
    text = "digraph G { A [x=1, x=2; x=3] }"
    assert warnings(text) == [
        "1:21 repeated_attribute attribute 'x' is set twice; the last one applies",
        "1:24 separator attributes are separated by ','",
        "1:26 repeated_attribute attribute 'x' is set twice; the last one applies",
    ]
    assert parse(text, file=FILE).graph.nodes["A"].attrs["x"] == 3


def test_a_node_declared_twice_is_a_warning_and_the_attributes_add_up() -> None:
    text = "digraph G {\n A [x=1, y=1]\n A [y=2]\n A\n}"
    assert warnings(text) == ["3:2 repeated_node node 'A' is declared again, which adds to line 2"]
    assert dict(parse(text, file=FILE).graph.nodes["A"].attrs) == {"x": 1, "y": 2}


def test_an_unknown_escape_is_kept_with_a_warning_at_its_place() -> None:
    text = 'digraph G {\n A [x="a\\n\\d\\\\d"]\n}'
    assert warnings(text) == ["2:11 unknown_escape '\\' before 'd' has no meaning and is kept unchanged"]
    assert parse(text, file=FILE).graph.nodes["A"].attrs["x"] == "a\n\\d\\d"
