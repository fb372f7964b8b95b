"""Holding on to leases: one heartbeat for all runs that this process drives.

A worker trusts its lease only until a deadline counted from *before* the renewal was sent, on a clock
that includes sleep; after it no effect is started, even if the database cannot be asked. Renewal also
returns each run's head, which is how a holder inside a long call learns that somebody wants something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from onward.clock import Clock
from onward.errors import LeaseLost, StoreError, StoreGone
from onward.store.port import Lease, Leases

MARGIN = 0.1


@dataclass(slots=True)
class Hold:
    """One lease being held: until when it can be trusted, and whom to tell of news."""

    lease: Lease
    deadline_s: float | None
    on_head: Callable[[int], None]
    on_lost: Callable[[], None]
    is_lost: bool = False
    error: BaseException | None = None

    @property
    def loss(self) -> BaseException:
        """What to raise when it is lost: that somebody else has it, or what the heartbeat died of."""
        return self.error or LeaseLost(self.lease.run_id, self.lease.token)


class LeaseKeeper:
    """Renews exactly the leases that are being driven, as long as they are."""

    def __init__(self, leases: Leases, clock: Clock) -> None:
        self._leases, self._clock = leases, clock
        self._holds: dict[Lease, Hold] = {}
        self._beat: asyncio.Task[None] | None = None

    def hold(
        self, lease: Lease, *, claimed_s: float, on_head: Callable[[int], None], on_lost: Callable[[], None]
    ) -> Hold:
        """Begin to hold on. `claimed_s` is the awake clock's reading before the claim was sent."""
        hold = Hold(lease, self._deadline_s(claimed_s), on_head, on_lost)
        self._holds[lease] = hold
        if self._beat is None:
            self._beat = asyncio.create_task(self._keep())
            self._beat.add_done_callback(self._beat_ended)
        return hold

    def release(self, hold: Hold) -> None:
        """Stop holding on."""
        self._holds.pop(hold.lease, None)
        if not self._holds and self._beat is not None:
            self._beat.cancel()
            self._beat = None

    def is_trusted(self, hold: Hold) -> bool:
        """Whether an effect may start under this lease, as far as this process can know by itself."""
        return not hold.is_lost and (hold.deadline_s is None or self._clock.awake_s() < hold.deadline_s)

    async def regain(self, hold: Hold) -> None:
        """After a deadline went by, as when a laptop slept: the store says whether it is ours still."""
        if not hold.is_lost:
            asked_s = self._clock.awake_s()
            heads = await self._leases.renew([hold.lease])
            self._renewed(hold, heads.get(hold.lease.run_id), asked_s)
        if not self.is_trusted(hold):
            raise hold.loss

    def _deadline_s(self, asked_s: float) -> float | None:
        lease_s = self._leases.lease_s
        return None if lease_s is None else asked_s + lease_s * (1 - MARGIN)

    async def _keep(self) -> None:
        never = asyncio.Event()
        while True:
            await self._clock.wait_s(self._leases.heartbeat_s, never)
            asked_s = self._clock.awake_s()
            holds = list(self._holds.values())
            try:
                heads = await self._leases.renew([hold.lease for hold in holds])
            except StoreGone:
                raise
            except StoreError:
                # Out of reach: what is trusted runs out by itself, and effects stop then.
                self._tell_expired(holds)
                continue
            for hold in holds:
                self._renewed(hold, heads.get(hold.lease.run_id), asked_s)

    def _beat_ended(self, beat: asyncio.Task[None]) -> None:
        """A heartbeat ends when nothing is held; if it dies of a defect, what it held is lost."""
        error = None if beat.cancelled() else beat.exception()
        if error is None:
            return
        self._beat = None
        for hold in tuple(self._holds.values()):
            hold.error = error
            self._lose(hold)

    def _lose(self, hold: Hold) -> None:
        hold.is_lost = True
        hold.on_lost()

    def _renewed(self, hold: Hold, head: int | None, asked_s: float) -> None:
        if self._holds.get(hold.lease) is not hold:
            return  # released while the renewal was under way
        if head is None:
            self._lose(hold)
            return
        hold.deadline_s = self._deadline_s(asked_s)
        hold.on_head(head)

    def _tell_expired(self, holds: list[Hold]) -> None:
        now_s = self._clock.awake_s()
        for hold in holds:
            if hold.deadline_s is not None and now_s >= hold.deadline_s:
                self._lose(hold)
