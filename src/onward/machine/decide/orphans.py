"""Runs that a step managed, and that no step manages any more."""

from __future__ import annotations

from collections.abc import Sequence

from onward.model.events.event import Event
from onward.model.events.steps import StepFinished, StepStatus
from onward.model.run import Run


def orphaned(before: Run, after: Run, events: Sequence[Event]) -> list[str]:
    """The children of managing steps that `events` closed without an outcome of their own.

    As when the run was cancelled, the step skipped, its branch lost the race, or a resume went elsewhere.
    """
    gone = {
        name: opened.child
        for name, opened in before.open_steps.items()
        if opened.child is not None and name not in after.open_steps
    }
    for event in events if gone else ():
        if isinstance(event, StepFinished) and event.outcome.status is not StepStatus.SKIPPED:
            gone.pop(event.step, None)
    return [*gone.values()]
