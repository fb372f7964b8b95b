"""What the holder of a run does next: a pure function of the graph, the run and the time.

Starting, resuming, taking over and waking all come here. Planner nodes are rules; only effects leave as
actions to execute. `advance` plans until something must be done: all that can be decided goes into one
append. `join` says when a fan-out is decided, what is closed, and what its result is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from onward.machine.catalogue import RUNNING
from onward.machine.decide.calls import with_lost_calls
from onward.machine.decide.owner_loss import LOSSES_MAX, crash_loop
from onward.machine.decide.requests import next_deadline, requested_stop
from onward.machine.definition import FIRST_SUCCESS, Definition
from onward.machine.fold.steps import context_after
from onward.machine.lifecycle import apply
from onward.machine.plan.action import Action, Append, Execute, Merge, Sleep, Stop, Wait, stop_with
from onward.machine.plan.branch import has_arrived, plan_branch
from onward.machine.plan.nodes import RESULTS
from onward.machine.plan.route import MET, handled_failure, is_stuck
from onward.machine.reasons import reason_of
from onward.model import events as ev
from onward.model.context import OUTCOME, PREFERRED_LABEL, FrozenMap, as_seen, same
from onward.model.gate import GateWithdrawn
from onward.model.ids import branch_of, place, step_of_gate
from onward.model.run import AttemptState, Branch, Frozen, OpenStep, Parallel, Run

DRAIN = "drain"


def plan(definition: Definition, run: Run, *, now_us: int, stop_reason: str | None = None) -> Action:
    """The next thing to do for a run that is held. `stop_reason`: this process was asked to stop."""
    running = _running_attempts(run) if run.parallels else ()
    pending = run.pending
    if pending.cancel_by is not None:
        return _when_ended(running, Stop(requested_stop(run)), halt=True)
    if run.losses >= LOSSES_MAX:
        return stop_with(run, crash_loop(run.losses))
    if run.parallels:
        return _plan_branches(definition, run, running, now_us, stop_reason)
    # Nothing is left to pause before: a run that has arrived is finished, not stopped.
    is_asked = stop_reason is not None or pending.pause_after is not None
    if is_asked and not has_arrived(definition, run.root):
        stopped = _asked_to_stop(run, stop_reason, now_us)
        if stopped is not None:
            return stopped
    return plan_branch(definition, run, "", now_us)


def _asked_to_stop(run: Run, stop_reason: str | None, now_us: int) -> Stop | None:
    """A signal leaves a run that waits for an answer waiting; a person's pause is a pause."""
    if stop_reason is not None and not _only_asks(run) and run.pending.pause_after is None:
        return Stop((_released(stop_reason, now_us),))
    asked = requested_stop(run)
    return Stop(asked) if asked else None


def _released(stop_reason: str, now_us: int) -> ev.Event:
    """The run of a foreground process is paused; that of a worker is requeued."""
    if stop_reason == DRAIN:
        return ev.RunQueued(why="released by a worker that stops", wake_at_us=now_us)
    return ev.RunPaused(reason=stop_reason)


def _only_asks(run: Run) -> bool:
    """Whether every branch waits at an unanswered question."""
    asking = {
        place(gate.node, branch_of(step_of_gate(name)))
        for name, gate in run.gates.items()
        if gate.decided is None
    }
    return all(
        place(branch.next_node or "", branch_id) in asking for branch_id, branch in _active_branches(run)
    )


def _active_branches(run: Run) -> list[tuple[str, Branch]]:
    """The branches that can continue: neither ended, nor waiting for branches of their own."""
    parents = {branch_of(step) for step in run.parallels}
    return [
        (branch_id, branch)
        for branch_id, branch in run.branches.items()
        if not branch.ended and branch_id not in parents
    ]


# -- several branches at once ------------------------------------------------------------------------


def _running_attempts(run: Run) -> tuple[OpenStep, ...]:
    """The attempts that this holder has under way."""
    steps = run.open_steps.values()
    return tuple(step for step in steps if step.state is AttemptState.OPEN and step.token == run.token)


def _when_ended(running: tuple[OpenStep, ...], action: Action, *, halt: bool) -> Action:
    """Wait for the running attempts to end, or end them, then stop."""
    if not running:
        return action
    return Wait(halt=tuple(step.step for step in running) if halt else ())


def _plan_branches(
    definition: Definition, run: Run, running: tuple[OpenStep, ...], now_us: int, stop_reason: str | None
) -> Action:
    joined = join(definition, run, running)
    if joined is not None:
        return joined
    stopped = _asked_to_stop(run, stop_reason, now_us)
    if stopped is not None:
        return _when_ended(running, stopped, halt=run.pending.pause_after == "now")
    stops: list[ev.Event] = []
    sleep: Sleep | None = None
    deadline_us = next_deadline(run)
    fan_outs = {branch_id: parallel for parallel in run.parallels.values() for branch_id in parallel.branches}
    busy, full = {branch_of(step.step) for step in running}, _full(running, fan_outs)
    for branch_id, _ in _active_branches(run):
        if branch_id in busy:
            continue
        action = _plan_opened(definition, run, branch_id, fan_outs[branch_id], now_us)
        match action:
            case Execute() if any(fan_outs[around].step in full for around in _enclosing(branch_id)):
                pass  # something is under way, and this comes when it is done
            case Append() | Execute():
                return action
            case Sleep():
                sleep = action if sleep is None or action.until_us < sleep.until_us else sleep
            case _:  # it stops: the main branch alone has nothing to wait for
                stops.append(action.events[-1])
    if running:
        return Wait(until_us=_first(sleep.until_us if sleep else None, deadline_us))
    if sleep is None:
        return _stop_all(run, stops)
    return Sleep(min(sleep.until_us, deadline_us or sleep.until_us), sleep.step)


def _first(*instants: int | None) -> int | None:
    return min((instant for instant in instants if instant is not None), default=None)


def _plan_opened(definition: Definition, run: Run, branch_id: str, parallel: Parallel, now_us: int) -> Action:
    """One branch. Where a run would end, a branch ends, and its parent continues with the result."""
    branch = run.branches[branch_id]
    ends = (None, parallel.join, definition.graph.exit_id)
    if branch.next_node in ends and not is_stuck(definition, branch):
        status = run.outcomes.get(place(branch.previous, branch_id), ev.StepStatus.SUCCESS.value)
        return Append((ev.BranchFinished(branch=branch_id, status=status, reason=branch.reason),))
    action = plan_branch(definition, run, branch_id, now_us)
    match action:
        case Stop((ev.RunFailed(reason=reason, detail=why),)) if reason_of(reason).ends_branch:
            return Append((ev.BranchFinished(branch=branch_id, status="fail", reason=why),))
        case _:
            return action


def _full(running: tuple[OpenStep, ...], fan_outs: Mapping[str, Parallel]) -> frozenset[str]:
    """The fan-outs that have as many effects under way as they may, in branches of branches too."""
    busy = Counter(
        fan_outs[branch_id].step for step in running for branch_id in _enclosing(branch_of(step.step))
    )
    limits = {parallel.step: parallel.max_parallel for parallel in fan_outs.values()}
    return frozenset(step for step, number in busy.items() if number >= limits[step])


def _enclosing(branch_id: str) -> Iterator[str]:
    """The branch and every branch that it is inside of."""
    while branch_id:
        yield branch_id
        branch_id = branch_id.rpartition("/")[0]


def _stop_all(run: Run, stops: list[ev.Event]) -> Action:
    """No branch can continue. An open question is worth waiting for, whatever else has stopped.

    The run wakes when the first of its branches can continue by itself.
    """
    timed = [event for event in stops if isinstance(event, ev.RunWaiting | ev.RunInterrupted)]
    first = next((event for event in timed if isinstance(event, ev.RunWaiting)), stops[0])
    if isinstance(first, ev.RunWaiting | ev.RunInterrupted):
        first = replace(first, wake_at_us=_first(*(event.wake_at_us for event in timed)))
    return stop_with(run, first)


NO_MORE = Stop(())


class Advance(Frozen, frozen=True):
    """What to write in one append, the run after it, and what to do then."""

    events: list[ev.Event]
    run: Run
    action: Action


def advance(
    definition: Definition, run: Run, first: Sequence[ev.Event], *, now_us: int, stop_reason: str | None
) -> Advance:
    """Record `first`, then everything that follows from it without an effect."""
    events: list[ev.Event] = []
    starts: list[ev.StepStarted] = []
    # Nearly no run has open calls or gates, and to ask `with_lost_calls` takes longer than to ask here.
    for event in with_lost_calls(run, first) if run.open_calls or run.gates else first:
        run = apply(run, event, run_id=run.id, at_us=now_us, token=run.token)
        events.append(event)
    while run.status is RUNNING:
        action = plan(definition, run, now_us=now_us, stop_reason=stop_reason)
        for event in with_lost_calls(run, action.events) if run.open_calls or run.gates else action.events:
            run = apply(run, event, run_id=run.id, at_us=now_us, token=run.token)
            events.append(event)
        if type(action) is Append:
            continue
        if run.parallels and type(action) is Execute:
            starts.append(action.started)  # other branches may have something to begin as well
        elif type(action) is Wait or type(action) is Merge:
            return Advance(events, run, replace(action, starts=tuple(starts)))
        else:
            return Advance(events, run, action)
    return Advance(events, run, NO_MORE)


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


def branches_joined(definition: Definition, run: Run, step: str, merged: ev.Merged) -> tuple[ev.Event, ...]:
    """The end of a fan-out whose branches' work was taken over; nothing if it is over already."""
    parallel = run.parallels.get(step)
    if parallel is None:
        return ()
    losers = [branch_id for branch_id in parallel.branches if not run.branches[branch_id].ended]
    return (*_closed(run, losers), _finished(definition, run, parallel, merged))


def _is_in(step: str, branch_ids: Sequence[str]) -> bool:
    return any(step.startswith(f"{branch_id}/") for branch_id in branch_ids)


def _closed_inner(run: Run, parallel: Parallel) -> tuple[ev.Event, ...]:
    """Close a fan-out inside a branch that lost, so that the branch itself can be closed."""
    going = [branch_id for branch_id in parallel.branches if not run.branches[branch_id].ended]
    outcome = ev.Outcome(status=ev.StepStatus.SKIPPED, notes="another branch won")
    finished = ev.StepFinished(step=parallel.step, node=parallel.node, attempt=1, outcome=outcome)
    return (*_closed(run, going), finished)


def _closed(run: Run, losers: Sequence[str]) -> tuple[ev.Event, ...]:
    """Close what is open in branches that lost, and end them."""
    gates = [
        GateWithdrawn(gate=name)
        for name, gate in run.gates.items()
        if gate.decided is None and branch_of(step_of_gate(name)) in losers
    ]
    attempts = [
        ev.AttemptInterrupted(step=name, attempt=step.attempt, why="another branch won")
        for name, step in run.open_steps.items()
        if step.state is AttemptState.OPEN and branch_of(name) in losers
    ]
    ends = [
        ev.BranchFinished(branch=branch_id, status=CANCELLED, reason="another branch won")
        for branch_id in losers
    ]
    return (*gates, *attempts, *ends)


def _finished(
    definition: Definition, run: Run, parallel: Parallel, merged: ev.Merged = ev.NOTHING_MERGED
) -> ev.StepFinished:
    branch_id = branch_of(parallel.step)
    parent = run.branches[branch_id]
    results = [_result(parallel, name, run.branches[name], parent.context) for name in parallel.branches]
    status = _status(parallel, [result["status"] for result in results])
    if merged.conflicts and status is ev.StepStatus.SUCCESS:
        status = ev.StepStatus.PARTIAL_SUCCESS
    reason = "no branch succeeded" if status is ev.StepStatus.FAIL else ""
    outcome = ev.Outcome(status=status, failure_reason=reason)
    changes = {RESULTS: results, **_conflicts(run, branch_id, merged)}
    return ev.StepFinished(
        step=parallel.step,
        node=parallel.node,
        attempt=1,
        outcome=outcome,
        context=changes,
        next=_onward(definition, parallel, outcome, context_after(parent.context, outcome, changes, {})),
        workspace=merged.tree,
    )


def _conflicts(run: Run, branch_id: str, merged: ev.Merged) -> dict[str, Any]:
    """What the context says about conflicts between branches; nothing if there never were any."""
    if not merged.conflicts and CONFLICTS not in run.branches[branch_id].context:
        return {}
    return {CONFLICTS: [{"branch": c.branch, "files": list(c.files)} for c in merged.conflicts]}


def _status(parallel: Parallel, statuses: Sequence[str]) -> ev.StepStatus:
    if parallel.policy == FIRST_SUCCESS:
        return ev.StepStatus.SUCCESS if any(status in MET for status in statuses) else ev.StepStatus.FAIL
    return ev.StepStatus.PARTIAL_SUCCESS if "fail" in statuses else ev.StepStatus.SUCCESS


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
    definition: Definition, parallel: Parallel, outcome: ev.Outcome, context: Mapping[str, Any]
) -> ev.Transition | None:
    """The edges of a fan-out are its branches: it continues at the join, or where a failure leads."""
    join = None if parallel.join is None else ev.Transition(to=parallel.join, reason="join")
    if outcome.status is not ev.StepStatus.FAIL:
        return join
    node = definition.graph.nodes.get(parallel.node)
    if node is None:
        return join
    return handled_failure(definition.graph, node, outcome, as_seen(context, node.id)) or join
