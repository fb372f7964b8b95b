"""Finding questions in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from onward.model.row import GateRow
from onward.store import rows
from onward.store.filters import gate_filters
from onward.store.port.gates import GateQuery
from onward.store.postgres.link.pool import Pool
from onward.store.postgres.statements import PLANNED, Call, call, filtered_call


class PostgresGates:
    """The questions of the runs in one PostgreSQL database."""

    def __init__(self, connections: Pool) -> None:
        self._connections = connections

    async def open(self, query: GateQuery) -> Sequence[GateRow]:
        return await self._sound(filtered_call("gate_open", gate_filters(query)))

    async def of(self, run_id: str) -> Sequence[GateRow]:
        return await self._sound(call("gate_read", run_id=run_id))

    async def _sound(self, asked: Call) -> Sequence[GateRow]:
        _, found = await self._connections.use(lambda wire: wire.run(PLANNED, asked))
        return rows.sound(found, rows.gate_row)
