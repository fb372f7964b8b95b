"""What recorded calls need of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from onward.clock import Clock, Dice
from onward.engine.calls.waiting import WaitingCalls
from onward.engine.lease.keeper import Hold, LeaseKeeper
from onward.engine.log.appender import Appender
from onward.engine.log.journal import Journal
from onward.engine.messages.flusher import Flusher
from onward.engine.step.effects import AtMostOnce
from onward.store.port.retention import Blobs


class CallParts(msgspec.Struct, frozen=True):
    """What the calls of one held run need."""

    appender: Appender
    journal: Journal
    blobs: Blobs
    effects: AtMostOnce
    keeper: LeaseKeeper
    hold: Hold
    clock: Clock
    dice: Dice
    loop: asyncio.AbstractEventLoop
    flusher: Flusher
    sweep: Callable[[], Awaitable[object]]
    """Looks for runs whose holder died, which settles what their calls had reserved."""
    waiting: WaitingCalls

    async def trust(self) -> None:
        """Make sure of the lease: after its deadline, the database decides before anything is done."""
        if not self.keeper.is_trusted(self.hold):
            await self.keeper.regain(self.hold)
