"""How a planner node ends: passed in one event, or a stop that says why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onward.machine.decide.closing import requested_stop
from onward.machine.plan.action import Append, Stop
from onward.model.events.event import Event
from onward.model.events.runs import RunFailed
from onward.model.events.steps import Outcome, StepFinished, Transition
from onward.model.ids import place, step_id
from onward.model.run import Run
from onward.pipeline.graph import Node


def stop_with(run: Run, event: Event) -> Stop:
    """Stop the run with this event, unless a person asked for another stop."""
    return Stop(requested_stop(run) or (event,))


def failed(run: Run, detail: str) -> Stop:
    """Nothing leads on from here. It is the end of a branch, or of the run."""
    return stop_with(run, RunFailed(reason="step_failed", detail=detail))


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
