"""Taking a run and letting go of it: who stands where, and what becomes of a claim that nobody drives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence

from onward.clock import Clock, Ids
from onward.engine.lease.release import Dropped
from onward.engine.log.journal import DecideRun, Folded, Journal
from onward.engine.loop.ports import Observer
from onward.errors import OnwardError, Refused, StoreError
from onward.machine.decide.requests import Standing
from onward.model.event import Event, RunClaimed
from onward.store.owner import owner_label
from onward.store.port import Held, Holder, Lease, Leases


class Claims:
    """Every claim of this process goes through here."""

    def __init__(self, leases: Leases, journal: Journal, clock: Clock, ids: Ids, observe: Observer) -> None:
        self._leases, self._journal, self._observe, self._clock = leases, journal, observe, clock
        self.dropped = Dropped(journal, clock, ids)

    def standing(self, folded: Folded, held: Held | None = None) -> Standing:
        """Who has the run, now. What this process dropped, it does not have."""
        me, now_us = self._leases.me, self._clock.now_us()
        holder = held.holder if held is not None else folded.holder
        if holder is None:
            return Standing(None, False, me, now_us)
        return Standing(owner_label(holder.owner), self.is_at_work(folded.run.id, holder), me, now_us)

    def is_at_work(self, run_id: str, holder: Holder) -> bool:
        """Whether the holder is alive, and has not dropped the run."""
        return holder.is_alive and Lease(run_id, holder.owner, holder.token) not in self.dropped

    async def starting(self, run_id: str, creation: Awaitable[Folded]) -> Folded:
        """Make a run that is claimed from its first moment; a claim without a reply is dropped."""
        lease = Lease(run_id, self._leases.me, 1)
        may_exist = self.dropped.take_back(lease)
        try:
            return await creation
        except (OnwardError, asyncio.CancelledError) as error:
            if may_exist or not isinstance(error, Refused):
                self.dropped.drop(lease, error)
            raise

    async def request(
        self,
        run_id: str,
        decide: DecideRun,
        *,
        append_id: str,
        blobs: Mapping[str, bytes] | None = None,
    ) -> tuple[Folded, bool]:
        """Make a request that may claim the run; says whether it did. A claim without a reply is dropped."""
        claims: list[Lease] = []
        decided: Sequence[Event] = ()

        def noted(current: Folded, held: Held) -> Sequence[Event]:
            nonlocal decided
            decided = decide(current, held)
            claims[:] = [Lease(run_id, e.worker, e.token) for e in decided if isinstance(e, RunClaimed)]
            for lease in claims:
                self.dropped.take_back(lease)
            return decided

        try:
            folded = await self._journal.control(run_id, noted, append_id=append_id, blobs=blobs)
        except (StoreError, asyncio.CancelledError) as error:
            for lease in claims:
                self.dropped.drop(lease, error)
            raise
        if not folded.is_repeat:
            self._observe(folded.run, decided)
        return folded, bool(claims) and not folded.is_repeat
