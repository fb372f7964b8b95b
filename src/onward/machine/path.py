"""Where a run can still go: the way it is likely to take, and every node that it may come to.

The likely way is where a run goes if every step succeeds, and every question gets its default or first
answer. It is computed once, when the run is created or its definition changes, and kept in its log: so a list
of runs can say "8 of 14 steps" without any pipeline. A run that takes another way shows what it did.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onward.machine.definition import GATE, Definition
from onward.model.context import FrozenMap, as_seen
from onward.model.events import StepStatus
from onward.model.run import Run
from onward.pipeline.branches import PARALLEL
from onward.pipeline.edges import rank, select_edge
from onward.pipeline.graph import Edge, Graph, Node

PLANNED_MAX = 200
"""How many nodes of a likely way are kept."""
SUCCESS = StepStatus.SUCCESS.value


def likely_path(definition: Definition, start: str, context: Mapping[str, Any]) -> tuple[str, ...]:
    """The nodes from `start` to the exit, with the branches of fan-outs one after the other.

    Where no condition has a say, it is the same for all runs, and looked for once.
    """
    known = definition.likely_paths.get(start)
    if known is not None:
        return known
    path = _walked(definition, start, context)
    if not any(_asks_conditions(definition, node) for node in path):
        definition.likely_paths[start] = path
    return path


def _asks_conditions(definition: Definition, node: str) -> bool:
    edges = definition.graph.outgoing(node)
    return len(edges) > 1 and any(edge.guard.clauses for edge in edges)


def _walked(definition: Definition, start: str, context: Mapping[str, Any]) -> tuple[str, ...]:
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


def nodes_ahead(graph: Graph, run: Run, from_node: str | None = None) -> tuple[str, ...]:
    """Every node that the run may still execute, the nearest first; `from_node`: a person sends it there.

    It goes where edges lead, and where a failure or a goal that was missed jumps to.
    """
    places = [from_node, *(step.node for step in run.open_steps.values())]
    places += [branch.next_node for branch in run.branches.values()]
    places += [parallel.join for parallel in run.parallels.values()]
    visited = (graph.nodes[name] for name in run.outcomes if name in graph.nodes)
    owners: list[Node | Graph] = [graph, *(node for node in visited if node.goal_gate)]
    ahead = dict.fromkeys(place for place in places if place in graph.nodes)
    jumps = [target for owner in owners for target in _jumps(owner) if target in graph.nodes]
    stack = [*ahead, *(jumps if ahead else ())]
    found: dict[str, None] = {}
    for name in stack:  # it grows while it is read
        if name in found:
            continue
        found[name] = None
        node = graph.nodes[name]
        stack += [edge.target for edge in graph.outgoing(name)]
        stack += [target for target in _jumps(node) if target in graph.nodes]
    return tuple(found)


def _jumps(owner: Node | Graph) -> tuple[str, str]:
    return owner.retry_target, owner.fallback_retry_target
