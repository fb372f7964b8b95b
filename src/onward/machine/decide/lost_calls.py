"""Closing open calls and withdrawing their gates with whatever ends them, in the same append.

A call is open only while its run is running under the token that began it. Every event that ends an attempt,
stops or releases the run, or claims it, comes through here, whoever writes it: so no call is left to be
closed later. A gate stays open while an attempt is held for its answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from onward.machine.fold.calls import ended_gates, ends_calls, open_calls
from onward.model.call import CallFinished, CallLost
from onward.model.events.event import Event
from onward.model.events.gates import GateDecided, GateWithdrawn
from onward.model.events.runs import RunClaimed, RunForked
from onward.model.run import Run


def with_lost_calls(run: Run | None, events: Sequence[Event]) -> Sequence[Event]:
    """These events, which follow on `run`, each after the loss of the calls and gates that it ends."""
    if run is None or not (run.open_calls or run.gates):  # nearly always
        return events
    closed: set[tuple[str, str]] = set()
    answered: set[str] = set()
    written: list[Event] = []
    for event in events:
        match event:
            case CallFinished() | CallLost():
                closed.add((event.step, event.call))
            case GateDecided() | GateWithdrawn():
                answered.add(event.gate)
            case RunForked():  # the gates of the other run stay its own
                answered.update(run.gates)
        for gate in ended_gates(run, event):
            if gate not in answered:
                answered.add(gate)
                written.append(GateWithdrawn(gate=gate))
        of = ends_calls(event)
        for step, call, begun in open_calls(run, of) if of is not None else ():
            if (step, call) not in closed:
                closed.add((step, call))
                written.append(CallLost(step=step, call=call, number=begun.number, why=_why(event)))
        written.append(event)
    return written


def _why(event: Event) -> str:
    """What ended the call, in a few words."""
    if isinstance(event, RunClaimed):
        return "its holder died" if event.lost else "its run was taken over"
    said = getattr(event, "why", "") or getattr(event, "reason", "")
    return str(said) or "its attempt ended"
