"""Short ways to read a pipeline in a test."""

from __future__ import annotations

from onward.pipeline.dot import parse, read
from onward.pipeline.graph import BUILT_IN_TYPES, Edge, Graph
from onward.pipeline.rules.check import check
from onward.pipeline.source import Diagnostic

FILE = "flow.dot"


def graph_of(text: str) -> Graph:
    """The graph of a whole file that has neither errors nor warnings."""
    parsed = parse(text, file=FILE)
    assert parsed.warnings == ()
    return parsed.graph


def body(statements: str) -> Graph:
    """The graph of some statements."""
    return graph_of(f"digraph G {{\n{statements}\n}}")


def errors(text: str) -> list[str]:
    """What a reader of the messages sees first: `line:column rule message`, without the fix."""
    return [place(error) for error in read(text, file=FILE).errors]


def warnings(text: str) -> list[str]:
    """The same for a file that has warnings only."""
    reading = read(text, file=FILE)
    assert reading.errors == ()
    return [place(warning) for warning in reading.warnings]


def place(diagnostic: Diagnostic) -> str:
    """A diagnostic as `line:column rule message`."""
    return f"{diagnostic.line}:{diagnostic.column} {diagnostic.rule} {diagnostic.message}"


def findings(text: str, rule: str) -> tuple[Diagnostic, ...]:
    """What one rule has to say about a file."""
    parsed = parse(text, file=FILE)
    found = check(parsed.graph, known_types=BUILT_IN_TYPES)
    return tuple(finding for finding in found if finding.rule == rule)


def pairs(graph: Graph) -> list[tuple[str, str]]:
    """The edges without their attributes."""
    return [(edge.source, edge.target) for edge in graph.edges]


def edge_to(graph: Graph, target: str) -> Edge:
    """The only edge to a node."""
    (edge,) = graph.incoming(target)
    return edge
