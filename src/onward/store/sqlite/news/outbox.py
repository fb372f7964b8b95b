"""The outbox in SQLite: a claim is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import apsw

from onward.model.notification import NotificationKind, Telling, kinds_text
from onward.store import outgoing
from onward.store.filters import filtered
from onward.store.port.outbox import Attempted, Delivery, DeliveryQuery
from onward.store.sqlite.file.transaction import Transactions
from onward.store.sqlite.reading import one
from onward.store.sqlite.statements import QUERIES


class SqliteOutbox:
    """The notifications of one SQLite file."""

    def __init__(self, database: Transactions, now_us: Callable[[], int | None]) -> None:
        self._database, self._now_us = database, now_us

    async def subscribe(
        self, subscriber: str, kinds: Sequence[NotificationKind], *, for_us: int, renew_us: int = 0
    ) -> None:
        wanted = kinds_text(kinds)
        asked = {"subscriber": subscriber, "now_us": self._now_us()}
        found = await self._database.look(lambda db: one(db, "subscriber_get", **asked))
        if found is not None and found[0] == wanted and found[1] > renew_us:
            return
        values = asked | {"kinds": wanted, "for_us": for_us}
        await self._database.transact(lambda db: db.execute(QUERIES["subscriber_put"], values))

    async def claim(self, subscriber: str, *, limit: int, lease_us: int) -> Sequence[Delivery]:
        values = {"subscriber": subscriber, "limit": limit, "now_us": self._now_us()}
        # Nearly always nothing is due, and looking locks nobody out.
        if await self._database.look(lambda db: one(db, "outbox_due", **values)) is None:
            return ()
        values["lease_us"] = lease_us
        return outgoing.in_order(await self._database.transact(lambda db: _read(db, "outbox_claim", values)))

    async def record(self, claimed: Delivery, attempted: Attempted) -> None:
        values = outgoing.record_parameters(claimed, attempted) | {"now_us": self._now_us()}
        await self._database.transact(lambda db: db.execute(QUERIES["outbox_record"], values))

    async def waiting(self, subscriber: str) -> int:
        found = await self._database.look(lambda db: one(db, "outbox_waiting", subscriber=subscriber))
        return 0 if found is None else int(found[0])

    async def read(self, query: DeliveryQuery) -> Sequence[Delivery]:
        filters = outgoing.delivery_filters(query)
        text = filtered(QUERIES["outbox_list"], filters)
        return await self._database.look(
            lambda db: [outgoing.delivery_of(columns) for columns in db.execute(text, filters)]
        )

    async def retry(self, id: str) -> Sequence[Delivery]:
        values = {"id": id, "now_us": self._now_us()}
        return outgoing.in_order(await self._database.transact(lambda db: _read(db, "outbox_retry", values)))


def _read(db: apsw.Connection, name: str, values: dict[str, Any]) -> Sequence[Delivery]:
    return [outgoing.delivery_of(columns) for columns in db.execute(QUERIES[name], values)]


def put_notifications(db: apsw.Connection, telling: Sequence[Telling], now_us: int | None) -> None:
    """Store what is to be told, for every subscriber that wants it."""
    if not telling or one(db, "subscriber_any", now_us=now_us) is None:  # often there is nobody
        return
    for notification in chain.from_iterable(tell() for tell in telling):
        db.execute(QUERIES["outbox_put"], outgoing.put_parameters(notification) | {"now_us": now_us})
