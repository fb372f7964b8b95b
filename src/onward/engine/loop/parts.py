"""The parts of the engine that executing a run needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from onward.clock import Clock, Dice
from onward.engine.calls.waiting import WaitingCalls
from onward.engine.files.receipts import StepReceipts
from onward.engine.files.workspaces import Workspaces
from onward.engine.lease.keeper import LeaseKeeper
from onward.engine.log.journal import Journal
from onward.engine.messages.flusher import Flusher
from onward.engine.step.effects import AtMostOnce
from onward.engine.step.rooms import Rooms
from onward.handlers.port import Handler
from onward.handlers.room import ShowLine
from onward.model.call import LimitHit
from onward.model.events import Event
from onward.model.run import Run
from onward.redact.redactor import NOTHING_SECRET, Redactor
from onward.store.port.limits import Warned
from onward.store.port.retention import Blobs

Observer = Callable[[Run, Sequence[Event]], None]


def _no_warnings(run_id: str) -> Sequence[Warned]:
    return ()


async def _no_room(hits: Sequence[LimitHit]) -> bool:
    return False


class EngineParts(msgspec.Struct, frozen=True):
    """What the run loops of one engine share."""

    journal: Journal
    keeper: LeaseKeeper
    clock: Clock
    dice: Dice
    handlers: Mapping[str, Handler]
    observe: Observer
    rooms: Rooms
    workspaces: Workspaces
    cancel_child: Callable[[str], Awaitable[None]]
    """Cancel a run that a step of this run managed."""
    effects: AtMostOnce
    blobs: Blobs
    flusher: Flusher
    sweep: Callable[[], Awaitable[object]]
    """Look for runs whose holder died."""
    waiting: WaitingCalls
    receipts: StepReceipts | None = None
    show: ShowLine | None = None
    """Who is shown what steps print."""
    redactor: Redactor = NOTHING_SECRET
    take_warnings: Callable[[str], Sequence[Warned]] = _no_warnings
    """The limits that the calls of a run have nearly spent, since this was last asked."""
    has_room: Callable[[Sequence[LimitHit]], Awaitable[bool]] = _no_room
    """Whether what a limit refused would fit now, because it was raised since."""
