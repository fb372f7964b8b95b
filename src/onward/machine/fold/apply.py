"""Fold: what a log means. Total over legal events, and the only way a run's state comes about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from onward.machine.fold import calls, runs, steps
from onward.machine.lifecycle import FIRST, RUN, Changes, IllegalEvent
from onward.model import call as c
from onward.model.events import (
    AttemptFailed,
    AttemptInterrupted,
    BranchFinished,
    CancelRequested,
    Event,
    GoalRedirected,
    ParallelStarted,
    PauseRequested,
    PipelineChanged,
    RunCancelled,
    RunClaimed,
    RunCompleted,
    RunCreated,
    RunDismissed,
    RunFailed,
    RunForked,
    RunInterrupted,
    RunPaused,
    RunQueued,
    RunResumed,
    RunWaiting,
    SteeringGiven,
    StepFinished,
    StepRouted,
    StepStarted,
    WorkdirChanged,
)
from onward.model.gate import GateDecided, GateOpened, GateWithdrawn
from onward.model.run import Run


def apply(run: Run | None, event: Event, *, run_id: str, at_us: int, token: int) -> Run:
    """The run after `event`; refuses what the lifecycle does not allow, and changes nothing else."""
    if run is None:
        if type(event) not in FIRST:
            raise IllegalEvent(None, event)
        assert isinstance(event, RunCreated)
        return runs.run_created(event, run_id=run_id, at_us=at_us)
    kind = type(event)
    status = RUN[run.status].get(kind)
    if status is None:
        raise IllegalEvent(run.status, event)
    if token < run.token:
        raise IllegalEvent(run.status, event, f"{event.kind} carries token {token}, older than {run.token}")
    if run.open_calls or run.gates:
        calls.check_closed(run, event)
    changes = _FOLDS[kind](run, event, at_us)
    if run.id != run_id:
        changes["id"] = run_id  # the prefix of a fork was folded as its parent
    return replace(run, status=status, head=run.head + 1, updated_at_us=at_us, **changes)


def fold(run: Run | None, events: Iterable[tuple[Event, int, int]], *, run_id: str) -> Run | None:
    """Apply `(event, at_us, token)` one after the other."""
    for event, at_us, token in events:
        run = apply(run, event, run_id=run_id, at_us=at_us, token=token)
    return run


_FOLDS: Mapping[type[Event], Callable[[Run, Any, int], Changes]] = {
    RunForked: runs.run_forked,
    RunClaimed: runs.run_claimed,
    PipelineChanged: runs.pipeline_changed,
    WorkdirChanged: runs.workdir_changed,
    StepStarted: steps.step_started,
    AttemptFailed: steps.attempt_failed,
    AttemptInterrupted: steps.attempt_interrupted,
    StepFinished: steps.step_finished,
    c.CallStarted: calls.call_started,
    c.CallFinished: calls.call_finished,
    c.CallLost: calls.call_lost,
    c.AttemptHeld: calls.attempt_held,
    c.HoldsLifted: calls.holds_lifted,
    c.LimitWarned: calls.limit_warned,
    ParallelStarted: steps.parallel_started,
    BranchFinished: steps.branch_finished,
    StepRouted: steps.step_routed,
    GoalRedirected: steps.goal_redirected,
    GateOpened: steps.gate_opened,
    GateDecided: steps.gate_decided,
    GateWithdrawn: steps.gate_withdrawn,
    PauseRequested: runs.pause_requested,
    CancelRequested: runs.cancel_requested,
    SteeringGiven: calls.steering_given,
    RunWaiting: runs.run_waiting,
    RunQueued: runs.run_queued,
    RunPaused: runs.run_paused,
    RunInterrupted: runs.run_interrupted,
    RunFailed: runs.run_failed,
    RunResumed: runs.run_resumed,
    RunDismissed: runs.run_dismissed,
    RunCompleted: runs.run_completed,
    RunCancelled: runs.run_cancelled,
}
