"""A run's log in the dialect's own event names, for observers that were written for other implementations.

Nothing is stored under these names: they are told from the log, so a stream that is read again says the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from onward.machine.plan.route import MET
from onward.model.event import (
    AttemptFailed,
    BranchFinished,
    Event,
    GateDecided,
    GateOpened,
    ParallelStarted,
    RunCancelled,
    RunCompleted,
    RunCreated,
    RunFailed,
    RunForked,
    RunInterrupted,
    RunPaused,
    RunResumed,
    StepFinished,
    StepStarted,
    StepStatus,
)
from onward.model.run import Frozen
from onward.read.log.projection import Projection
from onward.read.log.step import Step

NAMES: Mapping[str, tuple[str, ...]] = {
    "PipelineStarted": ("name", "id"),
    "PipelineCompleted": ("duration_s", "artifact_count"),
    "PipelineFailed": ("error", "duration_s"),
    "StageStarted": ("name", "index"),
    "StageCompleted": ("name", "index", "duration_s"),
    "StageFailed": ("name", "index", "error", "will_retry"),
    "StageRetrying": ("name", "index", "attempt", "delay_s"),
    "ParallelStarted": ("branch_count",),
    "ParallelBranchStarted": ("branch", "index"),
    "ParallelBranchCompleted": ("branch", "index", "duration_s", "success"),
    "ParallelCompleted": ("duration_s", "success_count", "failure_count"),
    "InterviewStarted": ("question", "stage"),
    "InterviewCompleted": ("question", "answer", "duration_s"),
    "InterviewTimeout": ("question", "stage", "duration_s"),
    "CheckpointSaved": ("node_id",),
    # What the dialect has no name for.
    "PipelinePaused": ("reason",),
    "PipelineInterrupted": ("reason",),
    "PipelineResumed": ("by",),
    "PipelineForked": ("parent", "seq"),
    "PipelineCancelled": ("reason",),
    "FidelityDegraded": ("name", "wanted", "given"),
}


class Told(Frozen, frozen=True):
    """One event under the dialect's name. A stage is a node; its index counts from 0 as they begin."""

    name: str
    at_us: int
    fields: dict[str, Any]


class Teller:
    """Tells one run, event by event, from its first."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._log = Projection()
        self._began_us = 0
        self._at_us = 0
        self._artifacts = 0

    def tell(self, event: Event, at_us: int) -> Iterator[Told]:
        """What this event is called; several things may have happened in it, or nothing worth a name."""
        self._at_us, begun = at_us, self._log.begun
        step = self._log.apply(event, at_us=at_us)
        if step is not None and self._log.begun > begun:
            yield self._told("StageStarted", step.node, step.index)
        tell = _TELLERS.get(type(event))
        if tell is not None:
            yield from tell(self, event, step)
        if isinstance(event, StepFinished):
            self._log.forget(event.step)

    def _told(self, name: str, *values: Any) -> Told:
        return Told(name, self._at_us, dict(zip(NAMES[name], values, strict=True)))

    def _since(self, began_us: int) -> float:
        return (self._at_us - began_us) / 1_000_000

    # -- the run -------------------------------------------------------------------------------------

    def _created(self, event: RunCreated, _: None) -> Iterator[Told]:
        self._began_us = self._at_us
        yield self._told("PipelineStarted", event.pipeline, self._run_id)
        yield self._told("CheckpointSaved", event.start_node)

    def _completed(self, event: RunCompleted, _: None) -> Iterator[Told]:
        yield self._told("PipelineCompleted", self._since(self._began_us), self._artifacts)

    def _failed(self, event: RunFailed, _: None) -> Iterator[Told]:
        yield self._told("PipelineFailed", event.detail or event.reason, self._since(self._began_us))

    def _paused(self, event: RunPaused, _: None) -> Iterator[Told]:
        yield self._told("PipelinePaused", event.reason)

    def _interrupted(self, event: RunInterrupted, _: None) -> Iterator[Told]:
        yield self._told("PipelineInterrupted", event.detail or event.reason)

    def _resumed(self, event: RunResumed, _: None) -> Iterator[Told]:
        yield self._told("PipelineResumed", event.by)

    def _forked(self, event: RunForked, _: None) -> Iterator[Told]:
        yield self._told("PipelineForked", event.parent, event.parent_seq)

    def _cancelled(self, event: RunCancelled, _: None) -> Iterator[Told]:
        yield self._told("PipelineCancelled", event.reason)

    # -- stages --------------------------------------------------------------------------------------

    def _started(self, event: StepStarted, step: Step) -> Iterator[Told]:
        if event.degraded_from:
            yield self._told("FidelityDegraded", event.node, event.degraded_from, event.fidelity)

    def _attempt_failed(self, event: AttemptFailed, step: Step) -> Iterator[Told]:
        again = event.retry_at_us is not None
        yield self._told("StageFailed", step.node, step.index, event.reason, again)
        if event.retry_at_us is not None:
            delay_s = (event.retry_at_us - self._at_us) / 1_000_000
            yield self._told("StageRetrying", step.node, step.index, event.attempt + 1, delay_s)

    def _finished(self, event: StepFinished, step: Step) -> Iterator[Told]:
        self._artifacts += len(event.artifacts)
        took_s = self._since(step.started_at_us)
        if step.branches:
            ended = [branch for branch in self._log.branches.values() if branch.step == step.step]
            won = [branch.status in MET for branch in ended if branch.status]
            yield self._told("ParallelCompleted", took_s, sum(won), len(won) - sum(won))
        if event.outcome.status is StepStatus.FAIL:
            yield self._told("StageFailed", event.node, step.index, event.outcome.failure_reason, False)
        else:
            yield self._told("StageCompleted", event.node, step.index, took_s)
        yield self._told("CheckpointSaved", event.node)

    # -- branches and questions ----------------------------------------------------------------------

    def _fanned_out(self, event: ParallelStarted, step: Step) -> Iterator[Told]:
        yield self._told("ParallelStarted", len(event.branches))
        for index, plan in enumerate(event.branches):
            yield self._told("ParallelBranchStarted", plan.path, index)

    def _branch_finished(self, event: BranchFinished, _: None) -> Iterator[Told]:
        branch = self._log.branches[event.branch]
        took_s, succeeded = self._since(branch.started_at_us), event.status in MET
        yield self._told("ParallelBranchCompleted", event.branch, branch.index, took_s, succeeded)

    def _asked(self, event: GateOpened, step: Step) -> Iterator[Told]:
        yield self._told("InterviewStarted", event.text, event.node)

    def _answered(self, event: GateDecided, step: Step) -> Iterator[Told]:
        took_s = self._since(step.started_at_us)
        if event.expired:
            yield self._told("InterviewTimeout", step.text, step.node, took_s)
        yield self._told("InterviewCompleted", step.text, event.choice.label or event.text, took_s)


_TELLERS: Mapping[type[Event], Callable[[Teller, Any, Any], Iterator[Told]]] = {
    RunCreated: Teller._created,
    RunForked: Teller._forked,
    RunCompleted: Teller._completed,
    RunFailed: Teller._failed,
    RunPaused: Teller._paused,
    RunInterrupted: Teller._interrupted,
    RunResumed: Teller._resumed,
    RunCancelled: Teller._cancelled,
    StepStarted: Teller._started,
    AttemptFailed: Teller._attempt_failed,
    StepFinished: Teller._finished,
    ParallelStarted: Teller._fanned_out,
    BranchFinished: Teller._branch_finished,
    GateOpened: Teller._asked,
    GateDecided: Teller._answered,
}
