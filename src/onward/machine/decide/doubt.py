"""Steps that may or may not have run: only a person can decide about them."""

from __future__ import annotations

from onward.model.event import RunInterrupted
from onward.model.run import AttemptState, OpenStep, Run


def is_in_doubt(opened: OpenStep) -> bool:
    """Whether it started, did not finish, and is not to be repeated without a person's decision."""
    return not opened.repeatable and opened.state in (AttemptState.OPEN, AttemptState.INTERRUPTED)


def doubtful_step(run: Run) -> str | None:
    """The first open step that is in doubt if no process holds the run; a run that is final has none."""
    for opened in run.open_steps.values():
        if not opened.repeatable and is_in_doubt(opened) and not run.is_final:
            return opened.step
    return None


def interruption(doubtful: str | None, reason: str, detail: str) -> RunInterrupted:
    """Why a run stops whose holder is gone: a step in doubt comes first, since a person must decide."""
    if doubtful is None:
        return RunInterrupted(reason=reason, detail=detail)
    why = f"step {doubtful} was cut off and must not be repeated blindly"
    return RunInterrupted(reason="in_doubt", detail=f"{detail}; {why}")
