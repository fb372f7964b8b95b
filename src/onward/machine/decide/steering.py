"""Instructions for the agents of a run that is under way: given by anyone, taken by the next agent step.

A step that takes instructions keeps them until it has its outcome. An attempt that was cut off, and a retry,
get them again; a step that finished has used them up.
"""

from __future__ import annotations

from onward.errors import InvalidInput, Refused
from onward.machine.decide.claim import HolderView
from onward.model.events.event import Event
from onward.model.events.runs import SteeringGiven
from onward.model.ids import called
from onward.model.run import Run
from onward.model.values.value import plain_text

CHARACTERS_MAX = 10_000
PENDING_MAX = 20


def decide_steer(run: Run, holder_view: HolderView, *, text: str, by: str) -> tuple[Event, ...]:
    """Give an instruction, as long as there will be a step to take it."""
    text = plain_text(text, "an instruction").strip()
    if not text:
        raise InvalidInput("the instruction is empty; say what the run's agents should do.")
    if len(text) > CHARACTERS_MAX:
        raise InvalidInput(
            f"the instruction has {len(text)} characters; use at most {CHARACTERS_MAX}, "
            "or put the rest in a file that the agents can read."
        )
    if run.is_final:
        raise Refused(
            "invalid_state", f"run {run.id} is {run.status}; no agent step is left to take an instruction."
        )
    if len(run.steering) >= PENDING_MAX:
        raise Refused(
            "too_much_steering",
            f"run {run.id} has {PENDING_MAX} instructions that no agent step has taken yet; "
            f"see `onward show {called(run.id)}` for what it waits for.",
        )
    return (SteeringGiven(text=text, by=by),)
