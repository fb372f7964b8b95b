"""Lets flows continue when a run that they wait for has ended.

Whoever executes a run to its end, or cancels it, asks for that. A process may die before it does, so sweeps
look for flows that wait for what has ended. To ask twice does no harm: what does not wait is
left alone.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from onward.clock import Clock
from onward.engine.claims import Claims
from onward.errors import RunNotFound, StoreIO, StoreUnavailable
from onward.machine.decide.requests import decide_awaited
from onward.machine.reasons import CHILD
from onward.model.run import Run, RunStatus
from onward.store.port.runs import Runs

ENDED = (RunStatus.COMPLETED, RunStatus.CANCELLED, RunStatus.FAILED)
SWEPT_S = 10.0
"""How often to look for flows that nobody told: a process must have died for that."""


class AwaitedRuns:
    """Knows who waits for which run."""

    def __init__(self, runs: Runs, claims: Claims, clock: Clock) -> None:
        self._runs, self._claims, self._clock = runs, claims, clock
        self._swept_s: float | None = None

    async def stopped(self, run: Run) -> None:
        """This process executed a run until it stopped, or ended it.

        It may be one that a flow waits for; or a flow's, and what it waits for ended while that was written.
        """
        # What cannot be written now is found by a sweep.
        with suppress(RunNotFound, StoreUnavailable, StoreIO):
            if run.managed_by is not None and run.managed_by.call and run.status in ENDED:
                await self._tell(run.managed_by.run, run.id)
            for head in (await self._runs.heads(run.awaits)).values() if run.awaits else ():
                if head.status in ENDED:
                    await self._tell(run.id, head.id)

    async def sweep(self) -> None:
        """Look for flows that wait for a run which has ended."""
        now_s = self._clock.awake_s()
        if self._swept_s is not None and now_s - self._swept_s < SWEPT_S:
            return
        self._swept_s = now_s
        for waiting, ended in await self._runs.awaited(CHILD):
            await self._tell(waiting, ended)

    async def _tell(self, run_id: str, ended: str) -> None:
        await self._claims.request_observed(run_id, partial(decide_awaited, child=ended))
