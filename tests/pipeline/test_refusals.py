"""What the dialect refuses: a clear sentence at the exact place, and all of them at once."""

from __future__ import annotations

import pytest

from onward.errors import InvalidPipeline
from onward.pipeline.dot import parse, read
from onward.pipeline.source import decode
from tests.pipeline.reading import FILE, errors, place


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("strict digraph G { }", "1:1 unsupported 'strict' is not supported"),
        ("graph G { }", "1:1 unsupported the graph is undirected"),
        ("digraph G { } digraph H { }", "1:15 unsupported a second graph starts here"),
        ("digraph G { A -- B }", "1:15 unsupported edges are directed"),
        ("digraph G { A [label=<b>] }", "1:22 unsupported HTML labels are not supported"),
        ("digraph G { label=<b> }", "1:19 unsupported HTML labels are not supported"),
        ('digraph G { "A b" }', "1:13 unsupported '\"A b\"' cannot be a node id"),
        ("digraph G { 12 }", "1:13 unsupported '12' cannot be a node id"),
        ('digraph G { A -> "B" }', "1:18 unsupported '\"B\"' cannot be a node id"),
        ("digraph G { A -> 7 }", "1:18 unsupported '7' cannot be a node id"),
        ("digraph G { A:n -> B }", "1:14 unsupported ports are not supported"),
        ("digraph G { A -> B:n }", "1:19 unsupported ports are not supported"),
        ("digraph G { A -> { B C } }", "1:18 unsupported a subgraph cannot be the end of an edge"),
        ("digraph G { A -> subgraph x { B } }", "1:18 unsupported a subgraph cannot be the end of an edge"),
        ("digraph G { subgraph { B } -> A }", "1:28 unsupported a subgraph cannot be the end of an edge"),
        ("digraph G { { A } }", "1:13 unsupported a group needs a keyword"),
        ('digraph "G" { }', "1:9 unsupported the graph cannot be named '\"G\"'"),
        ("digraph a.b { }", "1:9 unsupported the graph cannot be named 'a.b'"),
        ("digraph G { subgraph 1 { } }", "1:22 unsupported a subgraph cannot be named '1'"),
        ("digraph G { subgraph node { } }", "1:22 unsupported a subgraph cannot be named 'node'"),
        ('digraph G { A ["label"=x] }', "1:16 unsupported an attribute's key cannot be quoted"),
        ('digraph G { A [x="a" + "b"] }', "1:22 unsupported strings cannot be joined with '+'"),
        (
            " # no\ndigraph G { }",
            "1:2 unsupported '#' starts a comment only as the first character of a line",
        ),
        (
            "digraph G { # no\n }",
            "1:13 unsupported '#' starts a comment only as the first character of a line",
        ),
        ("", "1:1 syntax expected 'digraph NAME {', found the end of the file"),
        ("pipeline G { }", "1:1 syntax expected 'digraph NAME {', found 'pipeline'"),
        ("digraph G A { }", "1:11 syntax expected '{', found 'A'"),
        ("digraph G { A", "1:11 syntax this '{' is never closed"),
        ("digraph G { subgraph { A }", "1:11 syntax this '{' is never closed"),
        ("digraph G { subgraph {", "1:22 syntax this '{' is never closed"),
        ("digraph G { } }", "1:15 syntax expected the end of the file, found '}'"),
        ('digraph G { A [x="a] }', "1:18 syntax this string is never closed"),
        ("digraph G { A /* }", "1:15 syntax this comment is never closed"),
        ('"', "1:1 syntax this string is never closed"),
        ("digraph G { my-node }", "1:15 syntax '-' cannot be part of a node id"),
        ("digraph G { my-1 }", "1:15 syntax '-' cannot be part of a node id"),
        ("digraph G { né }", "1:14 syntax 'é' cannot be part of a node id"),
        ("digraph G { a.b }", "1:13 syntax 'a.b' is not a node id"),
        ("digraph G { a.b = 1 }", "1:13 syntax 'a.b' needs a graph block"),
        ("digraph G { node -> A }", "1:13 syntax 'node' is a reserved word and needs a block here"),
        ("digraph G { A -> node }", "1:18 syntax 'node' is a reserved word"),
        ("digraph G { strict }", "1:13 syntax 'strict' is a reserved word"),
        ("digraph G { subgraph x A }", "1:24 syntax expected '{', found 'A'"),
        ("digraph G { A [x=1] [y=2] }", "1:21 syntax a statement has only one block"),
        ("digraph G { A [x=1]\n[y=2] }", "2:1 syntax a statement has only one block"),
        ("digraph G { A ] }", "1:15 syntax expected ';' or the end of the line, found ']'"),
        ("digraph G { A ->\n }", "2:2 syntax expected a node id, found '}'"),
        ("digraph G { -> A }", "1:13 syntax expected a statement, found '->'"),
        ("digraph G { A [x] }", "1:17 syntax expected '=' after 'x', found ']'"),
        ("digraph G { A [x=] }", "1:18 syntax expected a value, found ']'"),
        ("digraph G { A [x=1,,y=2] }", "1:20 syntax expected an attribute such as label=\"...\", found ','"),
        ("digraph G { A [x=1 y=2] }", "1:20 separator a ',' is missing before 'y'"),
        ('digraph G { A [x=1 "y"] }', "1:20 syntax expected ',' or ']', found '\"y\"'"),
        ("digraph G { A [x=900sec] }", "1:18 syntax '900sec' is not a value"),
        ("digraph G { A [x=1.5s] }", "1:18 syntax '1.5s' is not a value"),
        ("digraph G { A [x=-5s] }", "1:18 syntax '-5s' is not a value"),
        ("digraph G { A [x=5.] }", "1:18 syntax '5.' is not a value"),
        ("digraph G { A [x=36501d] }", "1:18 syntax '36501d' is not a value"),
        ("digraph G { A [x=9223372036854775808] }", "1:18 syntax '9223372036854775808' is not a value"),
        ("digraph G { A [x=1 }", "1:15 syntax this '[' is never closed"),
    ],
)
def test_what_is_not_in_the_dialect_is_refused_at_its_place(text: str, expected: str) -> None:
    """D1, D20, S6: one sentence per refusal."""
    assert errors(text) == [expected]


def test_a_diagnostic_reads_as_one_line_with_its_fix() -> None:
    """D20: file, line, column, severity, rule, message and what to do."""
    with pytest.raises(InvalidPipeline) as caught:
        parse("digraph G {\n  A -- B\n}", file="flows/a.dot")
    assert str(caught.value) == "flows/a.dot:2:5: error [unsupported] edges are directed (write '->')"


def test_all_errors_of_a_file_come_at_once_and_in_order() -> None:
    """D19: one bad statement does not hide the next."""
    text = """digraph G {
  A [x=]
  B -- C
  subgraph s {
    my-node [label="x"]
    D -> { E F }
    G [label="a" "b"]
  }
  "H"
  I [
    x=1 y=2
  ]
  J [label="unclosed"
  K -> L
  M ] ; N [z=1]
  O }
"""
    reading = read(text, file=FILE)
    assert [(error.line, error.column) for error in reading.errors] == [
        (2, 8),
        (3, 5),
        (5, 7),
        (6, 10),
        (7, 18),
        (9, 3),
        (11, 9),
        (13, 5),
        (15, 5),
    ]
    assert list(reading.graph.nodes) == ["I", "J", "M", "N", "O"]
    assert [edge.target for edge in reading.graph.edges] == ["L"]
    assert not reading.whole


@pytest.mark.parametrize(
    "text",
    [
        "strict digraph G { A }",
        "digraph 'G' { A }".replace("'", '"'),
        "digraph G { A [x=1 y=2] }",
        "digraph G { { A } }",
        "digraph G { A [x=1\n B -> C }",
    ],
)
def test_an_error_that_loses_nothing_leaves_the_graph_whole(text: str) -> None:
    """D19: the rules about structure can still be asked."""
    reading = read(text, file=FILE)
    assert len(reading.errors) == 1
    assert reading.whole
    assert list(reading.graph.nodes) == ["A"]


@pytest.mark.parametrize(
    ("statements", "errors_at", "nodes"),
    [
        ("A [x=\n B -> C\n D", [(3, 4)], ["D"]),
        ("A [x=1,,\n y=[2], z=3]; D", [(2, 8)], ["D"]),
        ("A [x=, { B }\n D", [(2, 6)], ["D"]),
        ("A [x=, y=1 } D", [(2, 6), (2, 14)], []),
        ("A -> { B { C } } [x=1]\n D", [(2, 6)], ["D"]),
        ("A -> { B; C\n E } D; F", [(2, 6)], ["F"]),
        ("A -- B [\n x=1\n]\n D", [(2, 3)], ["D"]),
        ("A -- B\n [x=1]\n D", [(2, 3)], ["D"]),
        ("A -> { B", [(1, 11), (2, 6)], []),
        ("A [x=, y", [(1, 11), (2, 6)], []),
        ("]\n] ] \n D", [(2, 1), (3, 1)], ["D"]),
        ("A [x=1]\nB -- C\nD; E", [(3, 3)], ["A", "D", "E"]),
        ("A [x=1, y -> z]; D", [(2, 11)], ["D"]),
    ],
)
def test_reading_goes_on_at_the_next_statement(
    statements: str, errors_at: list[tuple[int, int]], nodes: list[str]
) -> None:
    """D19: past a block, a group, or to the end of the line."""
    closing = "" if errors_at[0] == (1, 11) else "\n}"
    reading = read(f"digraph G {{\n{statements}{closing}", file=FILE)
    assert [(error.line, error.column) for error in reading.errors] == errors_at
    assert list(reading.graph.nodes) == nodes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('digraph G {\n A [x="\0"]', "2:8 encoding the text contains a NUL character"),
        ('digraph G {\n A [x="\ud83d"]', "2:8 encoding the text contains half a surrogate pair (U+D83D)"),
        ('digraph G { A [x="a] }', "1:18 syntax this string is never closed"),
        ("digraph G { } }", "1:15 syntax expected the end of the file, found '}'"),
    ],
)
def test_what_ends_the_reading_leaves_a_graph_with_holes(text: str, expected: str) -> None:
    """D19, S22: what follows is unknown, so no rule about structure may judge."""
    reading = read(text, file=FILE)
    assert [place(error) for error in reading.errors] == [expected]
    assert not reading.whole


def test_bytes_that_are_not_utf_8_are_refused_at_their_place() -> None:
    """D20: line and column count characters, the offset counts bytes."""
    with pytest.raises(InvalidPipeline) as caught:
        decode('digraph G {\n  A [x="é'.encode() + b"\xff\xfe", FILE)
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.rule, diagnostic.line, diagnostic.column) == ("encoding", 2, 10)
    assert diagnostic.message == "byte 0xff at offset 22 is not UTF-8"


def test_a_file_keeps_every_character_when_decoded() -> None:
    """D20: also the byte order mark, because the hash is that of the file."""
    assert decode("\ufeffdigraph {}\r\n".encode(), FILE) == "\ufeffdigraph {}\r\n"
