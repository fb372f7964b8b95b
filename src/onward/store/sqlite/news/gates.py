"""Finding questions in SQLite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onward.model.row import GateRow
from onward.store import rows
from onward.store.filters import filtered, gate_filters
from onward.store.port.gates import GateQuery
from onward.store.sqlite.file.transaction import Transactions
from onward.store.sqlite.statements import QUERIES


class SqliteGates:
    """The questions of the runs in one SQLite file."""

    def __init__(self, database: Transactions) -> None:
        self._database = database

    async def open(self, query: GateQuery) -> Sequence[GateRow]:
        filters = gate_filters(query)
        return await self._sound(filtered(QUERIES["gate_open"], filters), filters)

    async def of(self, run_id: str) -> Sequence[GateRow]:
        return await self._sound(QUERIES["gate_read"], {"run_id": run_id})

    async def _sound(self, text: str, values: Mapping[str, Any]) -> Sequence[GateRow]:
        return await self._database.look(lambda db: rows.sound(db.execute(text, values), rows.gate_row))
