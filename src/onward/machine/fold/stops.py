"""Folding requests, stops and resumes."""

from __future__ import annotations

from msgspec.structs import replace

from onward.machine.fold.branches import drop_branches
from onward.machine.fold.calls import after_resume, lifted
from onward.machine.fold.change import Changes, IllegalEvent
from onward.machine.fold.gates import without_step
from onward.machine.fold.steering import given_back
from onward.model.events.event import Event
from onward.model.events.runs import (
    CancelRequested,
    PauseRequested,
    RunCancelled,
    RunCompleted,
    RunDismissed,
    RunFailed,
    RunInterrupted,
    RunPaused,
    RunQueued,
    RunResumed,
    RunWaiting,
)
from onward.model.run import DEAD_END, NOTHING_PENDING, AttemptState, OpenStep, Run, RunStatus
from onward.model.values.frozenmap import NOTHING

NOT_STOPPED: Changes = {"reason": "", "detail": "", "stopped_step": ""}


def pause_requested(run: Run, event: PauseRequested, at_us: int) -> Changes:
    return {"pending": replace(run.pending, pause_after=event.after, pause_by=event.by)}


def cancel_requested(run: Run, event: CancelRequested, at_us: int) -> Changes:
    asked = {"cancel_by": event.by, "cancel_detail": event.detail, "cancel_reason": event.reason}
    return {"pending": replace(run.pending, **asked)}


def _released(wake_at_us: int | None) -> Changes:
    """The release of the lease and the next wake time are part of the stop itself."""
    return {"worker": None, "wake_at_us": wake_at_us}


def waiting(run: Run, event: RunWaiting, at_us: int) -> Changes:
    return _released(event.wake_at_us)


def queued(run: Run, event: RunQueued, at_us: int) -> Changes:
    return {**_released(event.wake_at_us), "reason": "", "detail": event.why}


def paused(run: Run, event: RunPaused, at_us: int) -> Changes:
    pending = replace(run.pending, pause_after=None, pause_by="")
    return {**_released(None), "reason": event.reason, "detail": event.detail, "pending": pending}


def interrupted(run: Run, event: RunInterrupted, at_us: int) -> Changes:
    return {**_released(event.wake_at_us), "reason": event.reason, "detail": event.detail}


def failed(run: Run, event: RunFailed, at_us: int) -> Changes:
    return {
        **_released(None),
        "reason": event.reason,
        "detail": event.detail,
        "stopped_step": event.step,
        "ended_at_us": at_us,
    }


def resumed(run: Run, event: RunResumed, at_us: int) -> Changes:
    """A person's resume opens a new allowance of retries and crashes; visits and reroutes are kept.

    A pause was only a break: nothing had gone wrong, so the retries that were spent before it stay spent.
    """
    keeps = run.status is RunStatus.PAUSED
    steps = {
        step: _resumed_step(opened, event, run.head, keeps_spent=keeps)
        for step, opened in run.open_steps.items()
    }
    changes: Changes = {
        "wake_at_us": at_us,
        "ended_at_us": None,
        "losses": 0,
        "pending": NOTHING_PENDING,
        "open_steps": steps,
        "retries": run.retries if keeps else NOTHING,
        "restore_workspace": event.restore_workspace,
        "is_dismissed": False,
        **NOT_STOPPED,
    }
    if event.step and event.action:
        changes["directives"] = {**run.directives, event.step: event.action}
        changes |= without_step(run, event.step) if event.action == "retry" else {}
    if event.from_node is not None:
        changes |= drop_branches(run, [branch_id for branch_id in run.branches if branch_id], onto="")
        changes.update(open_steps={}, retries=NOTHING, gates={}, directives={}, parallels={})
        changes["branches"] = {"": replace(run.root, next_node=event.from_node, edge=None)}
        changes["steering"] = given_back(run)
    return changes


def dismissed(run: Run, event: RunDismissed, at_us: int) -> Changes:
    """Nothing continues it but a person who names it: it is not due any more, either."""
    return {"is_dismissed": True, "wake_at_us": None}


def _resumed_step(opened: OpenStep, event: RunResumed, head: int, *, keeps_spent: bool) -> OpenStep:
    asked = event.step == opened.step and event.action in ("retry", "continue")
    if asked:
        opened = after_resume(opened, event.action or "", event.repeats, head)
    opened = lifted(opened)
    if opened.state is AttemptState.FAILED or asked:
        return replace(opened, state=AttemptState.RETRYING, retries_spent=0, retry_at_us=None)
    return opened if keeps_spent else replace(opened, retries_spent=0)


def completed(run: Run, event: RunCompleted, at_us: int) -> Changes:
    changes = {**_released(None), "ended_at_us": at_us, "pending": NOTHING_PENDING, **_closed(run, event)}
    if event.restarted_as:
        changes.update(reason="restarted_as", detail=event.restarted_as)
        changes["branches"] = {"": replace(run.root, next_node=None)}
    if event.ended_at:
        changes.update(reason=DEAD_END, detail=event.ended_at)
    return changes


def cancelled(run: Run, event: RunCancelled, at_us: int) -> Changes:
    return {
        **_released(None),
        "reason": event.reason,
        "detail": event.detail,
        "ended_at_us": at_us,
        "pending": NOTHING_PENDING,
        **_closed(run, event),
    }


def _closed(run: Run, event: Event) -> Changes:
    """A final status leaves nothing open: the same append must have withdrawn and closed it."""
    if run.gates and any(gate.decided is None for gate in run.gates.values()):
        raise IllegalEvent(run.status, event, f"{event.kind} leaves gates open: {', '.join(run.gates)}")
    if run.open_steps and any(step.state is AttemptState.OPEN for step in run.open_steps.values()):
        raise IllegalEvent(
            run.status, event, f"{event.kind} leaves attempts open: {', '.join(run.open_steps)}"
        )
    return {"open_steps": {}, "gates": {}, "directives": {}, "parallels": {}, "branches": {"": run.root}}
