"""What a plan can say: append events, execute something, wait, or stop; and how a planner node ends.

A planner node is passed in one event, or ends in a stop that says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onward.machine.decide.requests import requested_stop
from onward.machine.reasons import STEP_FAILED
from onward.model.events import Event, Outcome, RunFailed, StepFinished, StepStarted, Transition
from onward.model.ids import place, step_id
from onward.model.run import Frozen, Run
from onward.pipeline.graph import Node


class Append(Frozen, frozen=True):
    """Append these events and plan again."""

    events: tuple[Event, ...]


class Execute(Frozen, frozen=True):
    """Append the start, then execute the attempt."""

    started: StepStarted

    @property
    def events(self) -> tuple[Event, ...]:
        return (self.started,)


class Sleep(Frozen, frozen=True):
    """Nothing to do before this instant."""

    until_us: int
    step: str
    events: tuple[Event, ...] = ()


class Wait(Frozen, frozen=True):
    """Attempts are under way: begin `starts` beside them, end `halt`, and plan again when one is done.

    Plan again at `until_us` even if none is done by then.
    """

    starts: tuple[StepStarted, ...] = ()
    halt: tuple[str, ...] = ()
    until_us: int | None = None
    events: tuple[Event, ...] = ()


class Restart(Frozen, frozen=True):
    """Create the run that continues at `to`, then append that this one ended as it."""

    to: str
    run_id: str
    events: tuple[Event, ...] = ()


class Merge(Frozen, frozen=True):
    """Begin `starts`, merge the work of the branches of `step`, then append that they are joined."""

    step: str
    starts: tuple[StepStarted, ...] = ()
    events: tuple[Event, ...] = ()


class Stop(Frozen, frozen=True):
    """Append these events; the last of them releases the run."""

    events: tuple[Event, ...]


Action = Append | Execute | Sleep | Wait | Restart | Merge | Stop


def stop_with(run: Run, event: Event) -> Stop:
    """Stop the run with this event, unless a person asked for another stop."""
    return Stop(requested_stop(run) or (event,))


def failed(run: Run, detail: str) -> Stop:
    """Nothing leads on from here. It is the end of a branch, or of the run."""
    return stop_with(run, RunFailed(reason=STEP_FAILED, detail=detail))


def passed(
    run: Run,
    branch_id: str,
    node: Node,
    outcome: Outcome,
    onward: Transition | None,
    context: Mapping[str, Any] | None = None,
) -> Append:
    """The node's next visit, begun and finished at once."""
    step = next_step(run, node.id, branch_id)
    finished = StepFinished(
        step=step, node=node.id, attempt=1, outcome=outcome, context=dict(context or {}), next=onward
    )
    return Append((finished,))


def next_step(run: Run, node_id: str, branch_id: str) -> str:
    """The step that the next visit of a node is."""
    return step_id(node_id, run.visits.get(place(node_id, branch_id), 0) + 1, branch_id)
