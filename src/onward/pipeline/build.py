"""From source to a pipeline that may run: the one path that start, resume, fork and check share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import PurePath

import blake3
import msgspec

from onward.errors import InvalidPipeline
from onward.model.values import Variables
from onward.pipeline.diagnostic import Diagnostic, Severity, by_position
from onward.pipeline.dot.reader import Reading, read
from onward.pipeline.graph import BUILT_IN_TYPES, Edge, Graph, Node
from onward.pipeline.prepare import prepared
from onward.pipeline.rules.check import RULES, Rule, check
from onward.pipeline.transforms import Transform
from onward.pipeline.value import as_text

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


def _applicable(reading: Reading, rules: Sequence[Rule]) -> Sequence[Rule]:
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
