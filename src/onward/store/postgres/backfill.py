"""Filling in runs from before a migration, in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

from onward.store.port.backfill import Filling
from onward.store.postgres.link.pool import Pool
from onward.store.postgres.link.wire import Wire
from onward.store.postgres.statements import BEGIN, COMMIT, call
from onward.store.postgres.writing.calls import gate_call


class PostgresBackfill:
    """The runs of one PostgreSQL database that are to be filled in."""

    def __init__(self, connections: Pool) -> None:
        self._connections = connections

    async def missing(self) -> Sequence[str]:
        (found,) = await self._connections.use(lambda wire: wire.run(call("backfill_read")))
        return [columns[0] for columns in found]

    async def fill(self, filling: Filling) -> bool:
        return await self._connections.use(lambda wire: _fill(wire, filling))

    async def skip(self, run_id: str) -> None:
        await self._connections.use(lambda wire: wire.run(call("backfill_delete", run_id=run_id)))


async def _fill(wire: Wire, filling: Filling) -> bool:
    run_id, (seq, hash_) = filling.run_id, filling.position
    update = call("backfill_run", run_id=run_id, head=seq, hash=hash_, doubtful=filling.doubtful)
    _, moved = await wire.run(BEGIN, update)
    if not moved:
        return False
    gates = (gate_call(row, filling.position) for row in filling.gates)
    await wire.run(*gates, call("backfill_delete", run_id=run_id), COMMIT)
    return True
