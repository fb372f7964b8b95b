"""From source to a pipeline that may run: the one path that start, resume, fork and check share.

Between reading and checking, a graph is prepared, always in this order: first `$goal`, then the model
stylesheet, then the app's transforms in the order they were registered. Those are users' code: what they
raise or return is checked here, and the message names the transform.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Protocol

import blake3
import msgspec

from onward.errors import InvalidInput, InvalidPipeline
from onward.model.context import TEXT_CHARACTERS_MAX, escaped, references
from onward.model.values import Variables
from onward.pipeline.dot import ParsedFile, read
from onward.pipeline.graph import BUILT_IN_TYPES, Edge, Graph, Node
from onward.pipeline.rules.check import RULES, Rule, check
from onward.pipeline.source import Diagnostic, Severity, as_text, by_position
from onward.pipeline.stylesheet import apply_stylesheet


class Applicable(Protocol):
    """A transform as an object, for those that carry settings."""

    def apply(self, graph: Graph) -> Graph:
        """Returns another graph; the given one must not change."""
        ...


Transform = Callable[[Graph], Graph] | Applicable
"""Takes a graph and returns another; it must not change the given one."""

VARIABLE, BRACED = "$goal", "${goal}"
EXPANDED_CHARACTERS_MAX = TEXT_CHARACTERS_MAX
"""All prompts together after expansion: a long goal that is used often must not fill the memory."""


def expand_goal(graph: Graph) -> Graph:
    """Replace `$goal` in every prompt with the graph's goal, which is not expanded itself.

    A label that replaces a missing prompt is expanded into the prompt. The goal is escaped there, because
    other names are expanded when the step starts, and what the goal contains is text.
    """
    changed: dict[str, Node] = {}
    expanded: dict[str, str] = {}
    total, goal = 0, escaped(graph.goal)
    for node in graph.nodes.values():
        template = node.instruction
        if VARIABLE not in template and BRACED not in template:
            continue
        if template not in expanded:
            places = [at for name, at in references(template) if name == "goal"]
            total += len(template) + len(places) * (len(goal) - len(VARIABLE))
            if total > EXPANDED_CHARACTERS_MAX:
                raise InvalidPipeline([_too_long(graph, node)])
            expanded[template] = _filled(template, places, goal)
        changed[node.id] = node.with_prompt(expanded[template])
    return replace(graph, nodes=MappingProxyType({**graph.nodes, **changed})) if changed else graph


def _filled(template: str, places: Sequence[int], goal: str) -> str:
    """The template with the goal at these places, where it says `$goal` or `${goal}`."""
    parts, at = [], 0
    for place in places:
        parts += [template[at:place], goal]
        at = place + len(BRACED if template.startswith(BRACED, place) else VARIABLE)
    return "".join((*parts, template[at:]))


def _too_long(graph: Graph, node: Node) -> Diagnostic:
    message = f"with {VARIABLE} expanded, the prompts exceed {EXPANDED_CHARACTERS_MAX:,} characters"
    fix = "shorten the goal or use it less often"
    place = graph.file, node.line, node.column
    return Diagnostic("limit", Severity.ERROR, message, *place, node_id=node.id, fix=fix)


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


__all__ = ["BUILT_IN_TYPES", "Pipeline", "Transform", "build", "changed_nodes"]


class Pipeline(msgspec.Struct, frozen=True):
    """A definition without errors. Its identity is name and hash (BLAKE3 of the source's bytes)."""

    name: str
    source: str
    hash: str
    path: str | None
    graph: Graph
    warnings: tuple[Diagnostic, ...]
    version: int | None = None
    """The registered version that it is, if it was found by its name."""


def build(
    source: str,
    *,
    file: str,
    transforms: Sequence[Transform] = (),
    known_types: Collection[str] = BUILT_IN_TYPES,
    rules: Sequence[Rule] = RULES,
    variables: Variables | None = None,
) -> Pipeline:
    """Read, transform and check a pipeline; InvalidPipeline carries all errors, then all warnings.

    A `file` in angle brackets, such as `<request>`, is a name for messages, not a path.
    """
    reading = read(source, file=file)
    graph = prepared(reading.graph, transforms) if reading.whole else reading.graph
    applicable = _applicable(reading, rules)
    findings = check(graph, known_types=known_types, rules=applicable, variables=variables)
    found = sorted((*reading.errors, *reading.warnings, *findings), key=by_position)
    errors = [finding for finding in found if finding.severity is Severity.ERROR]
    warnings = [finding for finding in found if finding.severity is not Severity.ERROR]
    if errors:
        # A warning may say what caused an error: a misspelt shape, and so no exit.
        raise InvalidPipeline([*errors, *(one for one in warnings if one.severity is Severity.WARNING)])
    return Pipeline(
        name=graph.name or PurePath(file.strip("<>")).stem,
        source=source,
        hash=blake3.blake3(source.encode()).hexdigest(),
        path=None if file.startswith("<") else file,
        graph=graph,
        warnings=tuple(warnings),
    )


def _applicable(reading: ParsedFile, rules: Sequence[Rule]) -> Sequence[Rule]:
    # Where statements are missing, "unreachable" or "no such node" would only repeat the first error.
    return rules if reading.whole else [rule for rule in rules if rule.local]


def changed_nodes(old: Graph, new: Graph) -> tuple[str, ...]:
    """The nodes that were added, removed or changed, in their attributes or in the edges that leave them."""
    ids = dict.fromkeys((*new.nodes, *old.nodes))
    return tuple(node_id for node_id in ids if _definition(old, node_id) != _definition(new, node_id))


def _definition(graph: Graph, node_id: str) -> object:
    """Everything about a node that can make it act differently; how it is written does not count."""
    node = graph.nodes.get(node_id)
    ways = [(edge.target, _texts(edge)) for edge in graph.outgoing(node_id)]
    return node and (_texts(node), node.derived, ways)


def _texts(owner: Node | Edge) -> dict[str, str]:
    # As text, because to Python 1 and true are equal.
    return {key: as_text(value) for key, value in owner.attrs.items()}
