"""Fan-out and fan-in: one branch becomes several, and their results are ranked where they meet."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from onward.machine.definition import Definition
from onward.machine.fold.steps import context_after
from onward.machine.plan.action import Action, Append
from onward.machine.plan.ending import NO_WAY_ON, no_edge
from onward.machine.plan.route import failure_transition, next_transition
from onward.machine.plan.stops import failed, next_step, passed, stop_with
from onward.model.events.runs import RunFailed
from onward.model.events.steps import BranchPlan, Outcome, ParallelStarted, StepStatus
from onward.model.ids import new_branch_id
from onward.model.result import Result
from onward.model.run import Run
from onward.model.values.namespace import as_seen
from onward.pipeline.condition import resolver
from onward.pipeline.graph import Edge, Node

OPENING = Outcome(status=StepStatus.SUCCESS)
RESULTS = "parallel.results"
BEST_ID, BEST_OUTCOME = "parallel.fan_in.best_id", "parallel.fan_in.best_outcome"
_WORD = re.compile(r"[\w.]*\w")
_RANKS = {"success": 0, "partial_success": 1, "retry": 2, "fail": 3}


def fan_out(definition: Definition, run: Run, branch_id: str, node: Node, now_us: int) -> Action:
    """A branch for every edge whose condition, if it has one, holds."""
    if any(piece.startswith(f"{node.id}#") for piece in branch_id.split("/")):
        # Each branch would open as many again, without end.
        detail = f"a branch of {node.id} leads back to it; route it to the join or to another node"
        return stop_with(run, RunFailed(reason="pipeline_error", detail=detail))
    step = next_step(run, node.id, branch_id)
    edges = _open_edges(definition, run, branch_id, node)
    if not edges:
        return _no_branch(definition, run, branch_id, node, step)
    return Append(
        (
            ParallelStarted(
                step=step,
                node=node.id,
                branches=_branches(step, edges),
                join=definition.joins.get(node.id),
                policy=definition.join_policy(node),
                max_parallel=definition.max_parallel(node),
            ),
        )
    )


def _no_branch(definition: Definition, run: Run, branch_id: str, node: Node, step: str) -> Action:
    """Without edges it is the end of its branch; with edges of which none is open, it fails."""
    edges = definition.graph.outgoing(node.id)
    if not edges:
        return passed(run, branch_id, node, OPENING, None)
    said = f"step {step} cannot open a branch"
    detail = no_edge(said, edges, OPENING.status.value, "", _seen_by(run, branch_id, node))
    return stop_with(run, RunFailed(reason=NO_WAY_ON, detail=detail, step=step))


def _seen_by(run: Run, branch_id: str, node: Node) -> Mapping[str, Any]:
    return as_seen(context_after(run.branches[branch_id].context, OPENING, {}, {}), node.id)


def _open_edges(definition: Definition, run: Run, branch_id: str, node: Node) -> Sequence[Edge]:
    resolve = resolver(OPENING.status.value, "", _seen_by(run, branch_id, node))
    return [edge for edge in definition.graph.outgoing(node.id) if edge.guard.holds(resolve)]


def _branches(step: str, edges: Sequence[Edge]) -> tuple[BranchPlan, ...]:
    """Named after where they lead; a second edge to the same node is a branch of its own."""
    seen: dict[str, int] = {}
    plans = []
    for edge in edges:
        number = seen[edge.target] = seen.get(edge.target, 0) + 1
        plans.append(
            BranchPlan(path=new_branch_id(step, edge.target, number), to=edge.target, edge=edge.order)
        )
    return tuple(plans)


def fan_in(definition: Definition, run: Run, branch_id: str, node: Node, now_us: int) -> Action:
    """The best result by rule: status, then score, then name. It fails only if every branch did."""
    context = run.branches[branch_id].context
    results = candidates(context)
    best = best_of(results)
    if best is None or best["status"] == "fail":
        why = "every branch failed" if results else f"the context has no {RESULTS}"
        return _fail(definition, run, branch_id, node, f"{node.id} has nothing to choose from: {why}")
    outcome = Outcome(status=StepStatus.SUCCESS)
    changes = chosen(best)
    after = context_after(context, outcome, changes, {})
    return passed(
        run, branch_id, node, outcome, next_transition(definition.graph, node.id, outcome, after), changes
    )


def _fail(definition: Definition, run: Run, branch_id: str, node: Node, why: str) -> Action:
    outcome = Outcome(status=StepStatus.FAIL, failure_reason=why)
    after = context_after(run.branches[branch_id].context, outcome, {}, {})
    onward = failure_transition(definition, node, outcome, after)
    return failed(run, why) if onward is None else passed(run, branch_id, node, outcome, onward)


def candidates(context: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The results of the last fan-out; anything else under that name is ignored."""
    found = context.get(RESULTS)
    if not isinstance(found, list):
        return ()
    return [result for result in found if isinstance(result, dict) and {"id", "status"} <= result.keys()]


def best_of(results: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The first in the order of status, score and name."""
    return min(results, key=_rank, default=None)


def _rank(result: Mapping[str, Any]) -> tuple[int, float, str]:
    score = result.get("score")
    number = float(score) if isinstance(score, int | float) and score == score else 0.0
    return _RANKS.get(str(result["status"]), len(_RANKS)), -number, str(result["id"])


def choosing(result: Result, results: Sequence[Mapping[str, Any]]) -> Result:
    """A model's choice as a fan-in's result: the candidate that it names, or else the best by rule."""
    if result.status not in (StepStatus.SUCCESS, StepStatus.PARTIAL_SUCCESS) or not results:
        return result
    best = _named(result, results) or best_of(results)
    assert best is not None
    return replace(result, context_updates={**chosen(best), **result.context_updates})


def _named(result: Result, results: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """By its label, by a suggested id, or by being the only one that the answer mentions."""
    by_id = {str(candidate["id"]): candidate for candidate in results}
    for name in (result.preferred_label, *result.suggested_next_ids):
        if name in by_id:
            return by_id[name]
    words = set(_WORD.findall(str(result.context_updates.get("last_response", ""))))
    mentioned = [candidate for name, candidate in by_id.items() if name in words]
    return mentioned[0] if len(mentioned) == 1 else None


def chosen(best: Mapping[str, Any]) -> dict[str, Any]:
    """What the context says about the choice."""
    return {BEST_ID: best["id"], BEST_OUTCOME: best["status"]}
