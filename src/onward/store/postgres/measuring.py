"""Measuring a PostgreSQL database: one snapshot, two trips."""

from __future__ import annotations

from collections.abc import Callable

from onward.store.measures import DAY_US, HOUR_US, Measured
from onward.store.postgres.link.binary import Value
from onward.store.postgres.link.wire import Wire
from onward.store.postgres.statements import QUERIES, Call, call, parse
from onward.store.tallies import MEASURES, Found, measured

_BEGIN = Call(parse("begin_looking", "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"), ())
_SIZE = Call(parse("measure_size", "SELECT pg_database_size(current_database())"), ())


async def measure_database(wire: Wire, now_us: int | None, is_alive: Callable[[str, bool], bool]) -> Measured:
    """Ask everything of one instant; `is_alive` judges owners."""
    _, ((at_us,),), ((size,),) = await wire.run(_BEGIN, call("measure_now", now_us=now_us), _SIZE)
    values = {"now_us": at_us, "hour_us": at_us - HOUR_US, "day_us": at_us - DAY_US}
    answers = await wire.run(*(_asked(name, values) for name in MEASURES))
    return measured(Found(at_us, size, *answers), is_alive)


def _asked(name: str, values: dict[str, Value]) -> Call:
    statement = QUERIES[name]
    return statement.call(**{parameter: values[parameter] for parameter in statement.parameters})
