"""Requests to runs, and the claims among them, decided under the run's lock; and releases.

If a run loop ends by an error or is cancelled, this process still holds the run and is alive, so no other
process would take it over. It therefore notes what it dropped, no longer counts as the holder, and tries to
release the run until that succeeds, or until it closes. Only liveness depends on this: a dropped lease is
not renewed, so it expires where leases do, and ends with the process everywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import msgspec

from onward.clock import Clock, Ids
from onward.engine.appender import Observer
from onward.engine.journal import Journal
from onward.engine.log import NO_TERMS, Folded, RequestTerms
from onward.errors import OnwardError, Refused, RunNotFound, StoreError, StoreGone
from onward.machine.decide.calls import with_lost_calls
from onward.machine.decide.owner_loss import decide_release
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


PAUSE_S_FIRST, PAUSE_S_MAX = 0.5, 30.0
SAID_MAX = 300
RELEASED_MAX = 1_000


class Dropped:
    """The leases of this process under which it executes nothing: still to be released, or released.

    Those that were released stay known for a while, because an older fold may still name them.
    """

    def __init__(self, journal: Journal, clock: Clock, ids: Ids) -> None:
        self._journal, self._clock, self._ids = journal, clock, ids
        self._leases: set[Lease] = set()
        self._released: dict[Lease, None] = {}
        self._releasing: dict[Lease, asyncio.Task[None]] = {}
        self._is_last = asyncio.Event()

    def __contains__(self, lease: Lease) -> bool:
        return lease in self._leases or lease in self._released

    def is_pending(self, lease: Lease) -> bool:
        """Whether it is still to be released."""
        return lease in self._leases

    def drop(self, lease: Lease, error: BaseException | None = None) -> None:
        """No longer count as the holder, and release the run in the background. `error` is why."""
        self.keep(lease)
        self._leases.add(lease)
        if not self._releasing:  # an app may live through several event loops, one after the other
            self._is_last = asyncio.Event()
        self._releasing[lease] = releasing = asyncio.create_task(
            self._release_until_done(lease, _short(error))
        )
        releasing.add_done_callback(lambda _: self._forget(lease, releasing))

    def keep(self, lease: Lease) -> bool:
        """Keep this lease after all: a dropped claim that was never written is repeated with its token."""
        was_dropped = lease in self._leases
        self._leases.discard(lease)
        if lease in self._releasing:
            self._releasing.pop(lease).cancel()
        return was_dropped

    async def settle(self) -> None:
        """Try a last time to release what is left, and stop trying."""
        self._is_last.set()
        await asyncio.gather(*self._releasing.values(), return_exceptions=True)
        self._is_last.clear()

    async def _release_until_done(self, lease: Lease, error: str) -> None:
        pause_s = PAUSE_S_FIRST
        while not await self._try_release(lease, error) and not self._is_last.is_set():
            await self._clock.wait_s(pause_s, self._is_last)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _try_release(self, lease: Lease, error: str) -> bool:
        """Whether no other try is needed: the run is released, or it can never be."""
        try:
            await self._journal.control(
                lease.run_id,
                partial(self._release, lease, error),
                append_id=self._ids.unique(),
            )
        except StoreGone:
            return True  # this process cannot reach this database again
        except RunNotFound:
            pass  # the claim was never written, or the run was deleted
        except OnwardError:
            return False
        else:
            self._note_released(lease)
        self._leases.discard(lease)
        return True

    def _release(self, lease: Lease, error: str, current: Folded) -> Sequence[Event]:
        return decide_release(
            current.run, owner=lease.owner, token=lease.token, now_us=self._clock.now_us(), error=error
        )

    def _note_released(self, lease: Lease) -> None:
        if len(self._released) >= RELEASED_MAX:
            del self._released[next(iter(self._released))]
        self._released[lease] = None

    def _forget(self, lease: Lease, releasing: asyncio.Task[None]) -> None:
        if self._releasing.get(lease) is releasing:
            del self._releasing[lease]


def _short(error: BaseException | None) -> str:
    """An error as a short part of a sentence; empty for a cancelled task."""
    if error is None or isinstance(error, asyncio.CancelledError):
        return ""
    return (str(error) or type(error).__name__)[:SAID_MAX].rstrip(".")
