"""Steps that may or may not have run: only a person can decide about them."""

from __future__ import annotations

from onward.machine.fold.calls import told_of
from onward.model.events.runs import RunInterrupted
from onward.model.run import AttemptState, OpenStep, Run


def is_in_doubt(opened: OpenStep) -> bool:
    """Whether it started, did not finish, and is not to be repeated without a person's decision."""
    if opened.calls is not None and calls_in_doubt(opened):
        return True
    return not opened.repeatable and opened.state in (AttemptState.OPEN, AttemptState.INTERRUPTED)


def calls_in_doubt(opened: OpenStep) -> dict[str, int]:
    """The calls that were begun, must not be repeated, and have no answer, each with its try.

    Those that are open count: they are lost when the run's holder is.
    """
    calls = opened.calls
    if calls is None:
        return {}
    begun = {name: call.number for name, call in calls.open.items() if not call.repeatable}
    return {**calls.lost, **begun}


def told_in_doubt(opened: OpenStep) -> list[str]:
    """The calls in doubt, each with what it was called with, if that is known."""
    calls = opened.calls
    if calls is None:
        return []
    told = {**calls.told, **{name: told_of(call) for name, call in calls.open.items() if call.about}}
    return [f"{name}: {told[name]}" if name in told else name for name in calls_in_doubt(opened)]


def doubtful_step(run: Run) -> str | None:
    """The first open step that is in doubt if no process holds the run; a run that is final has none."""
    for opened in run.open_steps.values():
        # Asked for every step, and nearly all of them may be repeated and have no calls.
        if (not opened.repeatable or opened.calls is not None) and is_in_doubt(opened) and not run.is_final:
            return opened.step
    return None


def interruption(doubtful: str | None, reason: str, detail: str) -> RunInterrupted:
    """Why a run stops whose holder is gone: a step in doubt comes first, since a person must decide."""
    if doubtful is None:
        return RunInterrupted(reason=reason, detail=detail)
    return RunInterrupted(reason="in_doubt", detail=with_doubt(detail, doubtful))


def with_doubt(detail: str, doubtful: str) -> str:
    """Why a run has stopped, and that a person must decide about this step of it."""
    return f"{detail}; step {doubtful} was cut off and must not be repeated blindly"
