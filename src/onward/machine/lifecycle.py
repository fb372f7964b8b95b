"""The statuses of a run, as data: which events may happen in each, and where they lead.

Everything that affects a run's status is in this file; nothing else assigns one. A pair that is absent is
refused (`IllegalEvent`). `docs/state-machine.md` is generated from these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

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
from onward.model.run import RunStatus

QUEUED, RUNNING, WAITING = RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING
PAUSED, INTERRUPTED, FAILED = RunStatus.PAUSED, RunStatus.INTERRUPTED, RunStatus.FAILED
COMPLETED, CANCELLED = RunStatus.COMPLETED, RunStatus.CANCELLED

# The first event of a log, when there is no status yet.
FIRST: Mapping[type[Event], RunStatus] = {RunCreated: QUEUED}


def _stopped(status: RunStatus) -> Mapping[type[Event], RunStatus]:
    """A stopped run keeps its status until it is resumed or cancelled; its gates can be answered."""
    return {
        RunResumed: QUEUED,
        RunCancelled: CANCELLED,
        RunDismissed: status,
        GateDecided: status,
        GateWithdrawn: status,
        AttemptInterrupted: status,
        SteeringGiven: status,
        c.CallFinished: status,
    }


RUN: Mapping[RunStatus, Mapping[type[Event], RunStatus]] = {
    QUEUED: {
        RunClaimed: RUNNING,
        RunForked: QUEUED,
        PipelineChanged: QUEUED,
        WorkdirChanged: QUEUED,
        RunResumed: QUEUED,
        StepFinished: QUEUED,
        GateDecided: QUEUED,
        GateWithdrawn: QUEUED,
        AttemptInterrupted: QUEUED,
        c.CallFinished: QUEUED,
        SteeringGiven: QUEUED,
        RunPaused: PAUSED,
        RunInterrupted: INTERRUPTED,
        RunFailed: FAILED,
        RunCancelled: CANCELLED,
    },
    RUNNING: {
        RunClaimed: RUNNING,
        RunForked: QUEUED,
        StepStarted: RUNNING,
        AttemptFailed: RUNNING,
        AttemptInterrupted: RUNNING,
        StepFinished: RUNNING,
        c.CallStarted: RUNNING,
        c.CallFinished: RUNNING,
        c.CallLost: RUNNING,
        c.AttemptHeld: RUNNING,
        c.HoldsLifted: RUNNING,
        c.LimitWarned: RUNNING,
        ParallelStarted: RUNNING,
        BranchFinished: RUNNING,
        StepRouted: RUNNING,
        GoalRedirected: RUNNING,
        GateOpened: RUNNING,
        GateDecided: RUNNING,
        GateWithdrawn: RUNNING,
        PauseRequested: RUNNING,
        CancelRequested: RUNNING,
        SteeringGiven: RUNNING,
        RunWaiting: WAITING,
        RunQueued: QUEUED,
        RunPaused: PAUSED,
        RunInterrupted: INTERRUPTED,
        RunFailed: FAILED,
        RunCompleted: COMPLETED,
        RunCancelled: CANCELLED,
    },
    WAITING: {
        GateDecided: QUEUED,
        RunQueued: QUEUED,
        GateWithdrawn: WAITING,
        AttemptInterrupted: WAITING,
        SteeringGiven: WAITING,
        PipelineChanged: WAITING,
        WorkdirChanged: WAITING,
        RunPaused: PAUSED,
        RunFailed: FAILED,
        RunCancelled: CANCELLED,
    },
    PAUSED: _stopped(PAUSED),
    INTERRUPTED: {**_stopped(INTERRUPTED), RunQueued: QUEUED},
    FAILED: _stopped(FAILED),
    COMPLETED: {},
    CANCELLED: {},
}


class Reason(msgspec.Struct, frozen=True):
    """Why a run stopped, which status that is, and whether it can continue."""

    status: RunStatus
    recoverable: bool
    says: str
    resume_with: str = ""
    """The flags of which `onward resume` needs one, if a plain resume is refused."""


SUPERSEDED = "superseded"
REASONS: Mapping[str, Reason] = {
    "signal": Reason(PAUSED, True, "stopped by Ctrl-C or a termination signal"),
    "manager": Reason(PAUSED, True, "the run that manages it was stopped"),
    "operator": Reason(PAUSED, True, "a pause was requested"),
    "restart": Reason(INTERRUPTED, True, "the server restarted while the run was running"),
    "crash": Reason(INTERRUPTED, True, "the process that held the run died"),
    "limit": Reason(INTERRUPTED, True, "a limit allows no further call"),
    "in_doubt": Reason(
        INTERRUPTED,
        True,
        "a step that must not be repeated may or may not have run",
        "--retry|--skip|--continue|--abort",
    ),
    "rate_limit": Reason(INTERRUPTED, True, "the provider asked to retry later"),
    "step_failed": Reason(FAILED, True, "a step failed and no edge or retry target handles it"),
    "no_way_on": Reason(
        FAILED,
        True,
        "a step finished and none of its edges can be taken",
        "--accept-changes|--retry|--from NODE",
    ),
    "goal_unmet": Reason(FAILED, True, "the exit was reached with an unmet goal gate"),
    "crash_loop": Reason(FAILED, True, "its holders kept dying without a new checkpoint"),
    "pipeline_error": Reason(FAILED, True, "the pipeline itself does not let it continue"),
    "provider_auth": Reason(FAILED, True, "the model provider does not accept the key"),
    "provider_credit": Reason(FAILED, True, "the account at the model provider has no credit left"),
    "provider_forbidden": Reason(FAILED, True, "the key may not use the model"),
    "provider_request": Reason(FAILED, True, "the model provider does not accept the request"),
    "rejected": Reason(FAILED, False, "a gate was rejected and no edge handles that"),
    "invalid": Reason(FAILED, False, "the run can never work as requested"),
    "dead_end": Reason(COMPLETED, False, "it ended at a node that has no edges and is not the exit"),
    "restarted_as": Reason(COMPLETED, False, "a loop_restart edge ended it and another run continues"),
    "user": Reason(CANCELLED, False, "a cancel was requested"),
    SUPERSEDED: Reason(CANCELLED, False, "a new run replaced it"),
}


def is_recoverable(status: RunStatus, reason: str) -> bool:
    """Whether a person may resume a run that stopped like this."""
    found = REASONS.get(reason)
    return found is not None and found.recoverable and found.status is status


def resume_flags(reason: str, doubtful: str | None) -> str:
    """The flags of which a resume needs one after this stop; `doubtful` is a step in doubt, if any."""
    found = REASONS.get("in_doubt" if doubtful is not None else reason)
    return "" if found is None else found.resume_with


# -- what the folds share: changes to a run, and the refusal of an event --------------------------------
Changes = dict[str, Any]


class IllegalEvent(Exception):
    """An event that may not follow where it stands: a damaged log, or a defect in what wrote it."""

    def __init__(self, status: RunStatus | None, event: Event, why: str = "") -> None:
        self.status, self.event = status, event
        super().__init__(why or f"{event.kind} is not allowed when the run is {status or 'not created'}")


def without(mapping: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The mapping but for one key."""
    rest = dict(mapping)
    rest.pop(key, None)
    return rest
