"""The rule about shapes: each one that decides what runs a node is known."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from onward.pipeline.edges import has_accelerator
from onward.pipeline.graph import SHAPE_KINDS, Graph, Node
from onward.pipeline.rules.rule import Problem, Subject, about, owner_of
from onward.pipeline.rules.words.vocabulary import meant
from onward.pipeline.value import shown

_MEANINGS = {
    "Mdiamond": "the start",
    "Msquare": "the exit",
    "box": "an agent",
    "hexagon": "a human gate",
    "diamond": "routing by edges",
    "component": "parallel branches",
    "tripleoctagon": "a fan-in",
    "parallelogram": "a shell command",
    "house": "another pipeline",
}
_BOXES = ("rect", "rectangle")
"""Graphviz's other names for a box."""
_ELSEWHERE = {
    "circle": "Mdiamond",
    "doublecircle": "Msquare",
    "Mcircle": "Mdiamond",
    "square": "Msquare",
    "doubleoctagon": "tripleoctagon",
    "octagon": "hexagon",
    "septagon": "hexagon",
    "pentagon": "hexagon",
    "folder": "house",
    "invhouse": "house",
}
"""Shapes that Graphviz can draw, and which of ours they may stand for; of all others it is a box."""
_GRAPHVIZ = frozenset(
    {
        *("assembly", "box3d", "cds", "cylinder", "egg", "ellipse"),
        *("fivepoverhang", "insulator", "invtrapezium", "invtriangle", "larrow", "lpromoter"),
        *("Mrecord", "none", "note", "noverhang", "oval", "plain"),
        *("plaintext", "point", "polygon", "primersite", "promoter", "proteasesite"),
        *("proteinstab", "rarrow", "record", "restrictionsite", "ribosite", "rnastab"),
        *("rpromoter", "signature", "star", "tab", "terminator", "threepoverhang"),
        *("trapezium", "triangle", "underline", "utr"),
    }
)


def shape_known(subject: Subject) -> Iterator[Problem]:
    """A shape that decides what runs its node is one of ours.

    A shape that only Graphviz knows makes a node an agent, as the dialect says. That is a warning, unless
    the node looks like a human gate, which would not ask. A shape that no program knows is an error.
    """
    graph = subject.graph
    for node in graph.nodes.values():
        if node.shape in SHAPE_KINDS or node.shape in _BOXES or node.type:
            continue
        if node.id not in (graph.start_id, graph.exit_id):
            yield _unknown(graph, node)


def _unknown(graph: Graph, node: Node) -> Problem:
    owner, shape = owner_of(node, "shape"), shown(node.shape)
    if node.shape in _GRAPHVIZ or node.shape in _ELSEWHERE:
        message = f"shape of {owner} is {shape}, which has no meaning here: it runs as an agent"
        ours = _ELSEWHERE.get(node.shape, "box")
        other = "" if ours == "box" else f"shape={ours} for {_MEANINGS[ours]}, or "
        problem = about(node, message, key="shape", fix=f"write {other}shape=box for an agent")
        return replace(problem, only_possible=not _asks(graph, node))
    near = meant(node.shape, SHAPE_KINDS)
    fix = f"did you mean {near!r}, {_MEANINGS[near]}?" if near else f"write one of {', '.join(SHAPE_KINDS)}"
    return about(node, f"shape of {owner} is {shape}, which is no shape", key="shape", fix=fix)


def _asks(graph: Graph, node: Node) -> bool:
    """Whether a node is written like a human gate: only gates have `human.…` and keys such as `[Y] Yes`."""
    if any(key.startswith("human.") for key in node.attrs):
        return True
    return any(has_accelerator(edge.label) for edge in graph.outgoing(node.id))
