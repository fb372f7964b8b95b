"""Texts that were written to hurt: each is answered with diagnostics, soon, and never with a traceback."""

from __future__ import annotations

import pytest

from onward.errors import InvalidPipeline
from onward.pipeline.build import build
from onward.pipeline.dot import SUBGRAPH_DEPTH_MAX, parse, read
from onward.pipeline.draft import ATTRIBUTES_MAX, CLASSES_MAX, DIAGNOSTICS_MAX, EDGES_MAX, NODES_MAX
from onward.pipeline.source import SOURCE_BYTES_MAX, TOKENS_MAX, decode
from tests.pipeline.reading import FILE, errors, place

MIB = SOURCE_BYTES_MAX
# A reader that stalls fails here; a slow machine needs a tenth of this.
pytestmark = pytest.mark.timeout(120)


def filled(start: str, unit: str, end: str = "") -> str:
    """A text of the greatest allowed length."""
    room = MIB - len((start + end).encode("utf-8", "surrogatepass"))
    return start + unit * (room // len(unit.encode())) + end


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("digraph G {" + "subgraph {" * 100_000, "limit"),
        ("digraph G {" + "subgraph {" * 60_000 + "}" * 60_000, "limit"),
        (filled("digraph {", "{"), "unsupported"),
        (filled("digraph { a -> ", "{"), "unsupported"),
        (filled("digraph { a ", "["), "syntax"),
        (filled("digraph { a [x=", "["), "syntax"),
        (filled("digraph {", ";", "}"), "limit"),
        (filled("digraph {", "a;", "}"), "limit"),
        (filled("digraph {", "a\n", "}"), "limit"),
        (filled("digraph {", "a->", "}"), "limit"),
        (filled("digraph {", "a=1 ", "}"), "limit"),
        (filled("digraph { a[", "a=1,", "a=1]}"), "limit"),
        (filled("digraph {", "node[a=1]", "}"), "limit"),
        (filled("digraph {", "subgraph{a}", "}"), "limit"),
        (filled("digraph {", "@"), "syntax"),
        (filled("", "@"), "syntax"),
        (filled("digraph {", "@\n"), "syntax"),
        (filled('digraph { a [x="', "\\n"), "syntax"),
        (filled("digraph { a [x=", "9", "] }"), "syntax"),
        (filled("digraph { a [x=", ".5", "] }"), "syntax"),
        (filled("digraph { ", "a.", "a }"), "syntax"),
        (filled("digraph { /", "*"), "syntax"),
        (filled('digraph { node [class="', "a,", '"] a }'), "limit"),
        (filled("\0", "a"), "encoding"),
        (filled("\ud800", "a"), "encoding"),
        ('digraph { a [label="\udfff"] }', "encoding"),
    ],
    ids=lambda value: repr(value[:24]),
)
def test_a_bomb_is_refused(text: str, rule: str) -> None:
    """S22: depth, length, number, and what cannot be stored."""
    found = read(text, file=FILE).errors
    assert found[0].rule == rule or found[-1].rule == rule
    assert len(found) <= DIAGNOSTICS_MAX + 1


@pytest.mark.parametrize(
    "text",
    [
        filled('digraph { a [prompt="', "x", '"] }'),
        filled('digraph { a [prompt="', "\\n", '"] }'),
        filled('digraph { a [prompt="', "\\q", '"] }'),
        filled('digraph { a [prompt="', "🙂", '"] }'),
        filled("digraph {", "/**/", "}"),
        filled("digraph {", "//\r\n", "}"),
        filled("digraph {", " ", "}"),
        filled("digraph { x=", "b-", "}"),
    ],
    ids=lambda text: repr(text[:24]),
)
def test_a_long_text_that_is_in_order_is_read(text: str) -> None:
    """S22: length alone is no fault."""
    parse(text, file=FILE)


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("character", ["a", "é"])
def test_the_source_may_be_as_long_as_the_limit_in_bytes(character: str, extra: int) -> None:
    """S22: at the limit and one past it, for text and for bytes."""
    width = len(character.encode())
    frame = 'digraph{a=""}'
    filler = (MIB - len(frame)) % width
    text = f'digraph{{a="{character * ((MIB - len(frame)) // width)}{"x" * (filler + extra)}"}}'
    assert len(text.encode()) == MIB + extra
    expected = [] if extra == 0 else [f"1:1 limit the file is longer than {MIB:,} bytes"]
    assert errors(text) == expected
    if extra:
        with pytest.raises(InvalidPipeline, match="longer than"):
            decode(text.encode(), FILE)
    else:
        assert decode(text.encode(), FILE) == text


@pytest.mark.parametrize("extra", [0, 1])
def test_there_may_be_as_many_nodes_as_the_limit(extra: int) -> None:
    """S22: 5,000 nodes."""
    found = errors("digraph {" + ";".join(f"n{number}" for number in range(NODES_MAX + extra)) + "}")
    assert [error.split(" ", 1)[1] for error in found] == [
        "limit the pipeline has more than 5,000 nodes"
    ] * extra


@pytest.mark.slow
@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("statement", ["a->b;", "a->a"])
def test_there_may_be_as_many_edges_as_the_limit(statement: str, extra: int) -> None:
    """S22: 20,000 edges, one by one or in a chain."""
    count = EDGES_MAX + extra
    text = statement * count if ";" in statement else "->".join(["a"] * (count + 1))
    found = errors(f"digraph {{{text}}}")
    assert [error.split(" ", 1)[1] for error in found] == [
        "limit the pipeline has more than 20,000 edges"
    ] * extra


@pytest.mark.parametrize("extra", [0, 1])
def test_subgraphs_may_nest_as_deep_as_the_limit(extra: int) -> None:
    """S22: 64 deep."""
    depth = SUBGRAPH_DEPTH_MAX + extra
    found = errors("digraph {" + "subgraph {" * depth + "}" * depth + "}")
    assert [error.split(" ", 1)[1] for error in found] == [
        "limit subgraphs are nested more than 64 deep"
    ] * extra


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize(
    "form", ["a [{}]", "node [{}]", "edge [{}]", "graph [{}]", "a [{}, x=1]", "a -> b [{}]"]
)
def test_one_place_may_have_as_many_attributes_as_the_limit(form: str, extra: int) -> None:
    """S22: defaults must not multiply a small file."""
    count = ATTRIBUTES_MAX + extra - form.count("x=1")
    found = errors("digraph { " + form.format(", ".join(f"k{number}=1" for number in range(count))) + " }")
    opened = form.index("[") + 11
    assert found == [f"1:{opened} limit more than {ATTRIBUTES_MAX} attributes in one place"] * extra


def test_attributes_of_the_graph_add_up() -> None:
    """S22: one by one they are limited too."""
    found = errors("digraph {\n" + "\n".join(f"k{number}=1" for number in range(ATTRIBUTES_MAX + 1)) + "}")
    assert found == [f"66:1 limit more than {ATTRIBUTES_MAX} attributes in one place"]


def test_skipping_a_group_ends_at_the_same_depth() -> None:
    """S22: what is not read is not followed for ever either."""
    depth = SUBGRAPH_DEPTH_MAX + 1
    assert errors("digraph { a -> " + "{" * depth + "}" * depth + "}") == [
        "1:16 unsupported a subgraph cannot be the end of an edge",
        "1:80 limit groups are nested more than 64 deep",
    ]


def test_defaults_count_towards_the_attributes_of_a_node() -> None:
    """S22: the sum of both is limited too."""
    defaults = ", ".join(f"k{number}=1" for number in range(ATTRIBUTES_MAX))
    assert errors(f"digraph {{\nnode [{defaults}]\na\nb [x=1] }}") == [
        f"4:1 limit more than {ATTRIBUTES_MAX} attributes in one place"
    ]


@pytest.mark.parametrize("extra", [0, 1])
def test_a_node_may_have_as_many_classes_as_the_limit(extra: int) -> None:
    """S22: 64 classes."""
    classes = ",".join(f"c{number}" for number in range(CLASSES_MAX + extra))
    assert (
        errors(f'digraph {{ a [class="{classes}"] }}')
        == ["1:11 limit node 'a' has more than 64 classes"] * extra
    )


def test_reading_stops_after_so_many_errors() -> None:
    """S22: the hundred-and-first line says that there may be more."""
    found = read("digraph {\n" + "A -- B\n" * 1_000 + "}", file=FILE).errors
    assert len(found) == DIAGNOSTICS_MAX + 1
    assert [place(error) for error in found if error.rule == "limit"] == [
        "101:3 limit reading stops after 100 errors"
    ]


def test_only_so_many_warnings_are_kept() -> None:
    """S22: warnings are for reading."""
    assert len(parse("digraph {" + "a [x=1,];" * 1_000 + "}", file=FILE).warnings) == DIAGNOSTICS_MAX


def test_a_short_goal_expands_and_a_bomb_does_not() -> None:
    """S22, C22: half a mebibyte named a hundred thousand times would be fifty gibibytes."""
    text = 'digraph {{ goal="{}" start; a [prompt="{}"]; exit; start -> a -> exit }}'
    assert build(text.format("x", "$goal" * 1_000), file=FILE).graph.nodes["a"].prompt == "x" * 1_000
    with pytest.raises(InvalidPipeline) as caught:
        build(text.format("x" * (MIB // 2), "$goal" * 90_000), file=FILE)
    assert [error.rule for error in caught.value.diagnostics] == ["limit"]


def test_many_nodes_with_one_long_prompt_share_its_expansion() -> None:
    """S22, C22: the same text is expanded once."""
    nodes = ";".join(f"n{number}" for number in range(1_000))
    text = f'digraph {{ goal="{"x" * 100_000}" node [prompt="Do $goal"] {nodes} }}'
    with pytest.raises(InvalidPipeline) as caught:
        build(text, file=FILE)
    assert "limit" not in {error.rule for error in caught.value.diagnostics}


@pytest.mark.slow
def test_more_words_than_any_pipeline_needs_are_refused() -> None:
    """S22: the total is bounded whatever they are."""
    assert errors(filled("digraph {", ";", "}"))[0].endswith(
        f"limit there are more than {TOKENS_MAX:,} tokens"
    )
