"""What happened before a step, as far as the end of the log shows.

The past of a branch includes that of the branches around it, but not what its siblings do at the same time.
Times are left out, so that the same log always gives the same past.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from onward.model.events import (
    AttemptFailed,
    AttemptInterrupted,
    BranchFinished,
    Event,
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
    WorkdirChanged,
)
from onward.model.gate import GateDecided
from onward.model.ids import branch_of, step_of_gate
from onward.model.run import Frozen, Run
from onward.read.log.kinds import step_of


class Stage(Frozen, frozen=True, kw_only=True):
    """A finished step: its outcome, its words, and which context values it changed."""

    step: str
    node: str
    status: str
    attempt: int = 1
    notes: str = ""
    reason: str = ""
    log: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


class Past(Frozen, frozen=True, kw_only=True):
    """Stages and notable events before a step, oldest first. `is_whole`: none are missing."""

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


def past_of(goal: str, run: Run, branch: str, events: Iterable[Event], *, is_whole: bool) -> Past:
    """The past of a branch of a run; `events` are the last ones of its log."""
    around = _with_those_around(branch)
    stages: list[Stage] = []
    happened: list[str] = []
    for event in events:
        if _branch_with(event, run) not in around:
            continue
        if isinstance(event, StepFinished):
            if event.node != run.start_node:
                stages.append(_stage(event))
        elif sentence := _sentence(event):
            happened.append(sentence)
    return Past(
        run_id=run.id,
        goal=goal,
        values=run.branches[branch].context,
        steps_finished=run.steps_finished,
        stages=tuple(stages),
        happened=tuple(happened),
        is_whole=is_whole,
    )


def _with_those_around(branch: str) -> frozenset[str | None]:
    """A branch and those around it; None stands for the whole run."""
    found: set[str | None] = {None, branch}
    while branch:
        branch = branch_of(branch)
        found.add(branch)
    return frozenset(found)


def _branch_with(event: Event, run: Run) -> str | None:
    """The branch in which an event happened; None if it happened to the whole run."""
    if isinstance(event, BranchFinished):
        # While a fan-out is open, the end of one branch is not in the past of the others.
        is_open = any(event.branch in parallel.branches for parallel in run.parallels.values())
        return event.branch if is_open else branch_of(event.branch)
    step = step_of(event)
    return None if step is None else branch_of(step_of_gate(step))


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


def _sentence(event: Event) -> str:
    """A sentence about an event that is no stage; empty if it is not notable."""
    match event:
        case AttemptFailed():
            return f"attempt {event.attempt} of {event.step} failed: {event.reason}"
        case AttemptInterrupted():
            return f"attempt {event.attempt} of {event.step} was stopped: {event.why}"
        case StepStarted(degraded_from=mode) if mode:
            return f"{event.step} started with {event.fidelity} instead of {mode}: its session was gone"
        case ParallelStarted():
            return f"{event.step} opened {len(event.branches)} branches"
        case BranchFinished():
            return f"branch {event.branch} ended: {event.status}" + _because(event.reason)
        case GateDecided(expired=True):
            return f"{event.gate} got no answer in time" + _because(event.choice.label)
        case GateDecided():
            return f"{event.by} answered {event.gate}{_because(event.choice.label)}{_because(event.text)}"
        case StepRouted():
            return f"{event.step} continued to {event.next.to} after the pipeline or the context changed"
        case GoalRedirected():
            return f"went back to {event.next.to}: goal gate {event.gate} was unmet"
        case PipelineChanged():
            return f"{event.by} changed the pipeline"
        case WorkdirChanged():
            return f"{event.by} moved the run to the directory {event.workdir}"
        case RunClaimed(lost=True):
            return "another process took over the run: its holder was lost"
        case RunForked():
            return f"the run was forked from run {event.parent} at event {event.parent_seq}"
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
