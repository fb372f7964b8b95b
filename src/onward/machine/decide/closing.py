"""Stopping a run because a person asked: paused, or cancelled with nothing left open."""

from __future__ import annotations

from onward.model.events.event import Event
from onward.model.events.gates import GateWithdrawn
from onward.model.events.runs import RunCancelled, RunPaused
from onward.model.events.steps import AttemptInterrupted
from onward.model.run import AttemptState, Run


def requested_stop(run: Run) -> tuple[Event, ...]:
    """What a pending request makes of any stop: a cancel first, then a pause, else nothing."""
    if run.pending.cancel_by is not None:
        asked = run.pending
        return cancelling(
            run, by=run.pending.cancel_by, reason=asked.cancel_reason, detail=asked.cancel_detail
        )
    if run.pending.pause_after is not None:
        return (pausing(by=run.pending.pause_by),)
    return ()


def pausing(*, by: str | None) -> RunPaused:
    """A pause that a person asked for."""
    return RunPaused(reason="operator", detail=f"asked by {by}")


def cancelling(run: Run, *, by: str, reason: str = "user", detail: str = "") -> tuple[Event, ...]:
    """Cancel a run: withdraw its gates, close its attempts, and say so, in one append."""
    return (*closing(run, why="cancelled"), RunCancelled(reason=reason, by=by, detail=detail))


def closing(run: Run, *, why: str) -> tuple[Event, ...]:
    """Withdraw every open gate and close every open attempt."""
    gates = tuple(GateWithdrawn(gate=name) for name, gate in run.gates.items() if gate.decided is None)
    attempts = tuple(
        AttemptInterrupted(step=opened.step, attempt=opened.attempt, why=why)
        for opened in run.open_steps.values()
        if opened.state is AttemptState.OPEN
    )
    return (*gates, *attempts)
