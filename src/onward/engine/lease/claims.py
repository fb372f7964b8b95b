"""Requests to runs, and the claims among them, decided under the run's lock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from onward.clock import Clock, Ids
from onward.engine.lease.release import Dropped
from onward.engine.log.journal import Journal
from onward.engine.log.reader import Folded
from onward.engine.log.terms import NO_TERMS, RequestTerms
from onward.engine.loop.parts import Observer
from onward.errors import Refused, StoreError
from onward.machine.decide.calls import with_lost_calls
from onward.machine.decide.requests import Decide, HolderView
from onward.model.events import Event, RunClaimed
from onward.model.run import Frozen, RunStatus
from onward.store.owner import owner_label
from onward.store.port.leases import Holder, Lease, Leases


class Reply(Frozen, frozen=True):
    """A run as a request left it, and the events that the request wrote."""

    folded: Folded
    events: Sequence[Event] = ()
    claimed_s: float | None = None
    """If the request claimed the run: the awake clock's reading before it was sent."""

    @property
    def lease(self) -> Lease | None:
        """What the request claimed, if it did."""
        return None if self.claimed_s is None else self.folded.lease


class Claims:
    """Makes every claim of this process. One whose reply is lost is dropped."""

    def __init__(self, leases: Leases, journal: Journal, clock: Clock, ids: Ids, observe: Observer) -> None:
        self._leases, self._journal, self._observe = leases, journal, observe
        self._clock, self._ids = clock, ids
        self.dropped = Dropped(journal, clock, ids)

    def holder_view(self, folded: Folded | None = None) -> HolderView:
        """Who holds the run now; without one, a new run. This process does not hold what it dropped."""
        asker, now_us = self._leases.owner, self._clock.now_us()
        if folded is None or folded.holder is None:
            return HolderView(None, False, asker, now_us)
        is_alive = self.is_alive(folded.run.id, folded.holder)
        return HolderView(owner_label(folded.holder.owner), is_alive, asker, now_us)

    def is_at_work(self, folded: Folded) -> bool:
        """Whether a live process holds the run."""
        return folded.run.status is RunStatus.RUNNING and self.holder_view(folded).is_alive

    def is_alive(self, run_id: str, holder: Holder) -> bool:
        """Whether the holder is alive, and has not dropped the run."""
        return holder.is_alive and Lease(run_id, holder.owner, holder.token) not in self.dropped

    async def create(self, run_id: str, creation: Awaitable[Folded], events: Sequence[Event]) -> Reply:
        """Create a run with `events`, which claim it; they are shown to the observers of this process."""
        lease, claimed_s = Lease(run_id, self._leases.owner, 1), self._clock.awake_s()
        may_exist = self.dropped.keep(lease)
        try:
            folded = await creation
            if folded.is_repeat:
                return Reply(folded)
            may_exist = True
            self._observe(folded.run, events)
        except (Exception, asyncio.CancelledError) as error:
            if may_exist or not isinstance(error, Refused):
                self.dropped.drop(lease, error)
            raise
        return Reply(folded, events, claimed_s)

    @contextmanager
    def dropping(self, lease: Lease | None) -> Iterator[None]:
        """Drop the lease if the block fails: this process would hold a run that it does not execute."""
        try:
            yield
        except (Exception, asyncio.CancelledError) as error:
            if lease is not None:
                self.dropped.drop(lease, error)
            raise

    async def request_observed(
        self,
        run_id: str,
        decide: Decide,
        *,
        blobs: Mapping[str, bytes] | None = None,
        terms: RequestTerms = NO_TERMS,
        known: Folded | None = None,
    ) -> Reply:
        """Make a request, and show its events to the observers of this process."""
        reply = await self.request(run_id, decide, blobs=blobs, terms=terms, known=known)
        if not reply.folded.is_repeat:
            with self.dropping(reply.lease):
                self._observe(reply.folded.run, reply.events)
        return reply

    async def request(
        self,
        run_id: str,
        decide: Decide,
        *,
        blobs: Mapping[str, bytes] | None = None,
        terms: RequestTerms = NO_TERMS,
        known: Folded | None = None,
    ) -> Reply:
        """Let `decide` see the run and who holds it, and write what it returns. A refusal changes nothing.

        A caller that has read the run passes it as `known`, so that it is not read again.
        """
        claimed_s, request = self._clock.awake_s(), _Request(self, decide)
        try:
            append_id = terms.key or self._ids.unique()
            folded = await self._journal.control(
                run_id, request.decided, append_id=append_id, blobs=blobs, terms=terms, known=known
            )
        except (StoreError, asyncio.CancelledError) as error:
            if request.lease is not None:
                self.dropped.drop(request.lease, error)
            raise
        if folded.is_repeat:
            return Reply(folded)
        return Reply(folded, request.events, None if request.lease is None else claimed_s)


class _Request(msgspec.Struct):
    """One request: the events that were decided, and the lease that they claim, if they do."""

    claims: Claims
    decide: Decide
    events: Sequence[Event] = ()
    lease: Lease | None = None

    def decided(self, current: Folded) -> Sequence[Event]:
        self.lease = None
        decided = self.decide(current.run, self.claims.holder_view(current))
        self.events = with_lost_calls(current.run, decided)
        last = self.events[-1] if self.events else None
        if isinstance(last, RunClaimed):
            self.lease = Lease(current.run.id, last.worker, last.token)
            self.claims.dropped.keep(self.lease)
        return self.events
