"""Plan until something must be done: all that can be decided goes into one append."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from onward.machine.decide.lost_calls import with_lost_calls
from onward.machine.definition import Definition
from onward.machine.fold.apply import apply
from onward.machine.lifecycle import RUNNING
from onward.machine.plan.action import Action, Append, Execute, Merge, Stop, Wait
from onward.machine.plan.planner import plan
from onward.model.events.event import Event
from onward.model.events.steps import StepStarted
from onward.model.run import Frozen, Run

NO_MORE = Stop(())


class Advance(Frozen, frozen=True):
    """What to write in one append, the run after it, and what to do then."""

    events: list[Event]
    run: Run
    action: Action


def advance(
    definition: Definition, run: Run, first: Sequence[Event], *, now_us: int, stop_reason: str | None
) -> Advance:
    """Record `first`, then everything that follows from it without an effect."""
    events: list[Event] = []
    starts: list[StepStarted] = []
    # Nearly no run has open calls or gates, and to ask `with_lost_calls` takes longer than to ask here.
    for event in with_lost_calls(run, first) if run.open_calls or run.gates else first:
        run = apply(run, event, run_id=run.id, at_us=now_us, token=run.token)
        events.append(event)
    while run.status is RUNNING:
        action = plan(definition, run, now_us=now_us, stop_reason=stop_reason)
        for event in with_lost_calls(run, action.events) if run.open_calls or run.gates else action.events:
            run = apply(run, event, run_id=run.id, at_us=now_us, token=run.token)
            events.append(event)
        if type(action) is Append:
            continue
        if run.parallels and type(action) is Execute:
            starts.append(action.started)  # other branches may have something to begin as well
        elif type(action) is Wait or type(action) is Merge:
            return Advance(events, run, replace(action, starts=tuple(starts)))
        else:
            return Advance(events, run, action)
    return Advance(events, run, NO_MORE)
