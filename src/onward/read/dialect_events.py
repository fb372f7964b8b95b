"""A run's log in the dialect's own event names, for observers that were written for other implementations.

Nothing is stored under these names. They come from the log, so reading it again gives the same stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from onward.machine.plan.route import MET
from onward.model import events as ev
from onward.model.gate import GateDecided, GateOpened
from onward.model.run import Frozen
from onward.model.values import rfc3339
from onward.read.log import Projection, Step
from onward.store.codec import unseal
from onward.store.port.log import StoredEvent

if TYPE_CHECKING:
    from onward.replies.steps import EventShown

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
    # Events for which the dialect has no name.
    "PipelinePaused": ("reason",),
    "PipelineInterrupted": ("reason",),
    "PipelineResumed": ("by",),
    "PipelineForked": ("parent", "seq"),
    "PipelineCancelled": ("reason",),
    "FidelityDegraded": ("name", "wanted", "given"),
}


class DialectEvent(Frozen, frozen=True):
    """One event under the dialect's name. A stage is a step; `index` counts steps from 0 as they start."""

    name: str
    at_us: int
    fields: dict[str, Any]


def in_dialect(translator: Translator, record: StoredEvent) -> Iterator[EventShown]:
    """A stored event as it is shown under the dialect's names; `translator` has seen all before it."""
    for event in translator.translate(unseal(record), record.at_us):
        yield {"seq": record.seq, "kind": event.name, "at": rfc3339(record.at_us), **event.fields}


class Translator:
    """Translates the log of one run, event by event, from its first."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._log = Projection()
        self._began_us = 0
        self._at_us = 0
        self._artifacts = 0

    def translate(self, event: ev.Event, at_us: int) -> Iterator[DialectEvent]:
        """The dialect's events for this one: none, one or several."""
        self._at_us, begun = at_us, self._log.begun
        step = self._log.apply(event, at_us=at_us)
        if step is None:
            yield from self._of_run(event)
            return
        if self._log.begun > begun:
            yield self._event("StageStarted", step.node, step.index)
        yield from self._of_step(event, step)
        if step.outcome is not None:
            self._log.forget(step.step)

    def _event(self, name: str, *values: Any) -> DialectEvent:
        return DialectEvent(name, self._at_us, dict(zip(NAMES[name], values, strict=True)))

    def _since(self, began_us: int) -> float:
        return (self._at_us - began_us) / 1_000_000

    def _of_run(self, event: ev.Event) -> Iterator[DialectEvent]:
        match event:
            case ev.RunCreated():
                self._began_us = self._at_us
                yield self._event("PipelineStarted", event.pipeline, self._run_id)
                yield self._event("CheckpointSaved", event.start_node)
            case ev.RunForked():
                yield self._event("PipelineForked", event.parent, event.parent_seq)
            case ev.RunResumed():
                yield self._event("PipelineResumed", event.by)
            case ev.RunPaused():
                yield self._event("PipelinePaused", event.reason)
            case ev.RunInterrupted():
                yield self._event("PipelineInterrupted", event.detail or event.reason)
            case ev.RunFailed():
                yield self._event("PipelineFailed", event.detail or event.reason, self._since(self._began_us))
            case ev.RunCancelled():
                yield self._event("PipelineCancelled", event.reason)
            case ev.RunCompleted():
                yield self._event("PipelineCompleted", self._since(self._began_us), self._artifacts)
            case ev.BranchFinished():
                branch, has_won = self._log.branches[event.branch], event.status in MET
                took_s = self._since(branch.started_at_us)
                yield self._event("ParallelBranchCompleted", event.branch, branch.index, took_s, has_won)

    def _of_step(self, event: ev.Event, step: Step) -> Iterator[DialectEvent]:
        took_s = self._since(step.started_at_us)
        match event:
            case ev.StepStarted(degraded_from=wanted) if wanted:
                yield self._event("FidelityDegraded", step.node, wanted, event.fidelity)
            case ev.AttemptFailed(retry_at_us=retry_at_us):
                again = retry_at_us is not None
                yield self._event("StageFailed", step.node, step.index, event.reason, again)
                if retry_at_us is not None:
                    delay_s = (retry_at_us - self._at_us) / 1_000_000
                    yield self._event("StageRetrying", step.node, step.index, event.attempt + 1, delay_s)
            case ev.StepFinished():
                yield from self._finished(event, step, took_s)
            case ev.ParallelStarted():
                yield self._event("ParallelStarted", len(event.branches))
                for index, plan in enumerate(event.branches):
                    yield self._event("ParallelBranchStarted", plan.path, index)
            case GateOpened():
                yield self._event("InterviewStarted", step.text, step.node)
            case GateDecided():
                if event.expired:
                    yield self._event("InterviewTimeout", step.text, step.node, took_s)
                yield self._event("InterviewCompleted", step.text, event.choice.label or event.text, took_s)

    def _finished(self, event: ev.StepFinished, step: Step, took_s: float) -> Iterator[DialectEvent]:
        self._artifacts += len(event.artifacts)
        if step.branches:
            ended = [one.status in MET for one in self._log.branches_of(step.step) if one.status]
            yield self._event("ParallelCompleted", took_s, sum(ended), len(ended) - sum(ended))
        if event.outcome.status is ev.StepStatus.FAIL:
            yield self._event("StageFailed", step.node, step.index, event.outcome.failure_reason, False)
        else:
            yield self._event("StageCompleted", step.node, step.index, took_s)
        yield self._event("CheckpointSaved", step.node)
