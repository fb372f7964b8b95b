"""What one line of a run has behind it, as far as the end of the log tells.

A branch's past is its own and that of the lines it came off; what its siblings do at the same time is none
of it. Times are left out, so that the same log always gives the same past.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from onward.model.event import (
    AttemptFailed,
    AttemptInterrupted,
    BranchFinished,
    Event,
    GateDecided,
    GoalRedirected,
    ParallelStarted,
    PipelineChanged,
    RunClaimed,
    RunFailed,
    RunForked,
    RunInterrupted,
    RunPaused,
    RunResumed,
    StepFinished,
    StepRouted,
    StepStarted,
)
from onward.model.ids import branch_of
from onward.model.run import Frozen, Run
from onward.read.log.kinds import step_of


class Stage(Frozen, frozen=True, kw_only=True):
    """A finished step: what it came to, what it said, and which context values it changed."""

    step: str
    node: str
    status: str
    attempt: int = 1
    notes: str = ""
    reason: str = ""
    log: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


class Past(Frozen, frozen=True, kw_only=True):
    """Behind a step: stages and notable events, oldest first. `is_whole`: they go back to the beginning."""

    run_id: str
    goal: str
    values: Mapping[str, Any]
    steps_finished: int = 0
    stages: tuple[Stage, ...] = ()
    happened: tuple[str, ...] = ()
    is_whole: bool = True

    @property
    def tally(self) -> Mapping[str, int]:
        """How often each outcome is among the stages."""
        return Counter(stage.status for stage in self.stages)


def past_of(goal: str, run: Run, path: str, events: Iterable[Event], *, is_whole: bool) -> Past:
    """The past of the line `path` of a run; `events` are the last ones of its log."""
    lines = _lines(path)
    stages: list[Stage] = []
    happened: list[str] = []
    for event in events:
        if _line_of(run, event) not in lines:
            continue
        if isinstance(event, StepFinished):
            if event.node != run.start_node:
                stages.append(_stage(event))
        elif told := _told(event):
            happened.append(told)
    return Past(
        run_id=run.id,
        goal=goal,
        values=run.branches[path].context,
        steps_finished=run.steps_finished,
        stages=tuple(stages),
        happened=tuple(happened),
        is_whole=is_whole,
    )


def _lines(path: str) -> frozenset[str | None]:
    """A line and those it came off; what happens to the whole run happens to each."""
    lines: set[str | None] = {None, path}
    while path:
        path = branch_of(path)
        lines.add(path)
    return frozenset(lines)


def _line_of(run: Run, event: Event) -> str | None:
    """The line in which an event happened; None if it happened to the whole run."""
    if isinstance(event, BranchFinished):
        # While a fan-out is open, what one branch comes to is nothing that another can look back on.
        is_open = any(event.branch in parallel.branches for parallel in run.parallels.values())
        return event.branch if is_open else branch_of(event.branch)
    step = step_of(event)
    return None if step is None else branch_of(step)


def _stage(event: StepFinished) -> Stage:
    outcome = event.outcome
    return Stage(
        step=event.step,
        node=event.node,
        status=outcome.status.value,
        attempt=event.attempt,
        notes=outcome.notes,
        reason=outcome.failure_reason,
        log=event.log,
        changed=(*event.context, *event.grown),
    )


def _told(event: Event) -> str:
    """What is worth telling beside the stages."""
    match event:
        case AttemptFailed():
            return f"attempt {event.attempt} of {event.step} failed: {event.reason}"
        case AttemptInterrupted():
            return f"attempt {event.attempt} of {event.step} was stopped: {event.why}"
        case StepStarted(degraded_from=mode) if mode:
            return f"{event.step} began with {event.fidelity} instead of {mode}: the session was gone"
        case ParallelStarted():
            return f"{event.step} opened {len(event.branches)} branches"
        case BranchFinished():
            return f"branch {event.branch} ended: {event.status}" + _because(event.reason)
        case GateDecided(expired=True):
            return f"nobody answered {event.gate} in time" + _because(event.choice.label)
        case GateDecided():
            return f"{event.by} answered {event.gate}{_because(event.choice.label)}{_because(event.text)}"
        case StepRouted():
            return f"{event.step} led on to {event.next.to} after the pipeline or the context had changed"
        case GoalRedirected():
            return f"went back to {event.next.to}: goal gate {event.gate} was unmet"
        case PipelineChanged():
            return f"{event.by} changed the pipeline"
        case RunClaimed(lost=True):
            return "another process took the run over: the one before was lost"
        case RunForked():
            return f"came off run {event.parent} at event {event.parent_seq}"
        case RunResumed():
            return f"{event.by} resumed the run" + (f" from {event.from_node}" if event.from_node else "")
        case RunPaused() | RunInterrupted() | RunFailed():
            return f"the run was {event.kind.removeprefix('Run').lower()} ({event.reason})" + _because(
                event.detail
            )
        case _:
            return ""


def _because(why: str) -> str:
    return f": {why}" if why else ""
