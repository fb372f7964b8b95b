"""Where a run goes after a step: by the chosen edge, a failure's edge, a gate's answer, or back to a goal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onward.machine.definition import CONDITIONAL, Definition
from onward.model.events.steps import Outcome, StepStatus, Transition
from onward.model.run import Run
from onward.model.values.frozenmap import FrozenMap
from onward.model.values.namespace import as_seen
from onward.pipeline.condition import resolver
from onward.pipeline.edges import Selection, failure_target, select_edge, true_condition_edge
from onward.pipeline.graph import Graph, Node

MET = (StepStatus.SUCCESS.value, StepStatus.PARTIAL_SUCCESS.value)


def next_transition(
    graph: Graph, node_id: str, outcome: Outcome, context: Mapping[str, Any]
) -> Transition | None:
    """The edge that a step takes which did not fail."""
    return _selected(graph, node_id, outcome, _routing_status(outcome, context), as_seen(context, node_id))


def failure_transition(
    definition: Definition, node: Node, outcome: Outcome, context: Mapping[str, Any], retries: int = 0
) -> Transition | None:
    """Where a failure leads: to a true condition, a retry target, or by an edge meant for failures.

    A plain edge is followed only to a conditional node, whose own edges look at the outcome, or where
    `continue_on_fail=true` says so: otherwise a failure would pass for a success. `retries` is how many the
    step had spent when it failed.
    """
    context = as_seen(context, node.id, retries)
    meant = handled_failure(definition.graph, node, outcome, context)
    return meant or _plain_transition(definition, node, outcome, context)


def handled_failure(
    graph: Graph, node: Node, outcome: Outcome, context: Mapping[str, Any]
) -> Transition | None:
    """Where the pipeline sends failures: to a true condition, or to a retry target."""
    chosen = true_condition_edge(
        graph,
        node.id,
        outcome=outcome.status.value,
        preferred_label=outcome.preferred_label,
        context=context,
    )
    return by_edge(chosen) or _retry_target(graph, node)


def rejection_transition(graph: Graph, node: Node, context: FrozenMap[Any]) -> Transition | None:
    """Where a rejection leads: an edge that only failures take, or a retry target.

    A condition that holds after a success, too, is not about the answer; a no must never pass for a yes.
    """
    no, yes = (
        resolver(status.value, "", as_seen(context.with_all({"outcome": status.value}), node.id))
        for status in (StepStatus.FAIL, StepStatus.SUCCESS)
    )
    edges = [
        edge
        for edge in graph.outgoing(node.id)
        if edge.guard.clauses and edge.guard.holds(no) and not edge.guard.holds(yes)
    ]
    if edges:
        best = min(edges, key=lambda edge: (-edge.weight, edge.target, edge.order))
        return Transition(to=best.target, reason="condition", edge=best.order)
    return _retry_target(graph, node)


def _retry_target(graph: Graph, node: Node) -> Transition | None:
    found = failure_target(graph, node)
    return None if found is None else Transition(to=found[0], reason=found[1])


def _plain_transition(
    definition: Definition, node: Node, outcome: Outcome, context: Mapping[str, Any]
) -> Transition | None:
    graph = definition.graph
    plain = _selected(graph, node.id, outcome, outcome.status.value, context)
    if plain is None:
        return None
    allowed = node.boolean("continue_on_fail", graph.boolean("continue_on_fail"))
    return plain if allowed or definition.kind(plain.to) == CONDITIONAL else None


def _selected(
    graph: Graph, node_id: str, outcome: Outcome, status: str, context: Mapping[str, Any]
) -> Transition | None:
    """The edge that the rules select for an outcome, under the status that conditions see."""
    chosen = select_edge(
        graph,
        node_id,
        outcome=status,
        preferred_label=outcome.preferred_label,
        suggested_ids=outcome.suggested_next_ids,
        context=context,
    )
    return by_edge(chosen)


def by_edge(chosen: Selection | None) -> Transition | None:
    """A chosen edge as the log records it."""
    if chosen is None:
        return None
    return Transition(to=chosen.edge.target, reason=chosen.reason, edge=chosen.edge.order)


def _routing_status(outcome: Outcome, context: Mapping[str, Any]) -> str:
    """A skipped step has no outcome: conditions see the one before it."""
    if outcome.status is StepStatus.SKIPPED:
        return str(context.get("outcome", ""))
    return outcome.status.value


def unmet_gate(definition: Definition, run: Run) -> str | None:
    """The first visited goal gate whose last outcome was neither success nor partial success.

    At the end of a run no branch is left: their outcomes count for the branch that opened them.
    """
    gates = definition.goal_gates
    if not gates:
        return None
    unmet = (node for node, status in run.outcomes.items() if node in gates and status not in MET)
    return next(unmet, None)


def goal_transition(graph: Graph, gate: str) -> Transition | None:
    """Where an unmet goal gate sends the run."""
    found = failure_target(graph, graph.nodes[gate]) or failure_target(graph, graph)
    return None if found is None else Transition(to=found[0], reason="goal_gate")
