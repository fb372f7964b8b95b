"""Letting go of runs that this process owns and no longer drives.

A driver that ends by an error or by being cancelled leaves its run to a process that lives on, so that
nobody would ever take it over. The process therefore notes what it dropped, stops counting itself as the
owner, and gives the run back as soon as the store lets it. Only liveness depends on this: if it comes
to nothing, the lease runs out, or ends with the process.
"""

from __future__ import annotations

import asyncio
import contextlib

from onward.clock import Clock, Ids
from onward.engine.journal import Journal
from onward.errors import OnwardError
from onward.machine.decide import decide_release
from onward.store.port import Lease


class Dropped:
    """The leases that this process holds, or may hold, and does not drive."""

    def __init__(self, journal: Journal, clock: Clock, ids: Ids) -> None:
        self._journal, self._clock, self._ids = journal, clock, ids
        self._leases: set[Lease] = set()
        self._giving: dict[Lease, asyncio.Task[None]] = {}

    def __contains__(self, lease: Lease) -> bool:
        return lease in self._leases

    def drop(self, lease: Lease) -> None:
        """Nobody drives this any more; give it back in the background."""
        self._leases.add(lease)
        self._giving[lease] = giving = asyncio.create_task(self._give_back(lease))
        giving.add_done_callback(lambda _: self._giving.pop(lease, None))

    def take_back(self, lease: Lease) -> bool:
        """Before a claim: a dropped one that never happened is made again, with the same token."""
        was_dropped = lease in self._leases
        self._leases.discard(lease)
        if lease in self._giving:
            self._giving.pop(lease).cancel()
        return was_dropped

    async def settle(self) -> None:
        """Until everything that was dropped is given back, or could not be."""
        await asyncio.gather(*self._giving.values(), return_exceptions=True)

    async def _give_back(self, lease: Lease) -> None:
        with contextlib.suppress(OnwardError):
            await self._journal.control(
                lease.run_id,
                lambda current, held: decide_release(
                    current.run, owner=lease.owner, token=lease.token, now_us=self._clock.now_us()
                ),
                append_id=self._ids.unique(),
            )
            self._leases.discard(lease)
