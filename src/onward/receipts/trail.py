"""From a log to receipts: which event leaves one, and what stands in it.

Nothing but the log and the definition is looked at, so a receipt that is written before its event is
committed and one that is made from the log years later are the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from onward.machine.definition import Definition
from onward.model.event import (
    AttemptFailed,
    AttemptInterrupted,
    Event,
    GateDecided,
    GateOpened,
    GateWithdrawn,
    Outcome,
    ParallelStarted,
    PipelineChanged,
    RunCreated,
    StepFinished,
    StepStarted,
    StepStatus,
)
from onward.model.ids import branch_of
from onward.model.values.instant import rfc3339
from onward.receipts.filling import Begun, Ending, Leaving, Setting, leaving
from onward.receipts.receipt import Status, Tried

TIMED_OUT = "timed out"
_DONE: Mapping[StepStatus, Status] = {
    StepStatus.SUCCESS: "succeeded",
    StepStatus.PARTIAL_SUCCESS: "succeeded",
    StepStatus.SKIPPED: "skipped",
}


class Trail(Struct):
    """A run's steps as far as its log was taken in; `head` is the number of the last event."""

    run_id: str
    flow: str
    head: int = 0
    pipeline_hash: str = ""
    workdir: str | None = None
    is_simulated: bool = False
    _begun: dict[str, Begun] = {}
    _last: dict[str, str] = {}

    def copy(self) -> Trail:
        """The same, to take in events that may never be committed."""
        return replace(self, _begun={**self._begun}, _last={**self._last})

    def learn(self, event: Event) -> None:
        """What the event says of the run as a whole; before `take`, which needs the run's definition."""
        if isinstance(event, RunCreated):
            self.workdir, self.is_simulated = event.workdir, event.simulation is not None
        if isinstance(event, RunCreated | PipelineChanged):
            self.pipeline_hash = event.pipeline_hash

    def take(
        self, event: Event, definition: Definition, *, at_us: int, recorded_in: str = ""
    ) -> Leaving | None:
        """Take in the event behind `head`. `definition` is the one that the run had then."""
        self.head += 1
        ending = self._happened(event, at_us)
        if ending is None:
            return None
        step = ending.step
        setting = Setting(
            run_id=self.run_id,
            flow=self.flow,
            workdir=self.workdir,
            is_simulated=self.is_simulated,
            sequence=self.head,
            at_us=at_us,
            previous=self._last.get(branch_of(step)),
            recorded_in=recorded_in or self.run_id,
        )
        left = leaving(setting, self._begun.get(step) or Begun(at_us), ending, definition)
        if ending.finished is not None:
            self._last[branch_of(step)] = step
            self._forget(step)
        return left

    def _happened(self, event: Event, at_us: int) -> Ending | None:
        match event:
            case StepStarted():
                self._started(event, at_us)
            case GateOpened(gate=step) | ParallelStarted(step=step):
                self._begun[step] = Begun(at_us)
            case GateDecided():
                return self._decided(event, at_us)
            case GateWithdrawn(gate=step):
                return Ending(step, "interrupted", "the question was withdrawn")
            case AttemptInterrupted(step=step, why=why):
                self._end_try(step, "interrupted", why, at_us)
                return Ending(step, "interrupted", why)
            case AttemptFailed(step=step, reason=reason):
                status = _failed(reason)
                self._end_try(step, status, reason, at_us)
                if event.retry_at_us is None:
                    return Ending(step, status, reason, event.log)
            case StepFinished(step=step, outcome=outcome):
                status = _status(outcome)
                self._end_try(step, status, outcome.failure_reason, at_us)
                return Ending(step, status, outcome.failure_reason, event.log, event)
        return None

    def _started(self, event: StepStarted, at_us: int) -> None:
        begun = self._begun.get(event.step) or Begun(at_us)
        tried = begun.tried
        if tried and tried[-1].ended_at is None:
            tried = (*tried[:-1], replace(tried[-1], status="lost"))
        number = 1 + sum(one.attempt == event.attempt for one in tried)
        now = Tried(
            attempt=event.attempt,
            number=number,
            started_at=rfc3339(at_us),
            ended_at=None,
            status="lost",  # until the log says how it ended
            reason="",
        )
        self._begun[event.step] = replace(begun, tried=(*tried, now))

    def _end_try(self, step: str, status: Status, reason: str, at_us: int) -> None:
        begun = self._begun.get(step)
        if begun is None or not begun.tried or begun.tried[-1].ended_at is not None:
            return
        ended = replace(begun.tried[-1], ended_at=rfc3339(at_us), status=status, reason=reason)
        self._begun[step] = replace(begun, tried=(*begun.tried[:-1], ended))

    def _decided(self, event: GateDecided, at_us: int) -> Ending | None:
        words = f": {event.text}" if event.text else ""
        said = f"{event.by} chose {event.choice.label!r}{words}"
        begun = self._begun.get(event.gate) or Begun(at_us)
        self._begun[event.gate] = replace(begun, decisions=(*begun.decisions, said))
        return Ending(event.gate, "failed", f"rejected: {said}") if event.rejected else None

    def _forget(self, step: str) -> None:
        """A finished step is not looked at again, nor are the branches that it opened."""
        self._begun.pop(step, None)
        inside = f"{step}."
        for line in [line for line in self._last if line.startswith(inside)]:
            del self._last[line]
        for other in [other for other in self._begun if other.startswith(inside)]:
            del self._begun[other]


def _status(outcome: Outcome) -> Status:
    return _DONE.get(outcome.status) or _failed(outcome.failure_reason)


def _failed(reason: str) -> Status:
    return "timed_out" if reason.startswith(TIMED_OUT) else "failed"
