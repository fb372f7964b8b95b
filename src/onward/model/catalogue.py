"""Every kind of event, and who may write it."""

from __future__ import annotations

from enum import StrEnum

from onward.model.call import AttemptHeld, CallFinished, CallLost, CallStarted, HoldsLifted, LimitWarned
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


class Writer(StrEnum):
    """Who may append an event: the holder of the lease, or a control request."""

    HOLDER = "holder"
    CONTROL = "control"
    EITHER = "either"


CATALOGUE: dict[type[Event], Writer] = {
    RunCreated: Writer.CONTROL,
    RunForked: Writer.CONTROL,
    RunClaimed: Writer.CONTROL,
    PipelineChanged: Writer.CONTROL,
    WorkdirChanged: Writer.CONTROL,
    StepStarted: Writer.HOLDER,
    AttemptFailed: Writer.HOLDER,
    AttemptInterrupted: Writer.EITHER,
    StepFinished: Writer.EITHER,
    CallStarted: Writer.HOLDER,
    CallFinished: Writer.EITHER,
    CallLost: Writer.EITHER,
    AttemptHeld: Writer.HOLDER,
    HoldsLifted: Writer.EITHER,
    LimitWarned: Writer.HOLDER,
    ParallelStarted: Writer.HOLDER,
    BranchFinished: Writer.HOLDER,
    StepRouted: Writer.HOLDER,
    GoalRedirected: Writer.HOLDER,
    GateOpened: Writer.HOLDER,
    GateDecided: Writer.EITHER,
    GateWithdrawn: Writer.EITHER,
    PauseRequested: Writer.CONTROL,
    CancelRequested: Writer.CONTROL,
    SteeringGiven: Writer.CONTROL,
    RunWaiting: Writer.HOLDER,
    RunQueued: Writer.EITHER,
    RunPaused: Writer.EITHER,
    RunInterrupted: Writer.EITHER,
    RunFailed: Writer.EITHER,
    RunResumed: Writer.CONTROL,
    RunDismissed: Writer.CONTROL,
    RunCompleted: Writer.HOLDER,
    RunCancelled: Writer.EITHER,
}

CHECKPOINTS: tuple[type[Event], ...] = (RunCreated, StepFinished)
