"""Folding instructions: given by anyone, taken by the next agent step, returned if that step is dropped."""

from __future__ import annotations

from onward.machine.fold.change import Changes, IllegalEvent
from onward.model.call import CallStarted
from onward.model.events.runs import SteeringGiven
from onward.model.events.steps import StepStarted
from onward.model.run import Run


def given(run: Run, event: SteeringGiven, at_us: int) -> Changes:
    return {"steering": (*run.steering, event.text)}


def taken(run: Run, event: StepStarted | CallStarted) -> tuple[str, ...]:
    """What an attempt, or a request of its agent, takes of the instructions that are waiting."""
    if event.steering > len(run.steering):
        why = f"step {event.step} takes {event.steering} instructions, and {len(run.steering)} are waiting"
        raise IllegalEvent(run.status, event, why)
    return run.steering[: event.steering]


def given_back(run: Run) -> tuple[str, ...]:
    """What is waiting when every open step is dropped: also what they had taken."""
    return (*(text for opened in run.open_steps.values() for text in opened.steering), *run.steering)
