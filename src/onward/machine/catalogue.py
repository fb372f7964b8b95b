"""Every kind of event, one row each: who writes it, where it leads, and what it means to those who read it.

What is known of a kind stands here and nowhere else. `lifecycle` derives the table of statuses from it,
`fold/` what an event does to a run and to the rows beside its log, `read/log.py` the step it is about, and
`engine/log.py` the texts that may hold a secret. `docs/events.md` and `docs/state-machine.md` are
generated from it. A new kind is its class in the model, its row here and the fold that the row names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from onward.machine.fold import calls, runs, steps
from onward.machine.fold.changes import Changes
from onward.model import events as ev
from onward.model.call import AttemptHeld, CallFinished, CallLost, CallStarted, HoldsLifted, LimitWarned
from onward.model.gate import GateDecided, GateOpened, GateWithdrawn
from onward.model.run import Run, RunStatus


class Writer(StrEnum):
    """Who may append an event: the holder of the lease, or a control request."""

    HOLDER = "holder"
    CONTROL = "control"
    EITHER = "either"


class Ends(StrEnum):
    """Whose open calls and questions an event ends: they are closed in the same append."""

    NOTHING = "nothing"
    STEP = "step"
    BRANCH = "branch"
    RUN = "run"


Moves = Mapping[RunStatus | None, RunStatus]
Fold = Callable[[Run, Any, int], Changes]


class EventRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one kind of event.

    `moves` are the statuses in which it may happen, with those that follow; None stands for a run that does
    not exist yet. `fold` says what else changes; only the event that creates a run has none. `about` is the
    field with the step or gate that it is about; empty if it is about a branch or the whole run. `said` are
    the fields that hold what steps and people say: secrets are taken out of them, and of no other.
    `notifies`: people and programs outside may have to be told.
    """

    writer: Writer
    moves: Moves
    fold: Fold | None = None
    ends: Ends = Ends.NOTHING
    about: str = ""
    said: tuple[str, ...] = ()
    notifies: bool = False
    is_checkpoint: bool = False


QUEUED, RUNNING, WAITING = RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING
_STOPPED = (RunStatus.PAUSED, RunStatus.INTERRUPTED, RunStatus.FAILED)
_NOT_FINAL = (QUEUED, RUNNING, WAITING, *_STOPPED)


def _to(status: RunStatus, *before: RunStatus) -> Moves:
    return dict.fromkeys(before, status)


def _stays(*statuses: RunStatus) -> Moves:
    return {status: status for status in statuses}


_WORKING = _stays(RUNNING)

CATALOGUE: Mapping[type[ev.Event], EventRow] = {
    ev.RunCreated: EventRow(
        writer=Writer.CONTROL,
        moves={None: QUEUED},
        said=("context", "simulation"),
        is_checkpoint=True,
    ),
    ev.RunForked: EventRow(
        writer=Writer.CONTROL,
        moves=_to(QUEUED, QUEUED, RUNNING),
        fold=runs.run_forked,
        ends=Ends.RUN,
        said=("context", "by"),
        notifies=True,
    ),
    ev.RunClaimed: EventRow(
        writer=Writer.CONTROL,
        moves=_to(RUNNING, QUEUED, RUNNING),
        fold=runs.run_claimed,
        ends=Ends.RUN,
    ),
    ev.PipelineChanged: EventRow(
        writer=Writer.CONTROL,
        moves=_stays(QUEUED, WAITING),
        fold=runs.pipeline_changed,
        said=("by",),
    ),
    ev.WorkdirChanged: EventRow(
        writer=Writer.CONTROL,
        moves=_stays(QUEUED, WAITING),
        fold=runs.workdir_changed,
        said=("by",),
    ),
    ev.StepStarted: EventRow(
        writer=Writer.HOLDER,
        moves=_WORKING,
        fold=steps.step_started,
        about="step",
    ),
    ev.AttemptFailed: EventRow(
        writer=Writer.HOLDER,
        moves=_WORKING,
        fold=steps.attempt_failed,
        ends=Ends.STEP,
        about="step",
        said=("reason", "log", "output"),
    ),
    ev.AttemptInterrupted: EventRow(
        writer=Writer.EITHER,
        moves=_stays(*_NOT_FINAL),
        fold=steps.attempt_interrupted,
        ends=Ends.STEP,
        about="step",
        said=("why", "output", "running"),
    ),
    ev.StepFinished: EventRow(
        writer=Writer.EITHER,
        moves=_stays(QUEUED, RUNNING),
        fold=steps.step_finished,
        ends=Ends.STEP,
        about="step",
        said=("context", "outcome", "grown", "log", "response", "output"),
        is_checkpoint=True,
    ),
    CallStarted: EventRow(
        writer=Writer.HOLDER,
        moves=_WORKING,
        fold=calls.call_started,
        about="step",
        said=("name", "about"),
    ),
    CallFinished: EventRow(
        writer=Writer.EITHER,
        moves=_stays(QUEUED, RUNNING, *_STOPPED),
        fold=calls.call_finished,
        about="step",
        said=("name", "value", "content", "error", "by", "about", "note"),
    ),
    CallLost: EventRow(
        writer=Writer.EITHER,
        moves=_WORKING,
        fold=calls.call_lost,
        about="step",
        said=("why",),
    ),
    AttemptHeld: EventRow(
        writer=Writer.HOLDER,
        moves=_WORKING,
        fold=calls.attempt_held,
        ends=Ends.STEP,
        about="step",
        said=("reason", "detail"),
    ),
    HoldsLifted: EventRow(
        writer=Writer.EITHER,
        moves=_WORKING,
        fold=calls.holds_lifted,
        said=("why", "by"),
    ),
    LimitWarned: EventRow(
        writer=Writer.HOLDER,
        moves=_WORKING,
        fold=calls.limit_warned,
    ),
    ev.ParallelStarted: EventRow(
        writer=Writer.HOLDER,
        moves=_WORKING,
        fold=steps.parallel_started,
        about="step",
    ),
    ev.BranchFinished: EventRow(
        writer=Writer.HOLDER,
        moves=_WORKING,
        fold=steps.branch_finished,
        ends=Ends.BRANCH,
        said=("reason",),
    ),
    ev.StepRouted: EventRow(
        writer=Writer.HOLDER,
        moves=_WORKING,
        fold=steps.step_routed,
        about="step",
    ),
    ev.GoalRedirected: EventRow(
        writer=Writer.HOLDER,
        moves=_WORKING,
        fold=steps.goal_redirected,
    ),
    GateOpened: EventRow(
        writer=Writer.HOLDER,
        moves=_WORKING,
        fold=steps.gate_opened,
        about="gate",
        said=("text", "metadata", "about"),
        notifies=True,
    ),
    GateDecided: EventRow(
        writer=Writer.EITHER,
        moves={**_stays(*_NOT_FINAL), WAITING: QUEUED},
        fold=steps.gate_decided,
        about="gate",
        said=("choice", "by", "text"),
    ),
    GateWithdrawn: EventRow(
        writer=Writer.EITHER,
        moves=_stays(*_NOT_FINAL),
        fold=steps.gate_withdrawn,
        about="gate",
    ),
    ev.PauseRequested: EventRow(
        writer=Writer.CONTROL,
        moves=_WORKING,
        fold=runs.pause_requested,
        said=("by",),
    ),
    ev.CancelRequested: EventRow(
        writer=Writer.CONTROL,
        moves=_WORKING,
        fold=runs.cancel_requested,
        said=("by", "detail", "reason"),
    ),
    ev.SteeringGiven: EventRow(
        writer=Writer.CONTROL,
        moves=_stays(*_NOT_FINAL),
        fold=calls.steering_given,
        said=("text", "by"),
    ),
    ev.RunWaiting: EventRow(
        writer=Writer.HOLDER,
        moves=_to(WAITING, RUNNING),
        fold=runs.run_waiting,
        ends=Ends.RUN,
    ),
    ev.RunQueued: EventRow(
        writer=Writer.EITHER,
        moves=_to(QUEUED, RUNNING, WAITING, RunStatus.INTERRUPTED),
        fold=runs.run_queued,
        ends=Ends.RUN,
        said=("why",),
    ),
    ev.RunPaused: EventRow(
        writer=Writer.EITHER,
        moves=_to(RunStatus.PAUSED, QUEUED, RUNNING, WAITING),
        fold=runs.run_paused,
        ends=Ends.RUN,
        said=("reason", "detail"),
        notifies=True,
    ),
    ev.RunInterrupted: EventRow(
        writer=Writer.EITHER,
        moves=_to(RunStatus.INTERRUPTED, QUEUED, RUNNING),
        fold=runs.run_interrupted,
        ends=Ends.RUN,
        said=("reason", "detail"),
        notifies=True,
    ),
    ev.RunFailed: EventRow(
        writer=Writer.EITHER,
        moves=_to(RunStatus.FAILED, QUEUED, RUNNING, WAITING),
        fold=runs.run_failed,
        ends=Ends.RUN,
        said=("reason", "detail"),
        notifies=True,
    ),
    ev.RunResumed: EventRow(
        writer=Writer.CONTROL,
        moves=_to(QUEUED, QUEUED, *_STOPPED),
        fold=runs.run_resumed,
        said=("by",),
    ),
    ev.RunDismissed: EventRow(
        writer=Writer.CONTROL,
        moves=_stays(*_STOPPED),
        fold=runs.run_dismissed,
        said=("by",),
    ),
    ev.RunCompleted: EventRow(
        writer=Writer.HOLDER,
        moves=_to(RunStatus.COMPLETED, RUNNING),
        fold=runs.run_completed,
        ends=Ends.RUN,
        notifies=True,
    ),
    ev.RunCancelled: EventRow(
        writer=Writer.EITHER,
        moves=_to(RunStatus.CANCELLED, *_NOT_FINAL),
        fold=runs.run_cancelled,
        ends=Ends.RUN,
        said=("reason", "by", "detail"),
        notifies=True,
    ),
}
CHECKPOINTS = tuple(kind for kind, row in CATALOGUE.items() if row.is_checkpoint)
"""The events at which a fork can begin."""
