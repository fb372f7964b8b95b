"""Measuring a PostgreSQL database: one snapshot, two trips."""

from __future__ import annotations

from onward.store.port.measures import DAY_US, HOUR_US, Measured
from onward.store.postgres.link.binary import Value
from onward.store.postgres.link.pool import Pool
from onward.store.postgres.link.wire import Wire
from onward.store.postgres.ownership import Ownership
from onward.store.postgres.statements import QUERIES, Call, call, parse
from onward.store.tallies import MEASURES, Found, measured

_BEGIN = Call(parse("begin_looking", "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"), ())
_SIZE = Call(parse("measure_size", "SELECT pg_database_size(current_database())"), ())


class PostgresMeasures:
    """Numbers about one PostgreSQL database."""

    def __init__(self, connections: Pool, ownership: Ownership) -> None:
        self._connections, self._ownership = connections, ownership

    async def measure(self) -> Measured:
        return measured(await self._connections.use(self._ask), self._ownership.is_alive)

    async def _ask(self, wire: Wire) -> Found:
        now = call("measure_now", now_us=self._ownership.now_us())
        _, ((at_us,),), ((size,),) = await wire.run(_BEGIN, now, _SIZE)
        values = {"now_us": at_us, "hour_us": at_us - HOUR_US, "day_us": at_us - DAY_US}
        return Found(at_us, size, *await wire.run(*(_asked(name, values) for name in MEASURES)))

    async def note_stuck(self, run_id: str, why: str) -> None:
        note = call("stuck_put", run_id=run_id, why=why, now_us=self._ownership.now_us())
        await self._connections.use(lambda wire: wire.run(note))


def _asked(name: str, values: dict[str, Value]) -> Call:
    statement = QUERIES[name]
    return statement.call(**{parameter: values[parameter] for parameter in statement.parameters})
