"""How a control node ends: passed in one event, or a stop that says why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onward.machine.plan.action import Record, Stop
from onward.model.event import Event, Outcome, RunFailed, RunPaused, StepFinished, Transition
from onward.model.ids import place, step_id
from onward.model.run import Run
from onward.pipeline.graph import Node


def honouring_a_pause(run: Run, event: Event) -> Stop:
    """Every stop honours a pending pause; a pending cancel never gets this far."""
    if run.pending.pause_after is not None:
        return Stop((RunPaused(reason="operator", detail=f"asked by {run.pending.pause_by}"),))
    return Stop((event,))


def failed(run: Run, detail: str) -> Stop:
    """Nothing leads on from here. It is the end of a branch, or of the run."""
    return honouring_a_pause(run, RunFailed(reason="step_failed", detail=detail))


def passed(
    run: Run,
    path: str,
    node: Node,
    outcome: Outcome,
    onward: Transition | None,
    context: Mapping[str, Any] | None = None,
) -> Record:
    """The node's next visit, begun and finished at once."""
    step = step_id(node.id, run.visits.get(place(node.id, path), 0) + 1, path)
    return Record(
        (
            StepFinished(
                step=step, node=node.id, attempt=1, outcome=outcome, context=dict(context or {}), next=onward
            ),
        )
    )
