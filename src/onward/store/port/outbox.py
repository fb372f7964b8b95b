"""The outbox: what is to be told outside, written with the append that causes it, and what became of it.

A subscriber is whoever wants notifications, and says which kinds. Every process that appends writes a row
for each subscriber, so it does not matter which process created or executes a run, or stopped it. A
subscription ends by itself when nobody renews it: without receivers the table does not grow.

Delivering is at least once. A claim counts as a try and is good for some time; then the row is due again. Its
token is the fence: what came of an older claim is not recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from onward.model.notification import DeliveryState, NotificationKind
from onward.model.run import Frozen
from onward.model.values.bounds import LISTED
from onward.store.port.cursor import read_cursor, write_cursor


class Delivery(Frozen, frozen=True, kw_only=True):
    """A notification on its way to a subscriber.

    `token` counts its claims, `tries` those since it was last asked for. `response` is the HTTP status, or
    the exit code of a command; `error` says why the last try failed.
    """

    id: str
    subscriber: str
    run_id: str
    seq: int
    kind: NotificationKind
    body: str
    created_at_us: int
    state: DeliveryState
    token: int
    tries: int
    due_at_us: int | None = None
    tried_at_us: int | None = None
    delivered_at_us: int | None = None
    response: int | None = None
    error: str = ""


class Attempted(NamedTuple):
    """What came of a try. With `wait_us` it is made again after that time."""

    state: DeliveryState
    response: int | None = None
    error: str = ""
    wait_us: int | None = None


class DeliveryPlace(NamedTuple):
    """A place in the list of notifications: nothing that happens to one changes it."""

    created_at_us: int
    id: str
    subscriber: str


class DeliveryQuery(msgspec.Struct, frozen=True):
    """Which notifications to list, newest first; `after` the one that a cursor names."""

    run_id: str | None = None
    state: DeliveryState | None = None
    after: str | None = None
    limit: int = 50

    def __post_init__(self) -> None:
        LISTED.check(self.limit, "limit")
        if self.after is not None:
            read_cursor(self.after, DeliveryPlace)

    @property
    def place(self) -> DeliveryPlace | None:
        """The place of the notification that the list continues after."""
        return None if self.after is None else read_cursor(self.after, DeliveryPlace)


def delivery_cursor(delivery: Delivery) -> str:
    """Where a list that continues after this notification begins."""
    return write_cursor(DeliveryPlace(delivery.created_at_us, delivery.id, delivery.subscriber))


class Outbox(Protocol):
    """Notifications on their way. Times are the database's, but for when a notification was created."""

    async def subscribe(
        self, subscriber: str, kinds: Sequence[NotificationKind], *, for_us: int, renew_us: int = 0
    ) -> None:
        """Want notifications of these kinds from now on, for this long.

        Nothing is written if the subscriber wants the same already, and for longer than `renew_us`.
        """
        ...

    async def claim(self, subscriber: str, *, limit: int, lease_us: int) -> Sequence[Delivery]:
        """Begin a try of what is due, oldest first; nobody else gets it until the lease is over."""
        ...

    async def record(self, claimed: Delivery, attempted: Attempted) -> None:
        """Store what came of a claimed try, if no newer one has begun."""
        ...

    async def waiting(self, subscriber: str) -> int:
        """How many notifications are still to be delivered."""
        ...

    async def read(self, query: DeliveryQuery) -> Sequence[Delivery]:
        """Notifications, newest first."""
        ...

    async def retry(self, id: str) -> Sequence[Delivery]:
        """Let a notification be due now, with no tries so far, whatever became of it; returns it for each
        subscriber that has it."""
        ...
