"""Finding runs in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from onward.model.run import RunStatus
from onward.store import rows
from onward.store.filters import newest, run_filters, run_query
from onward.store.port.runs import RELATIVES_MAX, Listed, RunQuery
from onward.store.postgres.link.pool import Pool
from onward.store.postgres.link.wire import Rows, Wire
from onward.store.postgres.ownership import Ownership
from onward.store.postgres.statements import BEGIN_LOOKING, COMMIT, PLANNED, Call, call, filtered_call


class PostgresRuns:
    """The runs of one PostgreSQL database, with their holders."""

    def __init__(self, connections: Pool, ownership: Ownership) -> None:
        self._connections, self._ownership = connections, ownership

    async def find(self, wanted: str) -> Sequence[Listed]:
        return await self._connections.use(lambda wire: self._find(wire, wanted))

    async def _find(self, wire: Wire, wanted: str) -> Sequence[Listed]:
        called, named, begun = await wire.run(
            call("run_by_display_id", wanted=wanted),
            self._get(wanted),
            call("run_by_prefix", wanted=wanted, above=wanted + "\U0010ffff"),
        )
        if named and not called:
            return [self._listed(named[0])]
        ids = called or (begun if wanted else [])
        return [self._listed(columns) for columns in await self._rows(wire, ids)]

    async def list(self, query: RunQuery) -> Sequence[Listed]:
        now_us = self._ownership.now_us()
        lists = run_filters(query)
        calls = [filtered_call(run_query(filters), filters, now_us=now_us) for filters in lists]
        # All of one instant: else a run that changes its status could be in two lists, or in none.
        _, _, *found, _ = await self._connections.use(
            lambda wire: wire.run(BEGIN_LOOKING, PLANNED, *calls, COMMIT)
        )
        return rows.sound(newest(found, query.limit), self._listed)

    async def relatives(self, run_id: str) -> Sequence[Listed]:
        return await self._connections.use(lambda wire: self._relatives(wire, run_id))

    async def _relatives(self, wire: Wire, run_id: str) -> Sequence[Listed]:
        _, ids = await wire.run(PLANNED, call("run_relatives", id=run_id, limit=RELATIVES_MAX))
        return rows.sound(await self._rows(wire, ids), self._listed)

    async def held(self) -> Sequence[Listed]:
        found = await self._sound(call("run_held", now_us=self._ownership.now_us()))
        return sorted(found, key=lambda listed: listed.row.id)

    async def count(self) -> Mapping[RunStatus, int]:
        (found,) = await self._connections.use(lambda wire: wire.run(call("run_count")))
        return dict(rows.sound(found, rows.counted))

    async def _rows(self, wire: Wire, ids: Rows) -> Iterable[Sequence[Any]]:
        answers = await wire.run(*(self._get(columns[0]) for columns in ids)) if ids else []
        return [columns for found in answers for columns in found]

    async def _sound(self, asked: Call) -> Sequence[Listed]:
        (found,) = await self._connections.use(lambda wire: wire.run(asked))
        return rows.sound(found, self._listed)

    def _get(self, run_id: str) -> Call:
        return call("run_get", id=run_id, now_us=self._ownership.now_us())

    def _listed(self, columns: Sequence[Any]) -> Listed:
        return rows.listed_of(columns, self._ownership.is_alive)
