"""The outbox in PostgreSQL: a claim is one statement, and passes over what others are about to take."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import astuple

from onward.model.notification import Notification, NotificationKind, kinds_text
from onward.store import outgoing
from onward.store.port.outbox import Attempted, Delivery, DeliveryQuery
from onward.store.port.stored import Position
from onward.store.postgres.link.binary import byteas, numbers, texts
from onward.store.postgres.link.pool import Pool
from onward.store.postgres.link.wire import Rows
from onward.store.postgres.statements import PLANNED, Call, call, filtered_call


class PostgresOutbox:
    """The notifications of one PostgreSQL database."""

    def __init__(
        self, connections: Pool, now_us: Callable[[], int | None], on_subscribed: Callable[[], None]
    ) -> None:
        self._connections, self._now_us, self._on_subscribed = connections, now_us, on_subscribed

    async def subscribe(
        self, subscriber: str, kinds: Sequence[NotificationKind], *, for_us: int, renew_us: int = 0
    ) -> None:
        self._on_subscribed()
        wanted, now_us = kinds_text(kinds), self._now_us()
        found = await self._ask(call("subscriber_get", subscriber=subscriber, now_us=now_us))
        if found and found[0][0] == wanted and found[0][1] > renew_us:
            return
        await self._ask(
            call("subscriber_put", subscriber=subscriber, kinds=wanted, for_us=for_us, now_us=now_us)
        )

    async def claim(self, subscriber: str, *, limit: int, lease_us: int) -> Sequence[Delivery]:
        claim = call(
            "outbox_claim", subscriber=subscriber, limit=limit, lease_us=lease_us, now_us=self._now_us()
        )
        return outgoing.in_order([outgoing.delivery_of(columns) for columns in await self._ask(claim)])

    async def record(self, claimed: Delivery, attempted: Attempted) -> None:
        values = outgoing.record_parameters(claimed, attempted)
        await self._ask(call("outbox_record", now_us=self._now_us(), **values))

    async def waiting(self, subscriber: str) -> int:
        ((number,),) = await self._ask(call("outbox_waiting", subscriber=subscriber))
        return int(number)

    async def read(self, query: DeliveryQuery) -> Sequence[Delivery]:
        asked = filtered_call("outbox_list", outgoing.delivery_filters(query))
        _, found = await self._connections.use(lambda wire: wire.run(PLANNED, asked))
        return [outgoing.delivery_of(columns) for columns in found]

    async def retry(self, id: str) -> Sequence[Delivery]:
        found = await self._ask(call("outbox_retry", id=id, now_us=self._now_us()))
        return outgoing.in_order([outgoing.delivery_of(columns) for columns in found])

    async def _ask(self, asked: Call) -> Rows:
        (found,) = await self._connections.use(lambda wire: wire.run(asked))
        return found


def notification_calls(told: Sequence[tuple[Notification, Position]], now_us: int | None) -> Sequence[Call]:
    """Stores what is to be told for every subscriber that wants it, if its run's log ends where it says."""
    if not told:
        return ()
    ids, run_ids, seqs, kinds, times, bodies = zip(*(astuple(one) for one, _ in told), strict=True)
    return [
        call(
            "outbox_put",
            id=texts(ids),
            run_id=texts(run_ids),
            seq=numbers(seqs),
            kind=texts([kind.value for kind in kinds]),
            at_us=numbers(times),
            body=texts(bodies),
            head=numbers([head.seq for _, head in told]),
            hash=byteas([head.hash for _, head in told]),
            now_us=now_us,
        )
    ]
