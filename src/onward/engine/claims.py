"""Who holds a run: requests and claims decided under the run's lock, leases renewed, runs released.

**Claiming.** Every request to a run, and every claim among them, is decided under the run's lock.

**Keeping.** There is one heartbeat and one alarm for all runs that this process executes. A process trusts a
lease until a deadline counted from *before* the renewal was sent, on a clock that includes sleep. The alarm
rings at that deadline whatever became of the renewal: it may have failed, or hang in a network that swallows
packets. Then the attempts end, before another worker can claim the run:

    renewed |------------- trusted ---------------|-- attempts end --|- margin -|
            0                                  0.8 lease          0.9 lease   1.0 lease: claimable

Commands are terminated when the alarm rings. Their supervisors hold the second deadline themselves and kill
what is left, also when this process is frozen. Code inside this process that wakes from a freeze may run a
few more instructions; it starts no step and no command.

When the database answers again, it decides: if the lease is still ours, the attempt is recorded as
interrupted and the run continues here. Renewal also returns each run's head, which is how a holder inside a
long step learns of requests.

**Releasing.** If a run loop ends by an error or is cancelled, this process still holds the run and is alive,
so no other process would take it over. It therefore notes what it dropped, no longer counts as the holder,
and tries to release the run until that succeeds, or until it closes. Only liveness depends on this: a dropped
lease is not renewed, so it expires where leases do, and ends with the process everywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import msgspec

from onward.clock import Alarm, Clock, Deadline, Ids
from onward.engine.journal import DecideRun, Journal
from onward.engine.log import NO_TERMS, Folded, RequestTerms
from onward.engine.persist import retry_store
from onward.errors import (
    LeaseLost,
    OnwardError,
    Refused,
    RunNotFound,
    StoreError,
    StoreGone,
    StoreUnavailable,
    said,
)
from onward.machine.decide.calls import with_lost_calls
from onward.machine.decide.owner_loss import decide_release
from onward.machine.decide.requests import Decide, HolderView
from onward.model.events import Event, RunClaimed
from onward.model.run import Frozen, Run, RunStatus
from onward.store.owner import owner_label
from onward.store.port.leases import Holder, Lease, Leases

Observer = Callable[[Run, Sequence[Event]], None]
"""Hears what this process wrote about a run."""


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

    def drop(self, lease: Lease, error: BaseException | None = None, *, is_unbegun: bool = False) -> None:
        """No longer count as the holder, and release the run in the background. `error` is why.

        `is_unbegun`: the run was taken from the queue, and nothing of it was executed.
        """
        self.keep(lease)
        self._leases.add(lease)
        if not self._releasing:  # an app may live through several event loops, one after the other
            self._is_last = asyncio.Event()
        self._releasing[lease] = releasing = asyncio.create_task(
            self._release_until_done(lease, partial(self._release, lease, _short(error), is_unbegun))
        )
        releasing.add_done_callback(lambda _: self._forget(lease, releasing))

    def keep(self, lease: Lease) -> bool:
        """Keep this lease after all: a dropped claim that was never written is repeated with its token."""
        was_dropped = lease in self._leases
        self._leases.discard(lease)
        self._released.pop(lease, None)  # there was nothing to release, or its token would be in use
        if lease in self._releasing:
            self._releasing.pop(lease).cancel()
        return was_dropped

    async def settle(self) -> None:
        """Try a last time to release what is left, and stop trying."""
        self._is_last.set()
        await asyncio.gather(*self._releasing.values(), return_exceptions=True)
        self._is_last.clear()

    async def _release_until_done(self, lease: Lease, release: DecideRun) -> None:
        pause_s = PAUSE_S_FIRST
        while not await self._try_release(lease, release) and not self._is_last.is_set():
            await self._clock.wait_s(pause_s, self._is_last)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def _try_release(self, lease: Lease, release: DecideRun) -> bool:
        """Whether no other try is needed: the run is released, or it can never be."""
        try:
            await self._journal.control(lease.run_id, release, append_id=self._ids.unique())
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

    def _release(self, lease: Lease, error: str, is_unbegun: bool, current: Folded) -> Sequence[Event]:
        return decide_release(
            current.run,
            owner=lease.owner,
            token=lease.token,
            now_us=self._clock.now_us(),
            error=error,
            is_unbegun=is_unbegun,
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
    return (said(error) or type(error).__name__)[:SAID_MAX].rstrip(".")


TRUSTED, KILLED = 0.8, 0.9  # shares of the lease
SOONER = 0.25  # of a heartbeat: when to ask again after a failure
ANSWER_S_MIN = 1.0  # a renewal that takes longer than this, and than a heartbeat, is asked again


class LeaseHolder(Protocol):
    """Who holds a lease, and hears what becomes of it."""

    def head_is(self, head: int) -> None:
        """How far the run's log goes: past what the holder wrote if another process made a request."""
        ...

    def expired(self) -> None:
        """The lease may have expired: end the attempts; the database is asked before the next one starts."""
        ...

    def lost(self) -> None:
        """Another process may hold the run: nothing that is done here counts any more."""
        ...


class Hold(msgspec.Struct):
    """One lease that is kept: until when it is trusted, and who is told when something happens.

    Nothing of an attempt may run after `deadline`.
    """

    lease: Lease
    trusted_until_s: float | None
    deadline: Deadline
    holder: LeaseHolder
    is_lost: bool = False
    error: BaseException | None = msgspec.field(default=None)

    @property
    def loss(self) -> BaseException:
        """What to raise when it is lost: LeaseLost, or the error that ended the heartbeat."""
        return self.error or LeaseLost(self.lease.run_id, self.lease.token)


class _Nobody:
    """The holder of a lease that was released."""

    def head_is(self, head: int) -> None:
        pass

    def expired(self) -> None:
        pass

    def lost(self) -> None:
        pass


NOBODY = _Nobody()


class LeaseKeeper:
    """Renews the leases of the runs that are being executed, and no others."""

    def __init__(self, leases: Leases, clock: Clock) -> None:
        self._leases, self._clock = leases, clock
        self._holds: dict[Lease, Hold] = {}
        self._beat: asyncio.Task[None] | None = None
        self._alarm: Alarm | None = None

    def hold(self, lease: Lease, holder: LeaseHolder, *, claimed_s: float) -> Hold:
        """Begin to keep a lease. `claimed_s` is the awake clock's reading before the claim was sent."""
        trusted_until_s, kill_at_s = self._deadlines_s(claimed_s)
        hold = Hold(lease, trusted_until_s, Deadline(kill_at_s), holder)
        self._holds[lease] = hold
        if self._beat is None:
            self._beat = asyncio.create_task(self._keep())
            self._beat.add_done_callback(self._beat_ended)
        if trusted_until_s is not None and (self._alarm is None or trusted_until_s < self._alarm.at_s):
            self._set_alarm(trusted_until_s)
        return hold

    def release(self, hold: Hold) -> None:
        """Stop keeping the lease, and tell its holder nothing more."""
        self._holds.pop(hold.lease, None)
        # The run loop and its hold refer to each other: only the garbage collector could free them.
        hold.holder = NOBODY
        if self._holds:
            return
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def is_trusted(self, hold: Hold) -> bool:
        """Whether an attempt may start under this lease, as far as this process can know without asking."""
        until_s = hold.trusted_until_s
        return not hold.is_lost and (until_s is None or self._clock.awake_s() < until_s)

    async def regain(self, hold: Hold) -> None:
        """Ask whether the lease is still ours, after a deadline has passed in an outage or while asleep."""
        if not hold.is_lost:
            asked_s, heads = await retry_store(self._clock, lambda: self._ask([hold]))
            self._renewed(hold, heads.get(hold.lease.run_id), asked_s)
        if not self.is_trusted(hold):
            raise hold.loss

    def _deadlines_s(self, asked_s: float) -> tuple[float | None, float | None]:
        """Until when a lease is trusted, and after when nothing may run."""
        lease_s = self._leases.lease_s
        return (None, None) if lease_s is None else (asked_s + lease_s * TRUSTED, asked_s + lease_s * KILLED)

    # -- renewing ------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        news, wait_s = self._leases.news, self._leases.heartbeat_s
        while True:
            await self._clock.wait_s(wait_s, news)
            news.clear()
            holds = list(self._holds.values())
            try:
                asked_s, heads = await self._ask(holds)
            except StoreGone:
                raise
            except StoreError:  # out of reach: the alarm rings in any case
                wait_s = self._leases.heartbeat_s * SOONER
                continue
            wait_s = self._leases.heartbeat_s
            for hold in holds:
                self._renewed(hold, heads.get(hold.lease.run_id), asked_s)

    async def _ask(self, holds: Sequence[Hold]) -> tuple[float, Mapping[str, int]]:
        """Renew these; returns when that was asked, and the heads. A renewal that hangs is cancelled.

        The next one uses another connection, which may get through while the lease is still trusted.
        """
        asked_s, limit_s = self._clock.awake_s(), max(self._leases.heartbeat_s, ANSWER_S_MIN)
        renewal = asyncio.ensure_future(self._leases.renew([hold.lease for hold in holds]))
        too_late = self._clock.alarm(asked_s + limit_s, renewal.cancel)
        try:
            await asyncio.wait([renewal])
        finally:
            too_late.cancel()
            renewal.cancel()
        if renewal.cancelled():
            raise StoreUnavailable(
                f"the database did not answer within {limit_s:.1f} s; resume the run when the database can "
                "be reached again."
            )
        return asked_s, renewal.result()

    def _renewed(self, hold: Hold, head: int | None, asked_s: float) -> None:
        if self._holds.get(hold.lease) is not hold:
            return  # released while the renewal was under way
        if head is None:
            self._lose(hold)
            return
        hold.trusted_until_s, kill_at_s = self._deadlines_s(asked_s)
        hold.deadline.move(kill_at_s)
        if self._alarm is None and hold.trusted_until_s is not None:
            self._set_alarm(hold.trusted_until_s)
        hold.holder.head_is(head)

    def _beat_ended(self, beat: asyncio.Task[None]) -> None:
        """A heartbeat ends when nothing is held; if an error ends it, what it held is lost."""
        error = None if beat.cancelled() else beat.exception()
        if error is None:
            return
        self._beat = None
        for hold in tuple(self._holds.values()):
            hold.error = error
            self._lose(hold)

    def _lose(self, hold: Hold) -> None:
        hold.is_lost = True
        hold.holder.lost()

    # -- the alarm -----------------------------------------------------------------------------------

    def _set_alarm(self, at_s: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._clock.alarm(at_s, self._ring)

    def _ring(self) -> None:
        """Tell every holder whose deadline has passed; set the alarm for the others, which were renewed."""
        self._alarm = None
        now_s = self._clock.awake_s()
        until_s = [(hold, hold.trusted_until_s) for hold in self._holds.values()]
        for hold, at_s in until_s:
            if at_s is not None and at_s <= now_s and not hold.is_lost:
                hold.holder.expired()
        ahead = [at_s for _, at_s in until_s if at_s is not None and at_s > now_s]
        if ahead:
            self._set_alarm(min(ahead))
