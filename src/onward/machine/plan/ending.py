"""A branch whose last step chose no edge: whether the graph ends there, and if not, why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from onward.machine.definition import Definition
from onward.machine.plan.route import by_edge
from onward.model.events.steps import Transition
from onward.model.ids import place, step_id
from onward.model.run import Branch, Run
from onward.model.values.namespace import OUTCOME, as_seen
from onward.pipeline.condition import resolver
from onward.pipeline.edges import select_edge
from onward.pipeline.graph import Edge
from onward.pipeline.joins import PARALLEL

NO_WAY_ON = "no_way_on"
DETAIL_MAX = 2_000
EDGES_SHOWN_MAX, VALUES_SHOWN_MAX = 20, 20
CONDITION_SHOWN_MAX, VALUE_SHOWN_MAX = 100, 40


def has_edges(definition: Definition, node_id: str) -> bool:
    """Whether a finished step of this node chooses between edges: those of a fan-out are its branches."""
    return bool(definition.graph.outgoing(node_id)) and definition.kind(node_id) != PARALLEL


def is_stuck(definition: Definition, branch: Branch) -> bool:
    """Whether a branch stands after a step that did not fail, has edges, and took none of them."""
    return branch.next_node is None and not branch.reason and has_edges(definition, branch.previous)


def last_step(run: Run, branch_id: str) -> str:
    """The step of this branch that finished last."""
    node = run.branches[branch_id].previous
    return step_id(node, run.visits.get(place(node, branch_id), 1), branch_id)


def transition_now(definition: Definition, branch: Branch) -> Transition | None:
    """The edge that the recorded outcome leads on by: the edges or the context may have changed since."""
    context = branch.context
    return by_edge(
        select_edge(
            definition.graph,
            branch.previous,
            outcome=str(context.get(OUTCOME, "")),
            preferred_label=branch.label,
            suggested_ids=branch.suggested,
            context=as_seen(context, branch.previous),
        )
    )


def why_stuck(definition: Definition, run: Run, branch_id: str) -> str:
    """No edge of the last step can be taken: which there are, what each needs, and what it saw."""
    branch = run.branches[branch_id]
    outcome = str(branch.context.get(OUTCOME, ""))
    edges = definition.graph.outgoing(branch.previous)
    said = f"step {last_step(run, branch_id)} finished as {outcome or 'skipped'}"
    return no_edge(said, edges, outcome, branch.label, as_seen(branch.context, branch.previous))


def no_edge(said: str, edges: Sequence[Edge], outcome: str, label: str, context: Mapping[str, Any]) -> str:
    """The sentence for people whom none of these edges lets on; it is short, however much there is to say."""
    number = "its only edge cannot" if len(edges) == 1 else f"none of its {len(edges)} edges can"
    needs = [
        f"{edge.source} -> {edge.target} needs {_cut(edge.condition, CONDITION_SHOWN_MAX)}" for edge in edges
    ]
    keys = dict.fromkeys(clause.key for edge in edges for clause in edge.guard.clauses)
    resolve = resolver(outcome, label, context)
    saw = [_seen(key, resolve(key), context) for key in keys]
    text = (
        f"{said}, and {number} be taken: {_listed(needs, EDGES_SHOWN_MAX)}. "
        f"It saw {_listed(saw, VALUES_SHOWN_MAX)}."
    )
    return _cut(text, DETAIL_MAX)


def _seen(key: str, value: str, context: Mapping[str, Any]) -> str:
    is_set = value or key in context or key.removeprefix("context.") in context
    return f'{key}="{_cut(value, VALUE_SHOWN_MAX)}"' if is_set else f"{key} (not set)"


def _listed(parts: Iterable[str], shown_max: int) -> str:
    every = list(parts)
    more = len(every) - shown_max
    shown = "; ".join(every[:shown_max])
    return f"{shown}; and {more} more" if more > 0 else shown


def _cut(text: str, length_max: int) -> str:
    return text if len(text) <= length_max else f"{text[: length_max - 1]}…"
