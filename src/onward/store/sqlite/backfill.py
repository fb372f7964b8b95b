"""Filling in runs from before a migration, in SQLite."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from onward.store.port.backfill import Filling
from onward.store.sqlite.file.transaction import Transactions
from onward.store.sqlite.statements import QUERIES
from onward.store.sqlite.writing import put_gates


class SqliteBackfill:
    """The runs of one SQLite file that are to be filled in."""

    def __init__(self, database: Transactions) -> None:
        self._database = database

    async def missing(self) -> Sequence[str]:
        return await self._database.look(
            lambda db: [columns[0] for columns in db.execute(QUERIES["backfill_read"])]
        )

    async def fill(self, filling: Filling) -> bool:
        return await self._database.transact(lambda db: _fill(db, filling))

    async def skip(self, run_id: str) -> None:
        await self._database.transact(lambda db: db.execute(QUERIES["backfill_delete"], {"run_id": run_id}))


def _fill(db: apsw.Connection, filling: Filling) -> bool:
    seq, hash_ = filling.position
    values = {"run_id": filling.run_id, "head": seq, "hash": hash_, "doubtful": filling.doubtful}
    db.execute(QUERIES["backfill_run"], values)
    if not db.changes():
        return False
    put_gates(db, filling.gates)
    db.execute(QUERIES["backfill_delete"], values)
    return True
