"""The settings on a managing node, and the reasons that a manager gives."""

from __future__ import annotations

import msgspec

from onward.engine.log.reader import Folded
from onward.engine.managed.child_view import named
from onward.handlers.port import StepContext
from onward.model.run import Run, RunStatus
from onward.pipeline.condition import Condition, parse_condition
from onward.pipeline.graph import Node
from onward.pipeline.rules.attributes import as_actions

MANAGER = "manager"
# Why a manager cancelled its child, as the child's log keeps it: the next attempt reads it there.
ORPHANED = f"{MANAGER} (no step manages it any more)"
SATISFIED = f"{MANAGER} (stop condition)"
EXHAUSTED = f"{MANAGER} (max_cycles)"
TIMED_OUT = f"{MANAGER} (timeout)"
POLL_S, CYCLES_MAX = 45.0, 1000
STEER = "steer"


def is_steering(node: Node) -> bool:
    """Whether a managing node asks a model for instructions."""
    return STEER in as_actions(node.text("manager.actions", "observe,wait")) and bool(node.prompt)


class ManagerSettings(msgspec.Struct, frozen=True):
    """What is written on a managing node."""

    poll_s: float
    cycles_max: int
    cooldown_s: float
    stop: Condition
    executes_child: bool
    is_steering: bool
    timeout_s: float | None

    @classmethod
    def of(cls, node: Node) -> ManagerSettings:
        poll_s = node.duration_s("manager.poll_interval") or POLL_S
        cooldown_s = node.duration_s("manager.steer_cooldown")
        return cls(
            poll_s=poll_s,
            cycles_max=node.count("manager.max_cycles") or CYCLES_MAX,
            cooldown_s=poll_s if cooldown_s is None else cooldown_s,
            stop=parse_condition(node.text("manager.stop_condition")),
            executes_child=node.boolean("stack.child_autostart", True),
            is_steering=is_steering(node),
            timeout_s=node.timeout_s,
        )


def stands_idle(child: Folded, *, is_at_work: bool) -> bool:
    """Whether a child stands still, but not because a person stopped it: its manager may execute it."""
    run, is_due = child.run, child.is_due
    match run.status:
        case RunStatus.QUEUED:
            return is_due
        case RunStatus.RUNNING:
            return not is_at_work
        case RunStatus.INTERRUPTED:
            return is_due and run.reason in ("crash", "restart", "rate_limit")
        case RunStatus.PAUSED:
            return run.reason == MANAGER
        case _:
            return run.status is RunStatus.FAILED


def why_cancelled(step: StepContext, child: Run, by: str) -> str:
    """Why a managing step fails when its child was cancelled."""
    anew = f"`onward resume {step.run_id} --from {step.node.id}` starts another"
    if by == EXHAUSTED:
        cycles = ManagerSettings.of(step.node).cycles_max
        return f"{named(child)} had not ended after {cycles} cycles (manager.max_cycles); {anew}"
    if by == TIMED_OUT:
        return f"timed out: {named(child)} had not ended in time, and was cancelled; {anew}"
    return f"{named(child)} was cancelled by {by or 'someone'}; {anew}"
