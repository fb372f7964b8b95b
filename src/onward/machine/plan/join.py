"""Where branches meet: when a fan-out is decided, what is closed, and what its result is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onward.machine.definition import FIRST_SUCCESS, Definition
from onward.machine.fold.steps import context_after
from onward.machine.plan.action import Action, Append, Merge, Wait
from onward.machine.plan.fan import RESULTS
from onward.machine.plan.route import MET, handled_failure
from onward.model.events.event import Event
from onward.model.events.gates import GateWithdrawn
from onward.model.events.steps import (
    AttemptInterrupted,
    BranchFinished,
    Outcome,
    StepFinished,
    StepStatus,
    Transition,
)
from onward.model.ids import branch_of, step_of_gate
from onward.model.run import AttemptState, Branch, OpenStep, Parallel, Run
from onward.model.values.frozenmap import FrozenMap
from onward.model.values.namespace import OUTCOME, PREFERRED_LABEL, as_seen
from onward.model.values.value import same
from onward.model.workspace import NOTHING_MERGED, Merged

CANCELLED = "cancelled"
CONFLICTS = "workspace.conflicts"
# The engine's own keys say how a branch went, not what it found out.
_OWN = (OUTCOME, PREFERRED_LABEL)


def join(definition: Definition, run: Run, running: Sequence[OpenStep]) -> Action | None:
    """What to do about the first fan-out that is decided; the innermost come first."""
    for parallel in reversed(run.parallels.values()):
        ended = [run.branches[branch_id].ended for branch_id in parallel.branches]
        won = parallel.policy == FIRST_SUCCESS and any(status in MET for status in ended)
        if not won and not all(ended):
            continue
        losers = [branch_id for branch_id, status in zip(parallel.branches, ended, strict=True) if not status]
        under_way = tuple(step.step for step in running if _is_in(step.step, losers))
        if under_way:
            return Wait(halt=under_way)
        inner = [step for step in run.parallels if _is_in(step, losers)]
        if inner:
            return Append(_closed_inner(run, run.parallels[inner[-1]]))
        if run.workspace is not None:
            return Merge(parallel.step)
        return Append((*_closed(run, losers), _finished(definition, run, parallel)))
    return None


def joined(definition: Definition, run: Run, step: str, merged: Merged) -> tuple[Event, ...]:
    """The end of a fan-out whose branches' work was taken over; nothing if it is over already."""
    parallel = run.parallels.get(step)
    if parallel is None:
        return ()
    losers = [branch_id for branch_id in parallel.branches if not run.branches[branch_id].ended]
    return (*_closed(run, losers), _finished(definition, run, parallel, merged))


def _is_in(step: str, branch_ids: Sequence[str]) -> bool:
    return any(step.startswith(f"{branch_id}/") for branch_id in branch_ids)


def _closed_inner(run: Run, parallel: Parallel) -> tuple[Event, ...]:
    """Close a fan-out inside a branch that lost, so that the branch itself can be closed."""
    going = [branch_id for branch_id in parallel.branches if not run.branches[branch_id].ended]
    outcome = Outcome(status=StepStatus.SKIPPED, notes="its branch lost the race")
    finished = StepFinished(step=parallel.step, node=parallel.node, attempt=1, outcome=outcome)
    return (*_closed(run, going), finished)


def _closed(run: Run, losers: Sequence[str]) -> tuple[Event, ...]:
    """Close what is open in branches that lost, and end them."""
    gates = [
        GateWithdrawn(gate=name)
        for name, gate in run.gates.items()
        if gate.decided is None and branch_of(step_of_gate(name)) in losers
    ]
    attempts = [
        AttemptInterrupted(step=name, attempt=step.attempt, why="another branch won")
        for name, step in run.open_steps.items()
        if step.state is AttemptState.OPEN and branch_of(name) in losers
    ]
    ends = [
        BranchFinished(branch=branch_id, status=CANCELLED, reason="another branch won")
        for branch_id in losers
    ]
    return (*gates, *attempts, *ends)


def _finished(
    definition: Definition, run: Run, parallel: Parallel, merged: Merged = NOTHING_MERGED
) -> StepFinished:
    branch_id = branch_of(parallel.step)
    parent = run.branches[branch_id]
    results = [_result(parallel, name, run.branches[name], parent.context) for name in parallel.branches]
    status = _status(parallel, [result["status"] for result in results])
    if merged.conflicts and status is StepStatus.SUCCESS:
        status = StepStatus.PARTIAL_SUCCESS
    reason = "no branch succeeded" if status is StepStatus.FAIL else ""
    outcome = Outcome(status=status, failure_reason=reason)
    changes = {RESULTS: results, **_conflicts(run, branch_id, merged)}
    return StepFinished(
        step=parallel.step,
        node=parallel.node,
        attempt=1,
        outcome=outcome,
        context=changes,
        next=_onward(definition, parallel, outcome, context_after(parent.context, outcome, changes, {})),
        workspace=merged.tree,
    )


def _conflicts(run: Run, branch_id: str, merged: Merged) -> dict[str, Any]:
    """What the context says about conflicts between branches; nothing if there never were any."""
    if not merged.conflicts and CONFLICTS not in run.branches[branch_id].context:
        return {}
    return {CONFLICTS: [{"branch": c.branch, "files": list(c.files)} for c in merged.conflicts]}


def _status(parallel: Parallel, statuses: Sequence[str]) -> StepStatus:
    if parallel.policy == FIRST_SUCCESS:
        return StepStatus.SUCCESS if any(status in MET for status in statuses) else StepStatus.FAIL
    return StepStatus.PARTIAL_SUCCESS if "fail" in statuses else StepStatus.SUCCESS


def _result(parallel: Parallel, branch_id: str, branch: Branch, before: FrozenMap[Any]) -> dict[str, Any]:
    """The result of a branch, for the choice between them. The rest of its context is dropped."""
    changed = {
        key: value
        for key, value in branch.context.items()
        if key not in _OWN and not (key in before and same(before[key], value))
    }
    result: dict[str, Any] = {
        "id": branch_id.removeprefix(f"{parallel.step}."),
        "status": "skipped" if branch.ended in ("", CANCELLED) else branch.ended,
        "last_node": branch.previous,
        "context": changed,
    }
    if branch.reason:
        result["failure_reason"] = branch.reason
    if isinstance(branch.context.get("score"), int | float):
        result["score"] = branch.context["score"]
    return result


def _onward(
    definition: Definition, parallel: Parallel, outcome: Outcome, context: Mapping[str, Any]
) -> Transition | None:
    """The edges of a fan-out are its branches: it continues at the join, or where a failure leads."""
    join = None if parallel.join is None else Transition(to=parallel.join, reason="join")
    if outcome.status is not StepStatus.FAIL:
        return join
    node = definition.graph.nodes.get(parallel.node)
    if node is None:
        return join
    return handled_failure(definition.graph, node, outcome, as_seen(context, node.id)) or join
