"""Requests to runs, and the claims among them: decided under the run's lock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass

from onward.clock import Clock, Ids
from onward.engine.lease.release import Dropped
from onward.engine.log.journal import Journal
from onward.engine.log.reader import Folded
from onward.engine.log.terms import NO_TERMS, RequestTerms
from onward.engine.loop.parts import Observer
from onward.errors import OnwardError, Refused, StoreError
from onward.machine.decide.claim import HolderView
from onward.machine.decide.requests import Decide
from onward.model.event import Event, RunClaimed
from onward.model.run import RunStatus
from onward.store.owner import owner_label
from onward.store.port.leases import Holder, Lease, Leases
from onward.store.port.log import Held


@dataclass(frozen=True, slots=True)
class Reply:
    """A run as a request left it, and the events that the request came to."""

    folded: Folded
    events: Sequence[Event] = ()
    claimed_s: float | None = None
    """If the request claimed the run: the awake clock's reading before it was sent."""


class Claims:
    """Every claim of this process goes through here. A claim without a reply is dropped."""

    def __init__(self, leases: Leases, journal: Journal, clock: Clock, ids: Ids, observe: Observer) -> None:
        self._leases, self._journal, self._observe, self._clock = leases, journal, observe, clock
        self.dropped = Dropped(journal, clock, ids)

    def holder_view(self, folded: Folded, held: Held | None = None) -> HolderView:
        """Who holds the run, now. What this process dropped, it does not hold."""
        asker, now_us = self._leases.owner, self._clock.now_us()
        holder = held.holder if held is not None else folded.holder
        if holder is None:
            return HolderView(None, False, asker, now_us)
        return HolderView(owner_label(holder.owner), self.is_alive(folded.run.id, holder), asker, now_us)

    def is_at_work(self, folded: Folded) -> bool:
        """Whether a live process holds the run."""
        return folded.run.status is RunStatus.RUNNING and self.holder_view(folded).is_alive

    def is_alive(self, run_id: str, holder: Holder) -> bool:
        """Whether the holder is alive, and has not dropped the run."""
        return holder.is_alive and Lease(run_id, holder.owner, holder.token) not in self.dropped

    async def create(self, run_id: str, creation: Awaitable[Folded]) -> Reply:
        """Create a run that is claimed from its first moment."""
        lease, claimed_s = Lease(run_id, self._leases.owner, 1), self._clock.awake_s()
        may_exist = self.dropped.take_back(lease)
        try:
            folded = await creation
        except (OnwardError, asyncio.CancelledError) as error:
            if may_exist or not isinstance(error, Refused):
                self.dropped.drop(lease, error)
            raise
        return Reply(folded, claimed_s=None if folded.is_repeat else claimed_s)

    async def request_observed(
        self,
        run_id: str,
        decide: Decide,
        *,
        append_id: str,
        blobs: Mapping[str, bytes] | None = None,
        terms: RequestTerms = NO_TERMS,
    ) -> Reply:
        """Make a request, and show its events to the observers of this process."""
        reply = await self.request(run_id, decide, append_id=append_id, blobs=blobs, terms=terms)
        if not reply.folded.is_repeat:
            self._observe(reply.folded.run, reply.events)
        return reply

    async def request(
        self,
        run_id: str,
        decide: Decide,
        *,
        append_id: str,
        blobs: Mapping[str, bytes] | None = None,
        terms: RequestTerms = NO_TERMS,
    ) -> Reply:
        """Let `decide` see the run and who holds it, and write what it returns. A refusal changes nothing."""
        claimed_s, request = self._clock.awake_s(), _Request(self, decide)
        try:
            folded = await self._journal.control(
                run_id, request.decided, append_id=append_id, blobs=blobs, terms=terms
            )
        except (StoreError, asyncio.CancelledError) as error:
            if request.lease is not None:
                self.dropped.drop(request.lease, error)
            raise
        if folded.is_repeat:
            return Reply(folded)
        return Reply(folded, request.events, None if request.lease is None else claimed_s)


@dataclass(slots=True)
class _Request:
    """One request: what it came to, and the lease that it claims, if it keeps the run."""

    claims: Claims
    decide: Decide
    events: Sequence[Event] = ()
    lease: Lease | None = None

    def decided(self, current: Folded, held: Held) -> Sequence[Event]:
        self.lease = None
        self.events = self.decide(current.run, self.claims.holder_view(current, held))
        last = self.events[-1] if self.events else None
        if isinstance(last, RunClaimed):
            self.lease = Lease(current.run.id, last.worker, last.token)
            self.claims.dropped.take_back(self.lease)
        return self.events
