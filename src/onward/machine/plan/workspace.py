"""A run's workspace, as far as it is decided: what stops a run without it, and what merged branches mean."""

from __future__ import annotations

from typing import Any

from onward.machine.plan.stops import honouring_a_pause
from onward.model.event import AttemptFailed, Event, RunFailed, StepStatus
from onward.model.run import AttemptState, Run
from onward.model.workspace import Merged

CONFLICTS = "workspace.conflicts"


def unusable(run: Run, why: str, *, has_begun: bool) -> tuple[Event, ...]:
    """The run stops, because its work tree is not what it should be: on a wrong one nothing is executed.

    `has_begun` says whether attempts of this holder may be under way; else they never were.
    """
    if run.pending.cancel_by is not None:
        return ()  # the plan gives it up
    never = () if has_begun else [s for s in run.open_steps.values() if s.state is AttemptState.OPEN]
    attempts = [
        AttemptFailed(
            step=step.step,
            attempt=step.attempt,
            status=StepStatus.FAIL,
            reason="it was not begun, because its workspace cannot be used",
        )
        for step in never
        if step.token == run.token
    ]
    stop = honouring_a_pause(run, RunFailed(reason="pipeline_error", detail=f"workspace: {why}"))
    return (*attempts, *stop.events)


def told(run: Run, path: str, merged: Merged) -> dict[str, Any]:
    """What the context says about branches that did not fit; nothing if none ever did not."""
    if not merged.conflicts and CONFLICTS not in run.branches[path].context:
        return {}
    return {CONFLICTS: [{"branch": c.branch, "files": list(c.files)} for c in merged.conflicts]}
