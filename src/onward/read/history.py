"""What a run did, step by step: the page that `onward show` prints, as plain values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from onward.model.event import (
    AttemptFailed,
    AttemptInterrupted,
    GateDecided,
    GateOpened,
    GateWithdrawn,
    RunForked,
    RunResumed,
    StepFinished,
    StepStarted,
)
from onward.read.view import instant
from onward.store.codec import unseal
from onward.store.port import Record

Step = dict[str, Any]


class History:
    """Every step of a log in the order in which they began: attempts, times, and how each ended."""

    def __init__(self) -> None:
        self._steps: dict[str, Step] = {}
        self._started: dict[str, int] = {}

    def read(self, records: Iterable[Record]) -> None:
        """Take in the next records of the log."""
        for record in records:
            self._take(record)

    def view(self) -> list[Step]:
        return list(self._steps.values())

    def _take(self, record: Record) -> None:
        match unseal(record):
            case StepStarted(step=step, node=node, attempt=attempt, child=child):
                begun = self._begin(step, node, record.at_us, "running")
                begun["attempts"] = attempt
                if child is not None:
                    begun["child"] = child
            case GateOpened(gate=gate, node=node):
                self._begin(gate, node, record.at_us, "waiting")
            case AttemptFailed(step=step, reason=reason, retry_at_us=retry_at_us, log=log):
                self._change(step, status="failed" if retry_at_us is None else "retrying", reason=reason)
                self._write_down(step, log)
            case AttemptInterrupted(step=step, why=why):
                self._change(step, status="interrupted", reason=why)
            case GateDecided(gate=gate, choice=choice, by=by, text=text, rejected=rejected):
                status = "rejected" if rejected else "decided"
                self._change(gate, status=status, answer=choice.label or text, by=by)
            case GateWithdrawn(gate=gate):
                self._change(gate, status="withdrawn")
            case StepFinished() as finished:
                self._finish(finished, record.at_us)
            case RunForked():
                self._leave("left to the other run")
            case RunResumed(from_node=str()):
                self._leave("left by a resume from elsewhere")

    def _begin(self, step: str, node: str, at_us: int, status: str) -> Step:
        self._started.setdefault(step, at_us)
        found = self._steps.setdefault(
            step,
            {
                "step": step,
                "node": node,
                "status": status,
                "attempts": 1,
                "started_at": instant(at_us),
                "finished_at": None,
                "duration_s": None,
                "reason": "",
                "log": [],
            },
        )
        found["status"] = status
        return found

    def _change(self, step: str, **changes: str) -> None:
        if step in self._steps:
            self._steps[step].update(changes)

    def _write_down(self, step: str, lines: Iterable[str]) -> None:
        if step in self._steps:
            self._steps[step]["log"] += lines

    def _finish(self, event: StepFinished, at_us: int) -> None:
        step = self._steps.get(event.step) or self._begin(event.step, event.node, at_us, "")
        step.update(
            status=event.outcome.status.value,
            attempts=event.attempt,
            finished_at=instant(at_us),
            duration_s=(at_us - self._started[event.step]) / 1_000_000,
            reason=event.outcome.failure_reason,
        )
        self._write_down(event.step, event.log)

    def _leave(self, why: str) -> None:
        for step in self._steps.values():
            if step["finished_at"] is None and step["status"] != "withdrawn":
                step.update(status="left", reason=why)
