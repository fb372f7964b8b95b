"""Taking the run whose turn it is, if this process can serve it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

from onward.clock import Clock
from onward.engine.claim import Claims
from onward.engine.journal import Folded, Journal
from onward.machine.decide import decide_claim
from onward.model.event import Event
from onward.store.port import Held, Wanted

log = logging.getLogger("onward.worker")
SKIPPED_MAX = 1_000


class Taking:
    """Takes due runs. It remembers what it cannot serve and what cannot be read, and passes them over."""

    def __init__(self, journal: Journal, claims: Claims, clock: Clock, kinds: Collection[str]) -> None:
        self._journal, self._claims, self._clock, self._kinds = journal, claims, clock, kinds
        self._unserved: set[str] = set()
        self._damaged: set[str] = set()

    async def take(self) -> Folded | None:
        """The run that is now this process's, or None when nothing that it can serve is due."""
        while True:
            is_ours = False

            def decide(current: Folded, held: Held) -> Sequence[Event]:
                nonlocal is_ours
                is_ours = False
                if not set(current.run.needs) <= set(self._kinds):
                    self._unserved.add(" ".join(current.run.needs))
                    return ()
                standing = self._claims.standing(current, held)
                # Its time has come by the database's clock, which counts, even if this process's is behind.
                now_us = max(standing.now_us, current.run.wake_at_us or 0)
                events = decide_claim(current.run, replace(standing, now_us=now_us))
                is_ours = True
                return events

            known = len(self._damaged)
            folded = await self._journal.take(self._wanted(), decide, self.pass_over)
            if is_ours or (folded is None and len(self._damaged) == known):
                return folded

    def _wanted(self) -> Wanted:
        return Wanted(tuple(sorted(self._unserved)), tuple(sorted(self._damaged)))

    def pass_over(self, run_id: str, error: Exception) -> None:
        """Leave a run to others from now on."""
        log.error("run %s is passed over: %s", run_id, error, extra={"run": run_id})
        if len(self._damaged) >= SKIPPED_MAX:
            self._damaged.clear()
        self._damaged.add(run_id)
