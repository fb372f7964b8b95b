"""What the holder of a run does next: a pure function of the graph, the run and the time.

Starting, resuming, taking over and waking all come here. Planner nodes are rules here; only
effects leave it, as actions to execute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from onward.machine.decide.answers import next_deadline
from onward.machine.decide.closing import requested_stop
from onward.machine.decide.owner_loss import LOSSES_MAX, crash_loop
from onward.machine.definition import Definition
from onward.machine.plan.action import Action, Append, Execute, Sleep, Stop, Wait
from onward.machine.plan.branch import has_arrived, plan_branch
from onward.machine.plan.ending import is_stuck
from onward.machine.plan.join import join
from onward.machine.plan.stops import stop_with
from onward.model.events.event import Event
from onward.model.events.runs import RunFailed, RunInterrupted, RunPaused, RunQueued, RunWaiting
from onward.model.events.steps import BranchFinished, StepStatus
from onward.model.ids import branch_of, place, step_of_gate
from onward.model.run import AttemptState, Branch, OpenStep, Parallel, Run

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


def _released(stop_reason: str, now_us: int) -> Event:
    """The run of a foreground process is paused; that of a worker is requeued."""
    if stop_reason == DRAIN:
        return RunQueued(why="released by a worker that stops", wake_at_us=now_us)
    return RunPaused(reason=stop_reason)


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
    stops: list[Event] = []
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
        status = run.outcomes.get(place(branch.previous, branch_id), StepStatus.SUCCESS.value)
        return Append((BranchFinished(branch=branch_id, status=status, reason=branch.reason),))
    action = plan_branch(definition, run, branch_id, now_us)
    match action:
        case Stop((RunFailed(reason="step_failed" | "no_way_on", detail=why),)):
            return Append((BranchFinished(branch=branch_id, status="fail", reason=why),))
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


def _stop_all(run: Run, stops: list[Event]) -> Action:
    """No branch can continue. An open question is worth waiting for, whatever else has stopped.

    The run wakes when the first of its branches can continue by itself.
    """
    timed = [event for event in stops if isinstance(event, RunWaiting | RunInterrupted)]
    first = next((event for event in timed if isinstance(event, RunWaiting)), stops[0])
    if isinstance(first, RunWaiting | RunInterrupted):
        first = replace(first, wake_at_us=_first(*(event.wake_at_us for event in timed)))
    return stop_with(run, first)
