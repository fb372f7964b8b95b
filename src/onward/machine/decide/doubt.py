"""Steps that may or may not have happened: only a person's word ends the doubt."""

from __future__ import annotations

from onward.model.event import RunInterrupted
from onward.model.run import AttemptState, OpenStep, Run


def is_in_doubt(opened: OpenStep) -> bool:
    """Begun, not finished, and not to be repeated without a person's word."""
    return not opened.repeatable and opened.state in (AttemptState.OPEN, AttemptState.INTERRUPTED)


def interruption(run: Run, reason: str, detail: str) -> RunInterrupted:
    """Why a run stops whose owner is gone: doubt comes first, since only a person's word ends it."""
    doubtful = next((opened.step for opened in run.open_steps.values() if is_in_doubt(opened)), None)
    if doubtful is None:
        return RunInterrupted(reason=reason, detail=detail)
    why = f"step {doubtful} was cut off and must not be repeated blindly"
    return RunInterrupted(reason="in_doubt", detail=f"{detail}; {why}")
