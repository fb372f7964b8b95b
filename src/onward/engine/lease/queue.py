"""The queue: claim the run whose turn it is, if this process has its handlers and its directory."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence

import msgspec
from msgspec.structs import replace

from onward.clock import Clock
from onward.engine.lease.claims import Claims
from onward.engine.lease.served import Unserved
from onward.engine.log.journal import Journal
from onward.engine.log.reader import Folded
from onward.engine.loop.stop import StopSwitch
from onward.errors import (
    LeaseLost,
    OnwardError,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from onward.machine.decide.requests import decide_claim
from onward.model.events import Event
from onward.model.run import Run, RunStatus
from onward.store.port.log import TakeFilter
from onward.store.port.runs import Measures

log = logging.getLogger("onward.worker")
SKIPPED_MAX = 1_000
SKIPPED_S_FIRST, SKIPPED_S_MAX = 1.0, 300.0
# An outage concerns all runs, so it must not make this one wait for long after it has passed.
OUTAGES, OUTAGE_S_MAX = (StoreUnavailable, StoreFull, StoreReadOnly), 10.0
WHY_MAX = 500
ExecuteRun = Callable[[Folded, float, StopSwitch], Awaitable[Folded]]


class _Skipped(msgspec.Struct, frozen=True):
    """A run that could not be claimed or executed, how often, and until when it is skipped."""

    failures: int
    until_s: float


class Taking:
    """Takes due runs. One that cannot be claimed, or executed, is skipped for a while, longer each time.

    `kinds` are the handlers that this process has; `run` executes a run that was claimed until it stops.
    """

    def __init__(
        self,
        measures: Measures,
        journal: Journal,
        claims: Claims,
        clock: Clock,
        kinds: Collection[str],
        run: ExecuteRun,
    ) -> None:
        self._measures, self._journal, self._claims, self._clock = measures, journal, claims, clock
        self.unserved, self._run = Unserved(kinds), run
        self._skipped: dict[str, _Skipped] = {}
        self._failures: list[tuple[str, str]] = []

    async def take(self, stop: StopSwitch) -> tuple[Folded, Awaitable[Folded]] | None:
        """Claim the run whose turn it is; returns it, and what to await to execute it until it stops."""
        claimed_s = self._clock.awake_s()
        folded = await self._claim_next()
        return None if folded is None else (folded, self._execute(folded, claimed_s, stop))

    async def _execute(self, folded: Folded, claimed_s: float, stop: StopSwitch) -> Folded:
        try:
            return await self._run(folded, claimed_s, stop)
        except (LeaseLost, StoreError):
            raise
        except Exception as error:
            self._skip(folded.run.id, error)
            raise

    async def _claim_next(self) -> Folded | None:
        """The run that this process holds now, or None when nothing that it can serve is due."""
        refused: set[str] = set()
        while True:
            try:
                folded = await self._journal.take(self._filter(), self._claim, self._skip)
            except StoreError:
                await self._note_failures()
                raise
            has_failed = await self._note_failures()
            if folded is not None and folded.run.status is RunStatus.RUNNING:
                self._skipped.pop(folded.run.id, None)
                return folded
            if folded is not None and folded.run.id in refused:
                self._skip(folded.run.id, _needs_unsaid(folded.run))
            elif folded is not None:
                refused.add(folded.run.id)  # because of what it needs, by which the next one is chosen
            elif not has_failed:
                return None

    def _claim(self, current: Folded) -> Sequence[Event]:
        """Claim the run, if this process has its handlers and its directory.

        It is due by the database's clock, which counts, even if this process's clock is slow.
        """
        if self.unserved.refuses(current.run):
            return ()
        holder_view = self._claims.holder_view(current)
        now_us = max(holder_view.now_us, current.run.wake_at_us or 0)
        return decide_claim(current.run, replace(holder_view, now_us=now_us))

    def _filter(self) -> TakeFilter:
        now_s = self._clock.awake_s()
        skipped = sorted(run_id for run_id, skip in self._skipped.items() if skip.until_s > now_s)
        return TakeFilter(self.unserved.now(), tuple(skipped))

    def _skip(self, run_id: str, error: Exception) -> None:
        """Leave a run to other workers for a while: other runs are waiting."""
        if len(self._skipped) >= SKIPPED_MAX:
            self._skipped.clear()
        before = self._skipped.get(run_id)
        failures = 1 if before is None else before.failures + 1
        most_s = OUTAGE_S_MAX if isinstance(error, OUTAGES) else SKIPPED_S_MAX
        wait_s = min(SKIPPED_S_FIRST * 2.0 ** min(failures - 1, 20), most_s)
        self._skipped[run_id] = _Skipped(failures, self._clock.awake_s() + wait_s)
        self._failures.append((run_id, (str(error) or type(error).__name__)[:WHY_MAX]))
        log.error("run %s is skipped for %g s: %s", run_id, wait_s, error, extra={"run": run_id})

    async def _note_failures(self) -> bool:
        """Note in the database what could not be claimed; returns whether there was any."""
        failed, self._failures = self._failures, []
        for run_id, why in failed:
            with contextlib.suppress(OnwardError):  # then the log of this process is the only place
                await self._measures.note_stuck(run_id, why)
        return bool(failed)


def _needs_unsaid(run: Run) -> StoreCorrupt:
    """That a run is found by a row which says less than its log."""
    return StoreCorrupt(
        f"its row does not say that it needs {' '.join(run.needs)}; `onward verify {run.id}` compares them."
    )
