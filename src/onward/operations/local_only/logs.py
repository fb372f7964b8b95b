"""What the steps of a run printed: from their directories on this machine, and otherwise from the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence

import msgspec

from onward.clock import Clock
from onward.errors import InvalidInput
from onward.model.events.event import Event
from onward.model.events.steps import AttemptFailed, StepFinished, StepStarted
from onward.operations.local.wait import has_stopped
from onward.operations.local_only.replies import LogPiece
from onward.operations.local_only.requests import ReadLogs
from onward.operations.local_only.tries import PrintedTry
from onward.read.find_step import get_steps, matching_steps
from onward.read.log.projection import Projection
from onward.read.log.step import Step
from onward.read.lookup import find_run, log_pages
from onward.receipts.folder import Folder
from onward.receipts.names import attempt_path
from onward.store.codec import unseal
from onward.store.port.store import Store

POLL_S = 0.2
TOOL_OUTPUT = "tool.output"


class RunLogs(msgspec.Struct, frozen=True):
    """Reads what was printed. `runs` has the directories of runs; None if there are none here."""

    store: Store
    clock: Clock
    runs: Folder | None

    async def read_logs(
        self, request: ReadLogs, *, stop: asyncio.Event | None = None
    ) -> AsyncGenerator[LogPiece]:
        """Pieces of text as they come; `stop` ends a wait for more."""
        run_id = (await find_run(self.store.runs, request.run)).row.id
        stop, reading, heard = stop or asyncio.Event(), _Reading(request, self.runs), 0
        while True:
            # Asked before reading, so that the last lines are read once more.
            is_over = (
                not request.follow
                or await has_stopped(self.store, self.clock, run_id)
                or reading.has_finished
            )
            async for page in log_pages(self.store.log, run_id, after=heard):
                heard = page[-1].seq
                for record in page:
                    reading.apply(unseal(record), at_us=record.at_us, run_id=record.run_id)
            for piece in reading.more(is_over=is_over):
                yield piece
            if is_over or stop.is_set():
                return
            await self.clock.wait_s(POLL_S, stop)


class _Reading(msgspec.Struct):
    """How far the output of the chosen steps has been read."""

    request: ReadLogs
    runs: Folder | None
    _log: Projection = msgspec.field(default_factory=Projection)
    _tries: dict[str, list[PrintedTry]] = msgspec.field(default_factory=dict)

    @property
    def has_finished(self) -> bool:
        """Whether the one step that was asked for has its outcome."""
        step = self._log.steps.get(self.request.step or "")
        return step is not None and step.outcome is not None

    def apply(self, event: Event, *, at_us: int, run_id: str) -> None:
        """Add the next event. `run_id` is the run that recorded it: a fork's steps are also its parent's."""
        step = self._log.apply(event, at_us=at_us)
        if step is None:
            return
        tries = self._tries.setdefault(step.step, [])
        match event:
            case StepStarted():
                one = step.tries[-1]
                parts = (run_id, *attempt_path(step.step, one.attempt, one.number))
                tries.append(PrintedTry(self.runs, parts, self.request.streams))
            case AttemptFailed() if tries:
                tries[-1].log = event.log
            case StepFinished() if tries:
                tries[-1].log = event.log
                printed = event.context.get(TOOL_OUTPUT)
                tries[-1].printed = printed if isinstance(printed, str) else ""

    def more(self, *, is_over: bool) -> Iterator[LogPiece]:
        """What was printed since this was last asked."""
        wanted, attempt = self.request.step, self.request.attempt
        if wanted is None:
            steps = [*self._log.steps.values()]
        else:
            steps = get_steps(self._log, wanted) if is_over else matching_steps(self._log, wanted)
        if is_over and attempt is not None:
            _check_attempt(steps, attempt)
        for step in steps:
            for one, reader in zip(step.tries, self._tries[step.step], strict=True):
                if attempt is not None and one.attempt != attempt:
                    continue
                is_ended = is_over or one.ended_at_us is not None or one is not step.tries[-1]
                for stream, text, source in reader.more(one.output, is_ended=is_ended):
                    yield {
                        "step": step.step,
                        "attempt": one.attempt,
                        "number": one.number,
                        "stream": stream,
                        "text": text,
                        "source": source,
                    }


def _check_attempt(steps: Sequence[Step], attempt: int) -> None:
    """Refuse the number of an attempt that none of these steps has had."""
    last = max((step.attempts for step in steps if step.tries), default=0)
    if attempt > last:
        named = ", ".join(step.step for step in steps[:20])
        raise InvalidInput(f"there is no attempt {attempt} of {named}; the last is {last}.")
