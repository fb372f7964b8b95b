"""Keeping leases: one heartbeat and one alarm for all runs that this process executes.

A process trusts a lease until a deadline counted from *before* the renewal was sent, on a clock that
includes sleep. The alarm rings at that deadline whatever became of the renewal: it may have failed, or hang
in a network that swallows packets. Then the attempts end, before another worker can claim the run:

    renewed |------------- trusted ---------------|-- attempts end --|- margin -|
            0                                  0.8 lease          0.9 lease   1.0 lease: claimable

Commands are terminated when the alarm rings. Their supervisors hold the second deadline themselves and kill
what is left, also when this process is frozen. Code inside this process that wakes from a freeze may run a
few more instructions; it starts no step and no command.

When the database answers again, it decides: if the lease is still ours, the attempt is recorded as
interrupted and the run continues here. Renewal also returns each run's head, which is how a holder inside a
long step learns of requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from onward.clock import Alarm, Clock, Deadline
from onward.engine.persist import retry_store
from onward.errors import LeaseLost, StoreError, StoreGone, StoreUnavailable
from onward.store.port.leases import Lease, Leases

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
        never, wait_s = asyncio.Event(), self._leases.heartbeat_s
        while True:
            await self._clock.wait_s(wait_s, never)
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
                f"the database did not answer within {limit_s:.1f} s; "
                "resume the run when it can be reached again."
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
