"""Events and runs to fold, with only what a test is about said."""

from __future__ import annotations

from typing import Any

from onward.machine.lifecycle import apply
from onward.model.events import (
    AttemptFailed,
    Event,
    Outcome,
    RunClaimed,
    StepFinished,
    StepStarted,
    StepStatus,
    Transition,
)
from onward.model.gate import Choice, GateOpened
from onward.model.run import Run
from tests.machine.play import created

YES = Choice(key="Y", label="Yes", to="b")
SUCCESS = Outcome(status=StepStatus.SUCCESS)


def then(run: Run, *events: Event, at_us: int = 50) -> Run:
    for event in events:
        token = event.token if isinstance(event, RunClaimed) else run.token
        run = apply(run, event, run_id=run.id, at_us=at_us, token=token)
    return run


def held(context: dict[str, Any] | None = None) -> Run:
    return then(created(context), RunClaimed(token=1, worker="w1"))


def started(step: str = "a#1", *, attempt: int = 1, **fields: Any) -> StepStarted:
    return StepStarted(step=step, node=step.partition("#")[0], attempt=attempt, **fields)


def finished(step: str = "a#1", to: str | None = "b", **fields: Any) -> StepFinished:
    onward = None if to is None else Transition(to=to, reason="weight", edge=3)
    fields.setdefault("outcome", SUCCESS)
    return StepFinished(step=step, node=step.partition("#")[0], attempt=1, next=onward, **fields)


def retrying(*, at_us: int | None = 99) -> AttemptFailed:
    return AttemptFailed(step="a#1", attempt=1, status=StepStatus.RETRY, reason="busy", retry_at_us=at_us)


ASKED = GateOpened(gate="g#1", node="g", text="Go on?", choices=(YES,))
