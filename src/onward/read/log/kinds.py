"""The kinds of events: which step each is about, and which kinds each reader of a log leaves out.

A new kind must be handled or left out by every reader: a test compares this table with the catalogue.
"""

from __future__ import annotations

from collections.abc import Mapping

from onward.model.call import AttemptHeld, CallFinished, CallLost, CallStarted
from onward.model.events import (
    AttemptFailed,
    AttemptInterrupted,
    Event,
    ParallelStarted,
    StepFinished,
    StepRouted,
    StepStarted,
)
from onward.model.gate import GateDecided, GateOpened, GateWithdrawn

_NAMED_BY: Mapping[type[Event], str] = {
    StepStarted: "step",
    AttemptFailed: "step",
    AttemptInterrupted: "step",
    StepFinished: "step",
    StepRouted: "step",
    CallStarted: "step",
    CallFinished: "step",
    CallLost: "step",
    AttemptHeld: "step",
    ParallelStarted: "step",
    GateOpened: "gate",
    GateDecided: "gate",
    GateWithdrawn: "gate",
}


def step_of(event: Event) -> str | None:
    """The step that an event is about; None if it is about a branch or the whole run."""
    name = _NAMED_BY.get(type(event))
    return None if name is None else getattr(event, name)


def _names(*kinds: str) -> frozenset[str]:
    return frozenset(name for some in kinds for name in some.split())


_CHANGES = "PipelineChanged WorkdirChanged StepRouted GoalRedirected"
_REQUESTS = "PauseRequested CancelRequested SteeringGiven RunDismissed"
_LIFE = "RunCreated RunForked RunClaimed RunResumed RunCompleted"
_STOPS = "RunPaused RunInterrupted RunFailed RunCancelled"
_HANDED_BACK = "RunWaiting RunQueued"
_GATES = "GateOpened GateDecided GateWithdrawn"
_BRANCHES = "ParallelStarted BranchFinished"
_CALLS = "CallStarted CallFinished CallLost HoldsLifted LimitWarned"

LEFT_OUT: Mapping[str, frozenset[str]] = {
    "read.log.projection": _names(
        _CHANGES, _REQUESTS, _HANDED_BACK, "CallStarted HoldsLifted LimitWarned RunCompleted"
    ),
    "read.log.kinds": _names(
        *("PipelineChanged WorkdirChanged GoalRedirected BranchFinished HoldsLifted LimitWarned", _REQUESTS),
        *(_LIFE, _STOPS, _HANDED_BACK),
    ),
    "read.past": _names(
        *(_REQUESTS, _HANDED_BACK, _CALLS, "RunCreated RunCompleted RunCancelled GateOpened GateWithdrawn"),
        "AttemptHeld",
    ),
    "read.dialect_events": _names(
        _CHANGES, _REQUESTS, _HANDED_BACK, _CALLS, "RunClaimed AttemptInterrupted AttemptHeld GateWithdrawn"
    ),
    "receipts.trail": _names(
        *("StepRouted GoalRedirected", _REQUESTS, _STOPS, _HANDED_BACK, _BRANCHES),
        *("RunForked RunClaimed RunResumed RunCompleted", "StepStarted GateOpened", _CALLS),
    ),
    "draw.trace": _names(
        *("PipelineChanged WorkdirChanged", _REQUESTS, _LIFE, _STOPS, _HANDED_BACK, _GATES),
        *("AttemptFailed AttemptInterrupted BranchFinished", _CALLS, "AttemptHeld"),
    ),
    "cli.print.narrate": _names(
        *("PipelineChanged WorkdirChanged", _REQUESTS, _STOPS, _HANDED_BACK),
        *("RunForked RunClaimed RunResumed GateWithdrawn", "CallLost HoldsLifted AttemptHeld"),
    ),
    "operations.local.operations": _names(
        *("GoalRedirected", _REQUESTS, _HANDED_BACK, _BRANCHES, "RunPaused RunInterrupted"),
        *(_CALLS, "AttemptHeld"),
        *("RunCreated RunForked RunClaimed RunResumed", "AttemptFailed AttemptInterrupted GateWithdrawn"),
    ),
    "observe.log": _names(
        *(_CHANGES, _REQUESTS, _LIFE, _STOPS, _HANDED_BACK, _BRANCHES, "GateDecided GateWithdrawn"),
        *(_CALLS, "AttemptHeld"),
    ),
    "observe.metrics": _names(
        *(_CHANGES, _REQUESTS, _LIFE, _STOPS, _HANDED_BACK, _GATES, _BRANCHES, "StepStarted StepFinished"),
        *(_CALLS, "AttemptHeld"),
    ),
    "operations.here.directories": _names(
        *(_CHANGES, _REQUESTS, _LIFE, _STOPS, _HANDED_BACK, _GATES, _BRANCHES, "AttemptInterrupted"),
        *(_CALLS, "AttemptHeld"),
    ),
    "read.calls": _names(
        *(_CHANGES, _REQUESTS, _LIFE, _STOPS, _HANDED_BACK, _GATES, _BRANCHES, "StepStarted StepFinished"),
        "AttemptFailed AttemptInterrupted AttemptHeld HoldsLifted LimitWarned",
    ),
    "read.reservations": _names(
        *(_CHANGES, _REQUESTS, _LIFE, _STOPS, _HANDED_BACK, _GATES, _BRANCHES, "StepStarted StepFinished"),
        "AttemptFailed AttemptInterrupted AttemptHeld HoldsLifted LimitWarned",
    ),
    "engine.files.rebuild": _names(
        *(_CHANGES, _REQUESTS, _LIFE, _STOPS, _HANDED_BACK, _GATES, _BRANCHES, "AttemptInterrupted"),
        *(_CALLS, "AttemptHeld"),
    ),
}
"""For each reader, by its module: the kinds that it ignores. It handles every other kind.

If receipts and drawings need something of a kind they ignore, they get it from the projection.
"""
