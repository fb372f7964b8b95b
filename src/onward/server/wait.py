"""`Prefer: wait=10`: a reply that comes when the run stands still, or when the time is over.

All who wait share one look at the heads of their runs. What was asked is committed before the wait begins.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING

from onward.errors import InvalidInput, OnwardError
from onward.model.run import RunStatus

if TYPE_CHECKING:
    from onward.server.context import Context

WAIT_S_MAX = 30
LOOK_S = 0.1
UNDER_WAY = (RunStatus.QUEUED, RunStatus.RUNNING)
_WAIT = re.compile(r"wait=([0-9]{1,3})")
log = logging.getLogger("onward.server")


def wait_of(prefer: str | None) -> int | None:
    """How many seconds a client is willing to wait; what else it prefers means nothing here."""
    for word in (prefer or "").split(","):
        found = _WAIT.fullmatch(word.strip())
        if found is not None:
            seconds = int(found[1])
            if seconds > WAIT_S_MAX:
                raise InvalidInput(f"Prefer: wait={seconds} is more than {WAIT_S_MAX} seconds.")
            return seconds
    return None


class Waits:
    """Waits for runs to stand still."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._waiting: dict[str, list[asyncio.Event]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    async def until_still(self, run: str, seconds: float) -> None:
        """Return when the run is neither queued nor running, when time is over, or when the server stops."""
        woken = asyncio.Event()
        self._waiting.setdefault(run, []).append(woken)
        self._news.set()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="onward waits")
        try:
            await self._context.clock.wait_s(seconds, woken)
        finally:
            left = self._waiting[run]
            left.remove(woken)
            if not left:
                del self._waiting[run]
            self._news.set()

    async def _look(self) -> None:
        """Look at all runs that somebody waits for, until nobody does."""
        draining = self._context.life.draining
        while self._waiting:
            asked = tuple(self._waiting)
            try:
                heads = await self._context.store.runs.heads(asked)
            except OnwardError as error:
                log.warning("runs that somebody waits for could not be looked at: %s", error)
                heads = None
            for run in asked:
                is_still = heads is not None and (run not in heads or heads[run].status not in UNDER_WAY)
                if is_still or draining.is_set():
                    for woken in self._waiting.get(run, ()):
                        woken.set()
            self._news.clear()
            await self._context.clock.wait_s(LOOK_S, self._news)
