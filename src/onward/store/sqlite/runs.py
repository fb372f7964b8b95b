"""Finding runs in SQLite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import apsw

from onward.clock import Clock
from onward.model.run import RunStatus
from onward.store import rows
from onward.store.filters import filtered, newest, run_filters, run_query
from onward.store.port.runs import RELATIVES_MAX, Listed, RunQuery
from onward.store.sqlite.file.tidying import dead_files, remove_unneeded
from onward.store.sqlite.file.transaction import Transactions
from onward.store.sqlite.ownership import Ownership
from onward.store.sqlite.reading import Columns, one
from onward.store.sqlite.statements import QUERIES

TIDY_EVERY_S = 60.0


class SqliteRuns:
    """The runs of one SQLite file, with their holders."""

    def __init__(self, database: Transactions, ownership: Ownership, clock: Clock) -> None:
        self._database, self._ownership, self._clock = database, ownership, clock
        self._tidied_s: float | None = None

    async def find(self, wanted: str) -> Sequence[Listed]:
        return await self._database.look(lambda db: self._find(db, wanted))

    def _find(self, db: apsw.Connection, wanted: str) -> list[Listed]:
        ids = [row[0] for row in db.execute(QUERIES["run_by_display_id"], {"wanted": wanted})]
        if not ids and wanted and one(db, "run_get", id=wanted, now_us=None) is None:
            values = {"wanted": wanted, "above": wanted + "\U0010ffff"}
            ids = [row[0] for row in db.execute(QUERIES["run_by_prefix"], values)]
        return [self._listed(columns) for columns in self._rows(db, ids or [wanted])]

    async def list(self, query: RunQuery) -> Sequence[Listed]:
        return await self._database.look(lambda db: self._list(db, query))

    def _list(self, db: apsw.Connection, query: RunQuery) -> Sequence[Listed]:
        now_us = self._ownership.now_us()
        found = [
            db.execute(
                filtered(QUERIES[run_query(filters)], filters), {**filters, "now_us": now_us}
            ).fetchall()
            for filters in run_filters(query)
        ]
        return rows.sound(newest(found, query.limit), self._listed)

    async def relatives(self, run_id: str) -> Sequence[Listed]:
        return await self._database.look(lambda db: self._relatives(db, run_id))

    def _relatives(self, db: apsw.Connection, run_id: str) -> Sequence[Listed]:
        values = {"id": run_id, "limit": RELATIVES_MAX}
        ids = [row[0] for row in db.execute(QUERIES["run_relatives"], values)]
        return rows.sound(self._rows(db, ids), self._listed)

    async def held(self) -> Sequence[Listed]:
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

    def _sound(self, db: apsw.Connection, name: str, values: Mapping[str, Any]) -> Sequence[Listed]:
        return rows.sound(
            db.execute(QUERIES[name], {**values, "now_us": self._ownership.now_us()}), self._listed
        )

    def _listed(self, columns: Sequence[Any]) -> Listed:
        return rows.listed_of(columns, self._ownership.is_alive)
