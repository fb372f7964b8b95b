"""The stops of a run: why each happened, how long it took, what was kept, and who resumed it.

They are read from the log, because a run that continues forgets that it had stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from onward.machine.catalogue import CATALOGUE
from onward.machine.fold.calls import ANSWERS
from onward.machine.reasons import CRASH, reason_of
from onward.model import events as ev
from onward.model.call import CallFinished, CallStatus
from onward.model.run import Run, RunStatus
from onward.model.values import rfc3339
from onward.read.lookup import log_pages
from onward.read.why import kept_words, sentence, step_name
from onward.store.codec import unseal
from onward.store.port.log import RunLog

if TYPE_CHECKING:
    from onward.replies.runs import StopShown

_STOPS = (ev.RunPaused, ev.RunInterrupted, ev.RunFailed)
KINDS = frozenset(
    kind.__name__
    for kind in (
        *_STOPS,
        ev.RunClaimed,
        ev.RunResumed,
        ev.RunQueued,
        ev.RunCancelled,
        ev.RunForked,
        ev.StepStarted,
        ev.StepFinished,
        CallFinished,
    )
)
"""The events that say something of stops. Nothing else of a log is read for them."""
assert {kind.__name__ for kind in CATALOGUE} >= KINDS


class Stops(msgspec.Struct):
    """The stops that a log tells of, event by event."""

    stops: list[StopShown] = msgspec.field(default_factory=list)
    open_steps: dict[str, None] = msgspec.field(default_factory=dict)
    steps: int = 0
    answers: int = 0
    cost_micro: int = 0
    is_lost: bool = False

    def apply(self, event: ev.Event, *, seq: int, at_us: int) -> None:
        """Add the next event of one of `KINDS`; others are passed over."""
        match event:
            case ev.StepStarted():
                self.open_steps[event.step] = None
            case ev.StepFinished():
                self.open_steps.pop(event.step, None)
                self.steps += 1
            case CallFinished():
                self._answered(event)
            case ev.RunPaused() | ev.RunInterrupted() | ev.RunFailed():
                step = event.step if isinstance(event, ev.RunFailed) else ""
                self._stopped(seq, at_us, event.reason, event.detail, step)
            case ev.RunQueued() if self.is_lost:
                self._stopped(seq, at_us, CRASH, event.why, "")
            case ev.RunResumed():
                self._ended(at_us, event.by)
                if event.from_node is not None:
                    self.open_steps.clear()
            case ev.RunClaimed():
                self._ended(at_us, None)
            case ev.RunCancelled():
                self._ended(at_us, event.by or None)
            case ev.RunForked():  # the stops of its parent are its parent's
                self.stops.clear()
            case _:
                pass
        self.is_lost = isinstance(event, ev.RunClaimed) and event.lost

    def _answered(self, event: CallFinished) -> None:
        if event.type in ANSWERS and event.status is CallStatus.OK:
            self.answers += 1
            self.cost_micro += event.cost_micro or 0

    def _stopped(self, seq: int, at_us: int, reason: str, detail: str, step: str) -> None:
        self._ended(at_us, None)
        stopped_in = step or next(iter(self.open_steps), None)
        where = f" in {step_name(stopped_in)}" if stopped_in and reason_of(reason).holder_died else ""
        self.stops.append(
            {
                "seq": seq,
                "reason": reason,
                "says": sentence((detail or reason_of(reason).says) + where),
                "step": stopped_in or None,
                "at": rfc3339(at_us),
                "ended_at": None,
                "by": None,
                "kept": kept_words(self.steps, self.answers, self.cost_micro),
            }
        )

    def _ended(self, at_us: int, by: str | None) -> None:
        if self.stops and self.stops[-1]["ended_at"] is None:
            self.stops[-1]["ended_at"] = rfc3339(at_us)
            self.stops[-1]["by"] = by


async def read_stops(log: RunLog, run: Run) -> Sequence[StopShown]:
    """The stops of a run. One that was claimed at most once, and works, has none."""
    if run.token < 2 and run.status in (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.COMPLETED):
        return ()
    found = Stops()
    async for page in log_pages(log, run.id):
        for record in page:
            if record.kind in KINDS:
                found.apply(unseal(record), seq=record.seq, at_us=record.at_us)
    return found.stops
