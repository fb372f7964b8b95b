"""A worker as others know it: alive, with these handlers, and without these directories.

Whoever submits a run can then be told whether a worker will take it. Registering costs one small write at the
start and at a third of the lease, and one when a run of the queue needs a directory that is not here.
"""

from __future__ import annotations

from collections.abc import Callable

from onward.clock import Clock
from onward.engine.lease.served import Unserved
from onward.model.ids import called
from onward.model.row import Offer, waiting_for
from onward.observe.log import about
from onward.store.port.leases import Workers

TIDY_EVERY_S = 60.0


class Registration:
    """Keeps one worker registered. `warn` is told once of runs that no live worker can serve."""

    def __init__(
        self,
        workers: Workers,
        unserved: Unserved,
        clock: Clock,
        *,
        concurrency: int,
        warn: Callable[[str], None],
    ) -> None:
        self._workers, self._unserved, self._clock, self._warn = workers, unserved, clock, warn
        self._concurrency, self._is_there = concurrency, False
        self._known: frozenset[str] = frozenset()
        self._said: set[str] = set()
        self._due_s = self._tidy_s = clock.awake_s()

    async def keep(self) -> None:
        """Register again if it is time, or if the queue holds what this worker cannot serve; else nothing."""
        now_s, seen = self._clock.awake_s(), self._unserved.seen
        if now_s < self._due_s and seen.keys() == self._known:
            return
        self._due_s, self._known = now_s + self._workers.renew_s, frozenset(seen)
        self._is_there = True
        await self._workers.register(Offer(self._unserved.kinds, self._unserved.lacks, self._concurrency))
        if now_s >= self._tidy_s:
            self._tidy_s = now_s + TIDY_EVERY_S
            await self._workers.tidy()
        if seen:
            await self._tell_unserved()

    async def leave(self) -> None:
        """This worker takes no more runs."""
        if self._is_there:
            self._is_there = False
            await self._workers.leave()

    async def _tell_unserved(self) -> None:
        """Say of what this worker cannot serve whether another one can: once, until one could."""
        workers = await self._workers.read()
        for needs, run in self._unserved.seen.items():
            waiting = waiting_for(run.needs, workers)
            if waiting is None:
                self._said.discard(needs)
            elif needs not in self._said:
                self._said.add(needs)
                with about(run=run.id, pipeline=run.pipeline):
                    self._warn(f"run {called(run.id)} stays in the queue: {waiting.says}")
