"""The way a run is likely to take from a node to its end.

It is where a run goes if every step succeeds, and every question gets its default or first answer. It is
computed once, when the run is created or its definition changes, and kept in its log: so a list of runs can
say "8 of 14 steps" without any pipeline. A run that takes another way shows what it did.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onward.machine.definition import GATE, Definition
from onward.model.context import FrozenMap, as_seen
from onward.model.events import StepStatus
from onward.pipeline.branches import PARALLEL
from onward.pipeline.edges import rank, select_edge
from onward.pipeline.graph import Edge

PLANNED_MAX = 200
"""How many nodes of a likely way are kept."""
SUCCESS = StepStatus.SUCCESS.value


def likely_path(definition: Definition, start: str, context: Mapping[str, Any]) -> tuple[str, ...]:
    """The nodes from `start` to the exit, with the branches of fan-outs one after the other."""
    path: dict[str, None] = {}
    seen = FrozenMap(context)
    stack: list[tuple[str, str | None]] = [(start, None)]
    while stack and len(path) < PLANNED_MAX:
        node, until = stack.pop()
        if node == until or node in path or node not in definition.graph.nodes:
            continue
        path[node] = None
        if definition.kind(node) == PARALLEL and (join := definition.joins.get(node)) is not None:
            stack.append((join, until))
            targets = dict.fromkeys(edge.target for edge in definition.graph.outgoing(node))
            stack += [(target, join) for target in reversed(targets)]
            continue
        edge = _likely_edge(definition, node, seen, path)
        if edge is not None and not edge.loop_restart:
            stack.append((edge.target, until))
    return tuple(path)


def _likely_edge(
    definition: Definition, node: str, context: FrozenMap[Any], path: Mapping[str, None]
) -> Edge | None:
    edges = definition.graph.outgoing(node)
    if len(edges) < 2:
        return edges[0] if edges else None
    if definition.kind(node) == GATE:
        wanted = definition.graph.nodes[node].text("human.default_choice")
        return next((edge for edge in edges if wanted in (edge.target, edge.label)), edges[0])
    chosen = select_edge(
        definition.graph,
        node,
        outcome=SUCCESS,
        preferred_label="",
        suggested_ids=(),
        context=as_seen(context, node),
    )
    if chosen is not None and chosen.edge.target not in path:
        return chosen.edge
    ahead = [edge for edge in edges if edge.target not in path]
    return min(ahead, key=rank) if ahead else None
