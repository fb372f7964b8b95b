"""A child run as its manager sees it: a few plain values, for conditions, for models and for the record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onward.engine.log.reader import Folded
from onward.model.events import StepStatus
from onward.model.ids import called
from onward.model.run import AttemptState, Run, RunStatus
from onward.pipeline.condition import Condition, resolver

PREFIX = "stack.child."
_OUTCOMES = {
    RunStatus.COMPLETED: StepStatus.SUCCESS.value,
    RunStatus.FAILED: StepStatus.FAIL.value,
    RunStatus.CANCELLED: StepStatus.FAIL.value,
}


def observed(folded: Folded, *, is_at_work: bool) -> dict[str, Any]:
    """The keys `stack.child.*`. A run whose holder died is interrupted, as everywhere else."""
    run = folded.run
    is_lost = run.status is RunStatus.RUNNING and not is_at_work
    return {
        f"{PREFIX}run": run.id,
        f"{PREFIX}status": RunStatus.INTERRUPTED.value if is_lost else run.status.value,
        f"{PREFIX}outcome": _OUTCOMES.get(run.status, ""),
        f"{PREFIX}node": _node(run),
        f"{PREFIX}steps": run.steps_finished,
        f"{PREFIX}reason": run.reason,
        f"{PREFIX}detail": run.detail,
    }


def _node(run: Run) -> str:
    """Where the run is: the step under way, or else the node it stands before, or the last one."""
    at_work = [step.node for step in run.open_steps.values() if step.state is AttemptState.OPEN]
    return (at_work[0] if at_work else run.next_node) or run.root.previous


def holds(condition: Condition, values: Mapping[str, Any], seen: Mapping[str, Any], child: Run) -> bool:
    """Whether a stop condition is true: of the manager's context, of what it saw, and of the child's own
    context, whose keys it names with the prefix `stack.child.context.`."""
    if not condition.clauses:
        return False
    own = {f"{PREFIX}context.{key}": value for key, value in child.context.items()}
    return condition.holds(resolver(str(values.get("outcome", "")), "", {**values, **own, **seen}))


def named(run: Run) -> str:
    """How sentences call a child."""
    return f"the child run {called(run.id)}"
