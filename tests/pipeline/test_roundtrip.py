"""Generated graphs, written in random style and read again."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, composite

from onward.pipeline.dot import RESERVED, parse
from onward.pipeline.graph import Value
from onward.pipeline.source import Duration
from tests.pipeline.reading import FILE

WORD = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
IDS = WORD.filter(lambda word: word not in RESERVED)
KEYS = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,4}(\.[a-z_]{1,4}){0,2}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
BARE = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.:]{0,8}(-[A-Za-z0-9])?", fullmatch=True)
DURATIONS = st.builds(
    lambda count, unit: Duration.parse(f"{count}{unit}"),
    st.integers(0, 9_999),
    st.sampled_from(["ms", "s", "m", "h", "d"]),
)
VALUES = st.one_of(
    TEXTS,
    BARE,
    DURATIONS,
    st.booleans(),
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.decimals(-1_000, 1_000, places=3).map(float),
)
ATTRS = st.dictionaries(KEYS, VALUES, max_size=3)
SPACES = st.sampled_from(["", " ", "\n", "\t", " // note\n", "/* * */", "\r\n"])

Edges = list[tuple[str, str, dict[str, Value]]]


def written(value: Value) -> str:
    """A value as a careful person would write it."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | Duration():
            return str(value)
        case float():
            return f"{value:.3f}"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


@composite
def spaced(draw: DrawFn, tokens: list[str]) -> str:
    """Tokens in some style of spacing; words never run together."""
    style = draw(st.lists(SPACES, min_size=1, max_size=7))
    return "".join(f"{token} {space}" for token, space in zip(tokens, cycle(style), strict=False))


def block(attrs: Mapping[str, Value]) -> list[str]:
    """The tokens of a block."""
    tokens = ["["]
    for key, value in attrs.items():
        tokens += [key, "=", written(value), ","]
    return [*tokens[:-1], "]"] if attrs else ["[", "]"]


@composite
def graphs(draw: DrawFn) -> tuple[str, dict[str, Value], dict[str, dict[str, Value]], Edges]:
    """A text, and what it says."""
    attrs = draw(ATTRS)
    nodes = draw(st.dictionaries(IDS, ATTRS, max_size=5))
    ends = st.sampled_from(sorted(nodes)) if nodes else IDS
    edges = draw(st.lists(st.tuples(ends, ends, ATTRS), max_size=5))
    tokens = ["digraph", draw(IDS), "{", "graph", *block(attrs)]
    for node_id, node_attrs in nodes.items():
        tokens += [node_id, *block(node_attrs), *draw(st.sampled_from([[], [";"]]))]
    for source, target, edge_attrs in edges:
        tokens += [source, "->", target, *block(edge_attrs)]
    return draw(spaced([*tokens, "}"])), attrs, nodes, edges


@pytest.mark.slow
@given(graphs())
def test_what_is_written_is_read(
    case: tuple[str, dict[str, Value], dict[str, dict[str, Value]], Edges],
) -> None:
    """D1, D9: every value comes back as it went in, with its type."""
    text, attrs, nodes, edges = case
    graph = parse(text, file=FILE).graph
    assert typed(graph.attrs) == typed(attrs)
    assert {node.id: typed(node.attrs) for node in graph.nodes.values()} == {
        node_id: typed(node_attrs) for node_id, node_attrs in nodes.items()
    }
    assert [(edge.source, edge.target, typed(edge.attrs)) for edge in graph.edges] == [
        (source, target, typed(edge_attrs)) for source, target, edge_attrs in edges
    ]


def typed(attrs: Mapping[str, Value]) -> dict[str, tuple[type, Value]]:
    """Attributes with their types, because Python takes 1 and true for equal."""
    return {key: (type(value), value) for key, value in attrs.items()}


@pytest.mark.slow
@given(graphs())
def test_every_place_points_at_what_stands_there(
    case: tuple[str, dict[str, Value], dict[str, dict[str, Value]], Edges],
) -> None:
    """D20: line and column of each node and of each value, in any style of line end."""
    text = case[0]
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    graph = parse(text, file=FILE).graph
    for node in graph.nodes.values():
        assert lines[node.line - 1][node.column - 1 :].startswith(node.id)
        for key, value in node.attrs.items():
            line, column = node.written[key].position
            assert lines[line - 1][column - 1 :].startswith(written(value).split("\n")[0].split("\r")[0])


@given(TEXTS, st.data())
def test_an_offset_into_a_string_is_found_through_its_escapes(text: str, data: st.DataObject) -> None:
    """D20: a stylesheet or condition error points at the character itself."""
    source = f"digraph {{ x={written(text)} }}"
    place = parse(source, file=FILE).graph.written["x"]
    offset = data.draw(st.integers(0, len(text)))
    quoted = written(text[:offset])[:-1]
    before = f"digraph {{ x={quoted}".replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if text[offset - 1 : offset + 1] != "\r\n":
        assert place.at(offset) == (len(before), len(before[-1]) + 1)
