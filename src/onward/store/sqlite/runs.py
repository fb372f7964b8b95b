"""What people see of runs in SQLite: lists, open questions, notifications, and numbers.

A claim of notifications is one transaction. Measuring is one read transaction on a connection of its own,
which may take its time.

The outbox is here and not with the messages, because the log stores notifications with its events, and
messages need the log's writer.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import apsw

from onward.clock import Clock
from onward.model.row import GateRow, NotificationKind, Telling, kinds_text
from onward.model.run import RunStatus
from onward.store import rows
from onward.store.port import runs as port
from onward.store.queries import filtered, gate_filters, newest, run_filters, run_query
from onward.store.rows import MEASURE_QUERIES, MeasureAnswers, measured
from onward.store.sqlite.connection import connect_fixed, is_fixed, translated
from onward.store.sqlite.leases import SqliteOwnership
from onward.store.sqlite.presence import dead_files, remove_unneeded
from onward.store.sqlite.statements import QUERIES, Columns, one
from onward.store.sqlite.transaction import Transactions
from onward.threads import in_thread

TIDY_EVERY_S = 60.0


class SqliteRuns:
    """The runs of one SQLite file, with their holders."""

    def __init__(self, database: Transactions, ownership: SqliteOwnership, clock: Clock) -> None:
        self._database, self._ownership, self._clock = database, ownership, clock
        self._tidied_s: float | None = None

    async def find(self, wanted: str) -> Sequence[port.Listed]:
        return await self._database.look(lambda db: self._find(db, wanted))

    def _find(self, db: apsw.Connection, wanted: str) -> list[port.Listed]:
        if one(db, "run_get", id=wanted, now_us=None) is not None:
            return [self._listed(columns) for columns in self._rows(db, [wanted])]
        ids = [row[0] for row in db.execute(QUERIES["run_by_display_id"], {"wanted": wanted})]
        if not ids and wanted:
            values = {"wanted": wanted, "above": wanted + "\U0010ffff"}
            ids = [row[0] for row in db.execute(QUERIES["run_by_prefix"], values)]
        return [self._listed(columns) for columns in self._rows(db, ids)]

    async def list(self, query: port.RunQuery) -> Sequence[port.Listed]:
        return await self._database.look(lambda db: self._list(db, query))

    def _list(self, db: apsw.Connection, query: port.RunQuery) -> Sequence[port.Listed]:
        now_us = self._ownership.now_us()
        found = [
            db.execute(
                filtered(QUERIES[run_query(filters)], filters), {**filters, "now_us": now_us}
            ).fetchall()
            for filters in run_filters(query)
        ]
        return rows.sound(newest(found, query.limit), self._listed)

    async def heads(self, ids: Collection[str]) -> Mapping[str, port.RunHead]:
        return await self._database.look(lambda db: self._heads(db, ids))

    def _heads(self, db: apsw.Connection, ids: Collection[str]) -> Mapping[str, port.RunHead]:
        values = {"ids": json.dumps(list(ids)), "now_us": self._ownership.now_us()}
        return rows.heads_of(db.execute(QUERIES["run_heads"], values), self._ownership.is_alive)

    async def changed(self, after: int, limit: int) -> port.Changes:
        return await self._database.look(lambda db: self._changed(db, after, limit))

    def _changed(self, db: apsw.Connection, after: int, limit: int) -> port.Changes:
        values = {"after": after, "limit": limit, "now_us": self._ownership.now_us()}
        found = db.execute(QUERIES["run_changed"], values).fetchall()
        return rows.changes_of(found, _change_number(db), limit, self._ownership.is_alive)

    async def change_number(self) -> int:
        return await self._database.look(_change_number)

    async def of_chats(self, chats: Collection[str]) -> Mapping[str, port.Listed]:
        values = {"chats": json.dumps(list(chats))}
        found = await self._database.look(lambda db: self._sound(db, "run_of_chats", values))
        return {listed.row.chat: listed for listed in found if listed.row.chat is not None}

    async def relatives(self, run_id: str) -> Sequence[port.Listed]:
        return await self._database.look(lambda db: self._relatives(db, run_id))

    def _relatives(self, db: apsw.Connection, run_id: str) -> Sequence[port.Listed]:
        values = {"id": run_id, "limit": port.RELATIVES_MAX}
        ids = [row[0] for row in db.execute(QUERIES["run_relatives"], values)]
        return rows.sound(self._rows(db, ids), self._listed)

    async def awaited(self, reason: str) -> Sequence[tuple[str, str]]:
        values = {"reason": reason, "slack_us": port.AWAITED_US, "limit": port.RELATIVES_MAX}
        found = await self._database.look(lambda db: db.execute(QUERIES["run_awaited"], values).fetchall())
        return [(str(waiting), str(ended)) for waiting, ended in found]

    async def held(self) -> Sequence[port.Listed]:
        await self._tidy()
        found = await self._database.look(lambda db: self._sound(db, "run_held", {}))
        return sorted(found, key=lambda listed: listed.row.id)

    async def _tidy(self) -> None:
        """Now and then, remove files of dead processes that nothing names any more."""
        now_s = self._clock.awake_s()
        if self._tidied_s is not None and now_s - self._tidied_s < TIDY_EVERY_S:
            return
        self._tidied_s = now_s
        directory = self._ownership.directory
        names = dead_files(directory)
        if names:
            await self._database.look(lambda db: remove_unneeded(db, directory, names))

    async def count(self) -> Mapping[RunStatus, int]:
        return await self._database.look(
            lambda db: dict(rows.sound(db.execute(QUERIES["run_count"]), rows.counted))
        )

    def _rows(self, db: apsw.Connection, ids: Iterable[str]) -> Iterable[Columns]:
        found = (one(db, "run_get", id=run_id, now_us=self._ownership.now_us()) for run_id in ids)
        return (columns for columns in found if columns is not None)

    def _sound(self, db: apsw.Connection, name: str, values: Mapping[str, Any]) -> Sequence[port.Listed]:
        return rows.sound(
            db.execute(QUERIES[name], {**values, "now_us": self._ownership.now_us()}), self._listed
        )

    def _listed(self, columns: Sequence[Any]) -> port.Listed:
        return rows.listed_of(columns, self._ownership.is_alive)


def _change_number(db: apsw.Connection) -> int:
    return int(db.execute(QUERIES["run_change_number"]).get)


class SqliteGates:
    """The questions of the runs in one SQLite file."""

    def __init__(self, database: Transactions) -> None:
        self._database = database

    async def open(self, query: port.GateQuery) -> Sequence[GateRow]:
        filters = gate_filters(query)
        return await self._sound(filtered(QUERIES["gate_open"], filters), filters)

    async def of(self, run_id: str) -> Sequence[GateRow]:
        return await self._sound(QUERIES["gate_read"], {"run_id": run_id})

    async def _sound(self, text: str, values: Mapping[str, Any]) -> Sequence[GateRow]:
        return await self._database.look(lambda db: rows.sound(db.execute(text, values), rows.gate_row))


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

    async def claim(self, subscriber: str, *, limit: int, lease_us: int) -> Sequence[port.Delivery]:
        values = {"subscriber": subscriber, "limit": limit, "now_us": self._now_us()}
        # Nearly always nothing is due, and looking locks nobody out.
        if await self._database.look(lambda db: one(db, "outbox_due", **values)) is None:
            return ()
        values["lease_us"] = lease_us
        return rows.deliveries_in_order(
            await self._database.transact(lambda db: _deliveries(db, "outbox_claim", values))
        )

    async def record(self, claimed: port.Delivery, attempted: port.Attempted) -> None:
        values = rows.attempt_parameters(claimed, attempted) | {"now_us": self._now_us()}
        await self._database.transact(lambda db: db.execute(QUERIES["outbox_record"], values))

    async def waiting(self, subscriber: str) -> int:
        found = await self._database.look(lambda db: one(db, "outbox_waiting", subscriber=subscriber))
        return 0 if found is None else int(found[0])

    async def read(self, query: port.DeliveryQuery) -> Sequence[port.Delivery]:
        filters = rows.delivery_filters(query)
        text = filtered(QUERIES["outbox_list"], filters)
        return await self._database.look(
            lambda db: [rows.delivery_of(columns) for columns in db.execute(text, filters)]
        )

    async def retry(self, id: str) -> Sequence[port.Delivery]:
        values = {"id": id, "now_us": self._now_us()}
        return rows.deliveries_in_order(
            await self._database.transact(lambda db: _deliveries(db, "outbox_retry", values))
        )


def _deliveries(db: apsw.Connection, name: str, values: dict[str, Any]) -> Sequence[port.Delivery]:
    return [rows.delivery_of(columns) for columns in db.execute(QUERIES[name], values)]


def put_notifications(db: apsw.Connection, telling: Sequence[Telling], now_us: int | None) -> None:
    """Store what is to be told, for every subscriber that wants it."""
    if not telling or one(db, "subscriber_any", now_us=now_us) is None:  # often there is nobody
        return
    for notification in chain.from_iterable(tell() for tell in telling):
        db.execute(QUERIES["outbox_put"], rows.notification_parameters(notification) | {"now_us": now_us})


BUSY_MS_MAX = 5_000


class SqliteMeasures:
    """Numbers about one SQLite file."""

    def __init__(self, database: Transactions, ownership: SqliteOwnership) -> None:
        self._database, self._ownership = database, ownership

    async def measure(self) -> port.Measured:
        # On a connection and in a thread of its own: counting a million runs must not stop this process.
        found = await in_thread(_measure, self._database.path, self._ownership.now_us())
        return measured(found, self._ownership.is_alive)

    async def note_stuck(self, run_id: str, why: str) -> None:
        values = {"run_id": run_id, "why": why, "now_us": self._ownership.now_us()}
        await self._database.transact(lambda db: db.execute(QUERIES["stuck_put"], values).fetchall())


def _measure(path: str, now_us: int | None) -> MeasureAnswers:
    """Ask everything of one instant."""
    with translated(path):
        readonly = apsw.SQLITE_OPEN_READONLY
        db = connect_fixed(path) if is_fixed(path) else apsw.Connection(path, flags=readonly)
        try:
            db.set_busy_timeout(BUSY_MS_MAX)
            db.execute("BEGIN")
            at_us = int(db.execute(QUERIES["measure_now"], {"now_us": now_us}).get)
            values = {"now_us": at_us, "hour_us": at_us - port.HOUR_US, "day_us": at_us - port.DAY_US}
            answers = [db.execute(QUERIES[name], values).fetchall() for name in MEASURE_QUERIES]
            return MeasureAnswers(at_us, _file_size(path), *answers)
        finally:
            db.close(True)


def _file_size(path: str) -> int:
    """The file, and beside it what is committed and not merged into it yet."""
    size = 0
    for name in (path, f"{path}-wal"):
        with contextlib.suppress(FileNotFoundError):
            size += os.stat(name).st_size
    return size
