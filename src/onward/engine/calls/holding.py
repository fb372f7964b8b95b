"""Stopping an attempt between two calls.

From the moment a hold is asked for, only calls inside an open one may begin. The hold waits for the leaves
that are under way: calls with none inside them. Then the attempt is over, and what its handler returns is
dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from onward.engine.log.appender import Appender
from onward.engine.step.shielded import unbroken
from onward.machine.decide.calls import attempt_over, hold_attempt
from onward.machine.fold.calls import PAUSE
from onward.model.call import AttemptHeld, LimitHit
from onward.model.event import StepStarted


class Holding:
    """Whether one attempt is to stop, or has stopped. `end_attempt` stops its handler.

    `stops_at_call` says why the attempt should stop before its next call; empty if it should not.
    """

    def __init__(
        self,
        appender: Appender,
        started: StepStarted,
        stops_at_call: Callable[[], str],
        end_attempt: Callable[[], None],
    ) -> None:
        self._appender, self._started = appender, started
        self._stops_at_call, self._end_attempt = stops_at_call, end_attempt
        self._leaves: set[str] = set()
        self._wanted: AttemptHeld | None = None
        self._writing: asyncio.Task[None] | None = None
        self._is_held, self.over = False, asyncio.Event()

    async def boundary(self) -> None:
        """Pass from one call to the next; if the attempt is to stop, this never returns."""
        why = self._stops_at_call()
        if why:
            self.ask(PAUSE, why)
        if self._wanted is not None:
            await self.over.wait()
            raise attempt_over(self._appender.run.id, self._started.step)

    def begin(self, call: str, inside: str | None) -> None:
        """A call is under way; the one that it is inside of is not a leaf any more."""
        if inside is not None:
            self._leaves.discard(inside)
        self._leaves.add(call)

    def end(self, call: str) -> None:
        """A call is not under way any more."""
        self._leaves.discard(call)
        self._hold_if_idle()

    def ask(
        self, reason: str, detail: str = "", until_us: int | None = None, limit: LimitHit | None = None
    ) -> None:
        """Let no further call begin, and end the attempt when those that are open have finished."""
        if self._wanted is None:
            self._wanted = AttemptHeld(
                step=self._started.step,
                attempt=self._started.attempt,
                reason=reason,
                detail=detail,
                until_us=until_us,
                limit=limit,
            )
        self._hold_if_idle()

    async def is_held(self) -> bool:
        """Whether the log says that the attempt was held; waits for a hold that is being written."""
        if self._writing is not None:
            await unbroken(self._writing)
        return self._is_held

    def close(self) -> None:
        """The attempt is over: calls that wait are refused."""
        self.over.set()

    def _hold_if_idle(self) -> None:
        if self._wanted is not None and not self._leaves and self._writing is None and not self.over.is_set():
            self._writing = asyncio.create_task(self._write(self._wanted))

    async def _write(self, wanted: AttemptHeld) -> None:
        """Record the hold and end the handler; nothing if a nested call has begun meanwhile."""
        decide = partial(hold_attempt, held=wanted, leaves=self._leaves)
        try:
            self._is_held = bool(await self._appender.record(decide))
        finally:
            self._writing = None
            if not self._leaves:  # held, or the run is lost: either way the attempt is over
                self.close()
                self._end_attempt()
