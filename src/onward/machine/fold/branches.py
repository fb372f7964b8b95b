"""Folding fan-outs: branches are opened together, end one by one, and are removed when they are joined."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from msgspec.structs import replace

from onward.machine.fold.change import Changes, IllegalEvent, without
from onward.machine.plan.route import MET
from onward.model.events.event import Event
from onward.model.events.steps import BranchFinished, ParallelStarted, StepFinished
from onward.model.ids import branch_of, node_of, place, place_of, step_of_gate
from onward.model.run import AttemptState, Branch, Parallel, Run
from onward.model.values.frozenmap import FrozenMap

T = TypeVar("T")


def started(run: Run, event: ParallelStarted, at_us: int) -> Changes:
    parent = run.branches.get(branch_of(event.step))
    if parent is None or event.step in run.parallels:
        raise IllegalEvent(
            run.status, event, f"{event.step} has no branch to fan out from, or already has branches"
        )
    opened = {
        plan.path: Branch(
            context=parent.context,
            next_node=plan.to,
            edge=plan.edge,
            previous=event.node,
            response=parent.response,
            tree=parent.tree,
        )
        for plan in event.branches
    }
    at = place_of(event.step)
    parallel = Parallel(
        step=event.step,
        node=event.node,
        branches=tuple(opened),
        join=event.join,
        policy=event.policy,
        max_parallel=event.max_parallel,
        began_at_us=at_us,
    )
    return {
        "branches": {**run.branches, **opened},
        "parallels": {**run.parallels, event.step: parallel},
        "visits": run.visits.with_(at, run.visits.get(at, 0) + 1),
    }


def finished(run: Run, event: BranchFinished, at_us: int) -> Changes:
    branch = run.branches.get(event.branch)
    if not event.branch or branch is None or branch.ended:
        raise IllegalEvent(run.status, event, f"there is no unfinished branch {event.branch}")
    _check_nothing_open(run, event, (event.branch,))
    ended = replace(branch, ended=event.status, reason=event.reason)
    return {
        "branches": {**run.branches, event.branch: ended},
        # What was tried and not finished, as when the branch lost the race, is over with it.
        "open_steps": {s: opened for s, opened in run.open_steps.items() if branch_of(s) != event.branch},
        "gates": {n: gate for n, gate in run.gates.items() if branch_of(step_of_gate(n)) != event.branch},
    }


def joined(run: Run, event: StepFinished, branches: Mapping[str, Branch]) -> Changes:
    """A fan-out has its outcome: its branches are removed, and nothing may be left open in them."""
    gone = run.parallels[event.step].branches
    _check_nothing_open(run, event, gone)
    if any(not run.branches[branch_id].ended for branch_id in gone):
        raise IllegalEvent(run.status, event, f"{event.step} has branches that have not ended")
    return {
        "branches": {branch_id: branch for branch_id, branch in branches.items() if branch_id not in gone},
        "parallels": without(run.parallels, event.step),
        **drop_branches(run, gone, onto=branch_of(event.step)),
    }


def drop_branches(run: Run, gone: Collection[str], *, onto: str) -> Changes:
    """What branches that have ended leave to the branch `onto`: the last outcome of every node they visited.

    Where several of them visited one node, an outcome that meets no goal counts before one that does. Their
    visits and attempts are dropped: no branch ever has the same id again, and a loop may open any number of
    them.
    """
    found: dict[str, dict[str, str]] = {branch_id: {} for branch_id in gone}
    for at, status in run.outcomes.items():
        if (branch_id := branch_of(at)) in found:
            found[branch_id][place(node_of(at), onto)] = status
    left: dict[str, str] = {}
    for outcomes in found.values():
        left |= {at: status for at, status in outcomes.items() if left.get(at, MET[0]) in MET}
    return {
        "outcomes": _without_branches(run.outcomes, found).with_all(left),
        "visits": _without_branches(run.visits, found),
        "executions": _without_branches(run.executions, found),
        "retries": _without_branches(run.retries, found),
    }


def _without_branches(places: FrozenMap[T], gone: Collection[str]) -> FrozenMap[T]:
    return FrozenMap({at: value for at, value in places.items() if branch_of(at) not in gone})


def _check_nothing_open(run: Run, event: Event, branch_ids: tuple[str, ...]) -> None:
    attempts = [s for s, step in run.open_steps.items() if step.state is AttemptState.OPEN]
    gates = [step_of_gate(name) for name, gate in run.gates.items() if gate.decided is None]
    inside = [step for step in run.parallels if branch_of(step) in branch_ids]
    left = [name for name in (*attempts, *gates) if branch_of(name) in branch_ids] + inside
    if left:
        raise IllegalEvent(run.status, event, f"{event.kind} leaves something open: {', '.join(left)}")
