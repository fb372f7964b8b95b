"""Where a run goes after a step: by an edge, on a failure, after an answer, or back to a goal.

A branch whose last step chose no edge is at the end of the graph, or it is stuck, and `why_stuck` says why.

`planned_agents` and `unfinished_required` look further ahead: which agents a run may come to, and what it
must still do before it is worth resuming. Both are pure questions about a pipeline and what is known of its
run. Inputs such as intent and scope stay as they are, so conditions on them are decided. Any other
condition may turn out either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from onward.machine.definition import AGENT, CONDITIONAL, GATE, Definition
from onward.model.context import CONTEXT_PREFIX, OUTCOME, FrozenMap, as_seen
from onward.model.events import Outcome, StepStatus, Transition
from onward.model.ids import node_of, place, step_id
from onward.model.run import Branch, Run
from onward.pipeline.branches import PARALLEL
from onward.pipeline.condition import Clause, Resolve, resolver
from onward.pipeline.edges import Selection, failure_target, rank, select_edge, true_condition_edge
from onward.pipeline.graph import Edge, Graph, Node
from onward.pipeline.vocabulary import REQUIRED, as_requirement

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
        f"{said}, and {number} be taken: {_listed(needs, EDGES_SHOWN_MAX)}. It found "
        f"{_listed(saw, VALUES_SHOWN_MAX)}."
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
        return clause.key in self._inputs or clause.key.removeprefix(CONTEXT_PREFIX) in self._inputs
