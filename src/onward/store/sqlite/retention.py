"""Forgetting runs in SQLite."""

from __future__ import annotations

import json
from collections.abc import Sequence

import apsw

from onward.model.chats.message import chat_of_run
from onward.store import rows
from onward.store.port.retention import Expiry, Kin
from onward.store.sqlite.file.transaction import Transactions
from onward.store.sqlite.statements import QUERIES

_DELETIONS = [
    QUERIES[name]
    for name in (
        *("run_delete", "event_delete", "append_delete", "snapshot_delete", "effect_delete"),
        *("scope_delete", "chunk_delete", "message_delete", "chat_delete"),
    )
]


class SqliteRetention:
    """Old runs of one SQLite file."""

    def __init__(self, database: Transactions) -> None:
        self._database = database

    async def expired(self, expiry: Expiry) -> Sequence[Kin]:
        statuses = json.dumps([status.value for status in expiry.statuses])
        values = {"statuses": statuses, "before_us": expiry.before_us, "keep": expiry.keep}
        return await self._database.look(
            lambda db: [rows.kin_of(columns) for columns in db.execute(QUERIES["run_expired"], values)]
        )

    async def attached(self) -> Sequence[Kin]:
        return await self._database.look(
            lambda db: [rows.kin_of(columns) for columns in db.execute(QUERIES["run_attached"])]
        )

    async def delete(self, runs: Sequence[Kin]) -> Sequence[str]:
        return await self._database.transact(lambda db: _delete(db, runs))


def _delete(db: apsw.Connection, runs: Sequence[Kin]) -> Sequence[str]:
    for kin in runs:
        first, behind = rows.keys_below(kin.id)
        values = {"id": kin.id, "head": kin.head, "first": first, "behind": behind}
        values["chat"] = chat_of_run(kin.id)
        for deletion in _DELETIONS:
            db.execute(deletion, values)
    ids = json.dumps([kin.id for kin in runs])
    remaining = {columns[0] for columns in db.execute(QUERIES["run_remaining"], {"ids": ids})}
    return [kin.id for kin in runs if kin.id not in remaining]
