"""Which agents a run may come to, and what it must still do before it is worth resuming.

Both are pure questions about a pipeline and what is known of its run. Inputs such as intent and scope stay as
they are, so conditions on them are decided. Any other condition may turn out either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from onward.machine.definition import AGENT, GATE, Definition
from onward.machine.plan.route import MET
from onward.model.ids import node_of
from onward.model.run import Run
from onward.model.values.references import PREFIX
from onward.pipeline.chats import REQUIRED, as_requirement
from onward.pipeline.condition import Clause, Resolve, resolver
from onward.pipeline.edges import failure_target, rank
from onward.pipeline.graph import Edge, Node
from onward.pipeline.joins import PARALLEL


def planned_agents(definition: Definition, inputs: Mapping[str, Any]) -> tuple[str, ...]:
    """The agents that can be reached from the start, in order: no other starts while the inputs stay.

    Of alternatives, all are in it; of a loop, each agent once. What a restart or another run executes is not.
    """
    start = definition.graph.start_id
    assert start is not None  # a checked graph has one
    ahead = _in_order(definition, (start,), _Known({**definition.mirrored, **inputs}))
    return tuple(node_id for node_id in ahead if definition.kind(node_id) == AGENT)


def unfinished_required(definition: Definition, run: Run) -> tuple[str, ...]:
    """The nodes with `required_for_resume` that a run has yet to finish, in order.

    One that its way has passed by is not required any more: a fresh start would do no better.
    """
    known = _Known(run.context)
    stands = [branch.next_node for branch in run.branches.values() if branch.next_node and not branch.ended]
    done = {node_of(at) for at, status in run.outcomes.items() if status in MET}
    nodes = definition.graph.nodes
    return tuple(
        node_id
        for node_id in _in_order(definition, [at for at in stands if at in nodes], known)
        if node_id not in done and known.requires(nodes[node_id])
    )


def _in_order(definition: Definition, starts: Sequence[str], known: _Known) -> Sequence[str]:
    """The nodes that can be reached, each after those that lead to it, but for the ways back in loops."""
    finished: list[str] = []
    seen = {*starts}
    for start in reversed(starts):
        _visit(definition, start, known, seen, finished)
    return finished[::-1]


def _visit(definition: Definition, start: str, known: _Known, seen: set[str], finished: list[str]) -> None:
    """Add what is ahead of a node, and the node after it. A graph may be deeper than Python's stack."""
    under_way = [(start, _ways(definition, start, known))]
    while under_way:
        node_id, ways = under_way[-1]
        target = next(ways, None)
        if target is None:
            finished.append(node_id)
            under_way.pop()
        elif target not in seen:
            seen.add(target)
            under_way.append((target, _ways(definition, target, known)))


def _ways(definition: Definition, node_id: str, known: _Known) -> Iterator[str]:
    """Where a run may go from a node, the last way first."""
    graph, kind = definition.graph, definition.kind(node_id)
    edges = [edge for edge in graph.outgoing(node_id) if not edge.loop_restart]
    targets = [edge.target for edge in _open_edges(kind, edges, known)]
    if kind == PARALLEL and (join := definition.joins.get(node_id)) is not None:
        targets.append(join)  # also if no branch arrives there by itself
    node = graph.nodes[node_id]
    jumps = [failure_target(graph, node)]
    if node.goal_gate:
        jumps.append(failure_target(graph, graph))
    targets += [jump[0] for jump in jumps if jump is not None]
    return (target for target in reversed(targets) if target in graph.nodes)


def _open_edges(kind: str, edges: Sequence[Edge], known: _Known) -> Sequence[Edge]:
    """The edges that may be taken. A person may choose any; a fan-out takes all whose condition holds.

    After any other step the best true condition decides, so nothing below one that is certain is taken.
    """
    if kind == GATE:
        return edges
    possible = [edge for edge in edges if known.may_hold(edge)]
    certain = [edge for edge in possible if edge.guard.clauses and known.must_hold(edge)]
    if kind == PARALLEL or not certain:
        return possible
    best = min(map(rank, certain))
    return [edge for edge in possible if edge.guard.clauses and rank(edge) <= best]


class _Known:
    """What the inputs, or the values of a run, say about conditions."""

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        self._inputs = inputs
        self._resolve: Resolve = resolver("", "", inputs)

    def requires(self, node: Node) -> bool:
        """Whether a run with these values is not worth resuming before the node has finished."""
        needed = as_requirement(node.attrs.get(REQUIRED, False))
        return needed if isinstance(needed, bool) else needed.holds(self._resolve)

    def may_hold(self, edge: Edge) -> bool:
        return all(clause.holds(self._resolve) for clause in edge.guard.clauses if self._decides(clause))

    def must_hold(self, edge: Edge) -> bool:
        return all(self._decides(clause) and clause.holds(self._resolve) for clause in edge.guard.clauses)

    def _decides(self, clause: Clause) -> bool:
        if clause.key in ("outcome", "preferred_label"):
            return False
        return clause.key in self._inputs or clause.key.removeprefix(PREFIX) in self._inputs
