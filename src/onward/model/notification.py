"""What people and programs outside are told of a run, and what becomes of telling them.

The body of a notification is a closed schema: `Facts`, as JSON. It is written with the events that cause
it, so it says how the run stood then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

import msgspec
from blake3 import blake3

from onward.model.events.gates import Choice
from onward.model.run import Frozen

FACTS_VERSION = 1
ID_BYTES = 16


class NotificationKind(StrEnum):
    """What happened: a gate was opened, a run stopped and can continue or not, or it ended for good."""

    GATE = "gate"
    STOPPED = "stopped"
    FINISHED = "finished"


class DeliveryState(StrEnum):
    """Whether a notification is still to be delivered, is delivered, or was given up."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    FAILED = "failed"


class Notification(Frozen, frozen=True, kw_only=True):
    """Something to tell, caused by event `seq` of a run. `body` is JSON. The id is the same however often
    it is delivered, so a receiver can leave out what it has had."""

    id: str
    run_id: str
    seq: int
    kind: NotificationKind
    at_us: int
    body: str


Telling = Callable[[], Iterable[Notification]]
"""Makes notifications, for a store that has somebody to tell: often nobody has subscribed."""


class GateFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question: its choices, what it is about, and until when it is open."""

    gate: str
    node: str
    type: str
    text: str
    about: str
    choices: tuple[Choice, ...]
    deadline: str | None


class Facts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of a notification. `next` is the command to type next, if there is one."""

    version: int = FACTS_VERSION
    id: str
    event: NotificationKind
    at: str
    run: str
    display_id: str
    pipeline: str
    status: str
    reason: str
    detail: str
    recoverable: bool
    seq: int
    gate: GateFacts | None
    next: str | None


def notification_id(run_id: str, seq: int, subject: str) -> str:
    """The id of what event `seq` tells of `subject`: in every process and at every delivery the same."""
    return blake3(f"{run_id}|{seq}|{subject}".encode()).hexdigest(ID_BYTES)


def kinds_text(kinds: Sequence[NotificationKind]) -> str:
    """Kinds as a column has them, each between two blanks."""
    return f" {' '.join(kind.value for kind in NotificationKind if kind in kinds)} "
