"""The steps between reading and checking a graph, always in this order.

First `$goal`, then the model stylesheet, then the app's transforms in the order they were registered. Those
are users' code: what they raise or return is checked here, and the message names the transform.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from onward.errors import InvalidInput, InvalidPipeline
from onward.pipeline.diagnostic import Diagnostic, Severity
from onward.pipeline.graph import Edge, Graph, Node
from onward.pipeline.styling import apply_stylesheet
from onward.pipeline.transforms import Transform, expand_goal


def prepared(graph: Graph, custom: Sequence[Transform] = ()) -> Graph:
    """The graph as it will run; InvalidPipeline names the transform that failed."""
    graph = apply_stylesheet(expand_goal(graph))
    for transform in custom:
        graph = _transformed(graph, transform)
    return graph


def checked_transform(transform: Transform) -> Transform:
    """The transform itself; InvalidInput says why it cannot be one."""
    if isinstance(transform, type):
        raise InvalidInput(f"{transform.__name__} is a class; register an object of it as a transform.")
    if not callable(getattr(transform, "apply", transform)):
        raise InvalidInput(
            f"{name_of(transform)} is not a transform: neither a function nor an object with apply(graph)."
        )
    return transform


def name_of(transform: object) -> str:
    """The name of a transform in messages: the function's name, or the object's class."""
    return str(getattr(transform, "__name__", type(transform).__name__))


def _transformed(graph: Graph, transform: Transform) -> Graph:
    function: Any = getattr(transform, "apply", transform)
    try:
        result: object = function(graph)
    except InvalidPipeline:
        raise
    except Exception as error:
        raise _failure(graph, transform, f"raised {type(error).__name__}: {error}") from error
    if isinstance(result, Graph):
        if fault := _fault(result):
            raise _failure(graph, transform, f"returned a graph whose {fault}")
        return _numbered(result)
    raise _failure(graph, transform, f"returned {_article(result)}, not a graph")


def _fault(graph: Graph) -> str | None:
    nodes: object = graph.nodes
    edges: Iterable[object] = graph.edges
    if not isinstance(nodes, Mapping):
        return f"nodes are {_article(nodes)}, not a mapping by id"
    for node_id, node in nodes.items():
        if not isinstance(node, Node):
            return f"node {node_id!r} is {_article(node)}"
        if node.id != node_id:
            return f"node {node_id!r} has the id {node.id!r}"
    stranger = next((edge for edge in edges if not isinstance(edge, Edge)), None)
    return None if stranger is None else f"edges contain {_article(stranger)}"


def _numbered(graph: Graph) -> Graph:
    # A run remembers an edge by its order; one that was added or moved must not have another's number.
    if all(edge.order == place for place, edge in enumerate(graph.edges)):
        return graph
    return replace(graph, edges=tuple(replace(edge, order=place) for place, edge in enumerate(graph.edges)))


def _failure(graph: Graph, transform: Transform, what: str) -> InvalidPipeline:
    message = f"transform {name_of(transform)!r} {what.splitlines()[0]}"
    place = graph.file, graph.line, graph.column
    fix = "correct the transform, or run without the app that registers it"
    return InvalidPipeline([Diagnostic("transform", Severity.ERROR, message, *place, fix=fix)])


def _article(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
