"""What a changed limit means for a run: attempts that a limit held try again."""

from __future__ import annotations

from collections.abc import Sequence

from onward.machine.fold.calls import LIMIT
from onward.model.call import HoldsLifted, LimitHit
from onward.model.events.event import Event
from onward.model.run import AttemptState, Run, RunStatus


def is_held_by_limit(run: Run) -> bool:
    """Whether a limit holds an attempt of the run."""
    return any(
        opened.state is AttemptState.HELD and opened.held == LIMIT for opened in run.open_steps.values()
    )


def limits_hit(run: Run) -> tuple[LimitHit, ...]:
    """The limits that hold attempts of the run."""
    return tuple(
        opened.limit
        for opened in run.open_steps.values()
        if opened.state is AttemptState.HELD and opened.held == LIMIT and opened.limit is not None
    )


def decide_lift(run: Run, *, why: str, by: str) -> Sequence[Event]:
    """Lift the holds of a run that is running; one that has stopped is resumed instead."""
    if run.status is not RunStatus.RUNNING or not is_held_by_limit(run):
        return ()
    return (HoldsLifted(why=why, by=by),)
