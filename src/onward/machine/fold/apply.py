"""Fold: what a log means. Total over legal events, and the only way a run's state comes about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from onward.machine.fold import branches, calls, gates, life, steering, steps, stops
from onward.machine.fold.change import Changes, IllegalEvent
from onward.machine.lifecycle import FIRST, RUN
from onward.model import call as c
from onward.model.events.event import Event
from onward.model.events.gates import GateDecided, GateOpened, GateWithdrawn
from onward.model.events.runs import (
    CancelRequested,
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
    WorkdirChanged,
)
from onward.model.events.steps import (
    AttemptFailed,
    AttemptInterrupted,
    BranchFinished,
    GoalRedirected,
    ParallelStarted,
    StepFinished,
    StepRouted,
    StepStarted,
)
from onward.model.run import Run


def apply(run: Run | None, event: Event, *, run_id: str, at_us: int, token: int) -> Run:
    """The run after `event`; refuses what the lifecycle does not allow, and changes nothing else."""
    if run is None:
        if type(event) not in FIRST:
            raise IllegalEvent(None, event)
        assert isinstance(event, RunCreated)
        return life.created(event, run_id=run_id, at_us=at_us)
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
    RunForked: life.forked,
    RunClaimed: life.claimed,
    PipelineChanged: life.pipeline_changed,
    WorkdirChanged: life.workdir_changed,
    StepStarted: steps.started,
    AttemptFailed: steps.attempt_failed,
    AttemptInterrupted: steps.attempt_interrupted,
    StepFinished: steps.finished,
    c.CallStarted: calls.started,
    c.CallFinished: calls.finished,
    c.CallLost: calls.lost,
    c.AttemptHeld: calls.held,
    c.HoldsLifted: calls.holds_lifted,
    c.LimitWarned: calls.limit_warned,
    ParallelStarted: branches.started,
    BranchFinished: branches.finished,
    StepRouted: steps.routed,
    GoalRedirected: steps.redirected,
    GateOpened: gates.opened,
    GateDecided: gates.decided,
    GateWithdrawn: gates.withdrawn,
    PauseRequested: stops.pause_requested,
    CancelRequested: stops.cancel_requested,
    SteeringGiven: steering.given,
    RunWaiting: stops.waiting,
    RunQueued: stops.queued,
    RunPaused: stops.paused,
    RunInterrupted: stops.interrupted,
    RunFailed: stops.failed,
    RunResumed: stops.resumed,
    RunDismissed: stops.dismissed,
    RunCompleted: stops.completed,
    RunCancelled: stops.cancelled,
}
