"""Which edge a run takes after a step. A pure function: the same step always takes the same edge."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from onward.pipeline.condition import resolver
from onward.pipeline.graph import Edge, Graph, Node

Reason = Literal["condition", "label", "suggested", "weight", "lexical"]

_ACCELERATOR = re.compile(r"(?:\[([^\W_])\]|([^\W_])\)|([^\W_])\s+-)\s+")


class Selection(msgspec.Struct, frozen=True):
    """The edge to follow, and which rule chose it."""

    edge: Edge
    reason: Reason


def select_edge(
    graph: Graph,
    node_id: str,
    *,
    outcome: str,
    preferred_label: str,
    suggested_ids: Sequence[str],
    context: Mapping[str, Any],
) -> Selection | None:
    """The edge to take after a finished step, or None. An edge whose condition is false is never taken.

    True conditions come first, then the preferred label, then the suggested ids, then weight, then the
    smallest target id; all but the first look at unconditional edges only.
    """
    edges = graph.outgoing(node_id)
    if not edges:
        return None
    plain = [edge for edge in edges if not edge.guard.clauses]
    if len(plain) < len(edges):
        resolve = resolver(outcome, preferred_label, context)
        if chosen := _by_condition(edges, resolve):
            return chosen
    return _by_label(plain, preferred_label) or _by_suggestion(plain, suggested_ids) or _by_weight(plain)


def true_condition_edge(
    graph: Graph, node_id: str, *, outcome: str, preferred_label: str, context: Mapping[str, Any]
) -> Selection | None:
    """The best edge whose condition is true, or None: the only kind of edge that a failed step may follow."""
    return _by_condition(graph.outgoing(node_id), resolver(outcome, preferred_label, context))


def failure_target(graph: Graph, owner: Node | Graph) -> tuple[str, str] | None:
    """The declared node that a failure jumps to, and the attribute that says so."""
    for target, key in (
        (owner.retry_target, "retry_target"),
        (owner.fallback_retry_target, "fallback_retry_target"),
    ):
        if target in graph.nodes:
            return target, key
    return None


def normalise_label(label: str) -> str:
    """A label as it is compared: lower case, trimmed, without its accelerator."""
    return without_accelerator(label).lower()


def without_accelerator(label: str) -> str:
    """A label, trimmed and without one accelerator: `[Y] `, `Y) ` or `Y - `."""
    label = label.strip()
    match = _ACCELERATOR.match(label)
    return (label[match.end() :] if match else label).strip()


def accelerator(label: str) -> str:
    """The key that chooses a label: its accelerator, or else its first character."""
    label = label.strip()
    match = _ACCELERATOR.match(label)
    return match[match.lastindex or 0] if match else label[:1]


def has_accelerator(label: str) -> bool:
    """Whether the label itself writes its key, as in `[Y] Yes`."""
    return _ACCELERATOR.match(label.strip()) is not None


def _by_condition(edges: Iterable[Edge], resolve: Callable[[str], str]) -> Selection | None:
    true = [edge for edge in edges if edge.guard.clauses and edge.guard.holds(resolve)]
    return Selection(min(true, key=rank), "condition") if true else None


def _by_label(plain: Iterable[Edge], preferred_label: str) -> Selection | None:
    wanted = normalise_label(preferred_label)
    if not wanted:
        return None
    return next((Selection(edge, "label") for edge in plain if normalise_label(edge.label) == wanted), None)


def _by_suggestion(plain: Sequence[Edge], suggested_ids: Iterable[str]) -> Selection | None:
    for wanted in suggested_ids:
        for edge in plain:
            if edge.target == wanted:
                return Selection(edge, "suggested")
    return None


def _by_weight(plain: Sequence[Edge]) -> Selection | None:
    if not plain:
        return None
    best = min(plain, key=rank)
    tied = sum(edge.weight == best.weight for edge in plain) > 1
    return Selection(best, "lexical" if tied else "weight")


def rank(edge: Edge) -> tuple[int, str, int]:
    """The place of an edge among those that may be taken; the smallest is the best."""
    # The dialect leaves open which of two edges with the same weight and target wins; the first one does.
    return -edge.weight, edge.target, edge.order
