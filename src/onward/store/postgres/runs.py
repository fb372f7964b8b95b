"""What people see of runs in PostgreSQL: lists, open questions, notifications, and numbers.

A claim of notifications is one statement, and passes over what others are about to take. Measuring is one
snapshot in two trips.

The outbox is here and not with the messages, because a write stores notifications with its events, and
messages need the calls of a write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import astuple

from onward.model.row import GateRow, Notification, NotificationKind, kinds_text
from onward.model.run import RunStatus
from onward.store import rows
from onward.store.port import runs as port
from onward.store.port.log import Position
from onward.store.postgres import statements
from onward.store.postgres.leases import PostgresOwnership
from onward.store.postgres.pool import Pool, Rows, Wire
from onward.store.queries import gate_filters, newest, run_filters, run_query
from onward.store.rows import MEASURE_QUERIES, MeasureAnswers, measured


class PostgresRuns:
    """The runs of one PostgreSQL database, with their holders."""

    def __init__(self, connections: Pool, ownership: PostgresOwnership) -> None:
        self._connections, self._ownership = connections, ownership

    async def find(self, wanted: str) -> Sequence[port.Listed]:
        return await self._connections.use(lambda wire: self._find(wire, wanted))

    async def _find(self, wire: Wire, wanted: str) -> Sequence[port.Listed]:
        named, called, begun = await wire.run(
            self._get(wanted),
            statements.call("run_by_display_id", wanted=wanted),
            statements.call("run_by_prefix", wanted=wanted, above=wanted + "\U0010ffff"),
        )
        if named:
            return [self._listed(named[0])]
        ids = called or (begun if wanted else [])
        return [self._listed(columns) for columns in await self._rows(wire, ids)]

    async def list(self, query: port.RunQuery) -> Sequence[port.Listed]:
        now_us = self._ownership.now_us()
        lists = run_filters(query)
        calls = [statements.filtered_call(run_query(filters), filters, now_us=now_us) for filters in lists]
        # All of one instant: else a run that changes its status could be in two lists, or in none.
        _, _, *found, _ = await self._connections.use(
            lambda wire: wire.run(statements.BEGIN_LOOKING, statements.PLANNED, *calls, statements.COMMIT)
        )
        return rows.sound(newest(found, query.limit), self._listed)

    async def heads(self, ids: Collection[str]) -> Mapping[str, port.RunHead]:
        wanted, now_us = statements.texts(list(ids)), self._ownership.now_us()
        asked = statements.call("run_heads", ids=wanted, now_us=now_us)
        (found,) = await self._connections.use(lambda wire: wire.run(asked))
        return rows.heads_of(found, self._ownership.is_alive)

    async def changed(self, after: int, limit: int) -> port.Changes:
        # The number first: each statement sees what was committed before it, so none below it is missing.
        number = statements.call("run_change_number")
        asked = statements.call("run_changed", after=after, limit=limit, now_us=self._ownership.now_us())
        (((upto,),), found) = await self._connections.use(lambda wire: wire.run(number, asked))
        return rows.changes_of(found, upto, limit, self._ownership.is_alive)

    async def change_number(self) -> int:
        asked = statements.call("run_change_number")
        (((number,),),) = await self._connections.use(lambda wire: wire.run(asked))
        return int(number)

    async def of_chats(self, chats: Collection[str]) -> Mapping[str, port.Listed]:
        wanted, now_us = statements.texts(list(chats)), self._ownership.now_us()
        found = await self._sound(statements.call("run_of_chats", chats=wanted, now_us=now_us))
        return {listed.row.chat: listed for listed in found if listed.row.chat is not None}

    async def relatives(self, run_id: str) -> Sequence[port.Listed]:
        return await self._connections.use(lambda wire: self._relatives(wire, run_id))

    async def _relatives(self, wire: Wire, run_id: str) -> Sequence[port.Listed]:
        _, ids = await wire.run(
            statements.PLANNED, statements.call("run_relatives", id=run_id, limit=port.RELATIVES_MAX)
        )
        return rows.sound(await self._rows(wire, ids), self._listed)

    async def awaited(self, reason: str) -> Sequence[tuple[str, str]]:
        asked = statements.call(
            "run_awaited", reason=reason, slack_us=port.AWAITED_US, limit=port.RELATIVES_MAX
        )
        _, found = await self._connections.use(lambda wire: wire.run(statements.PLANNED, asked))
        return [(waiting, ended) for waiting, ended in found]

    async def held(self) -> Sequence[port.Listed]:
        found = await self._sound(statements.call("run_held", now_us=self._ownership.now_us()))
        return sorted(found, key=lambda listed: listed.row.id)

    async def count(self) -> Mapping[RunStatus, int]:
        (found,) = await self._connections.use(lambda wire: wire.run(statements.call("run_count")))
        return dict(rows.sound(found, rows.counted))

    async def _rows(self, wire: Wire, ids: Rows) -> Iterable[Sequence[Any]]:
        answers = await wire.run(*(self._get(columns[0]) for columns in ids)) if ids else []
        return [columns for found in answers for columns in found]

    async def _sound(self, asked: statements.Call) -> Sequence[port.Listed]:
        (found,) = await self._connections.use(lambda wire: wire.run(asked))
        return rows.sound(found, self._listed)

    def _get(self, run_id: str) -> statements.Call:
        return statements.call("run_get", id=run_id, now_us=self._ownership.now_us())

    def _listed(self, columns: Sequence[Any]) -> port.Listed:
        return rows.listed_of(columns, self._ownership.is_alive)


class PostgresGates:
    """The questions of the runs in one PostgreSQL database."""

    def __init__(self, connections: Pool) -> None:
        self._connections = connections

    async def open(self, query: port.GateQuery) -> Sequence[GateRow]:
        return await self._sound(statements.filtered_call("gate_open", gate_filters(query)))

    async def of(self, run_id: str) -> Sequence[GateRow]:
        return await self._sound(statements.call("gate_read", run_id=run_id))

    async def _sound(self, asked: statements.Call) -> Sequence[GateRow]:
        _, found = await self._connections.use(lambda wire: wire.run(statements.PLANNED, asked))
        return rows.sound(found, rows.gate_row)


class PostgresOutbox:
    """The notifications of one PostgreSQL database."""

    def __init__(
        self, connections: Pool, now_us: Callable[[], int | None], on_subscribed: Callable[[], None]
    ) -> None:
        self._connections, self._now_us, self._on_subscribed = connections, now_us, on_subscribed

    async def subscribe(
        self, subscriber: str, kinds: Sequence[NotificationKind], *, for_us: int, renew_us: int = 0
    ) -> None:
        self._on_subscribed()
        wanted, now_us = kinds_text(kinds), self._now_us()
        found = await self._ask(statements.call("subscriber_get", subscriber=subscriber, now_us=now_us))
        if found and found[0][0] == wanted and found[0][1] > renew_us:
            return
        await self._ask(
            statements.call(
                "subscriber_put", subscriber=subscriber, kinds=wanted, for_us=for_us, now_us=now_us
            )
        )

    async def claim(self, subscriber: str, *, limit: int, lease_us: int) -> Sequence[port.Delivery]:
        claim = statements.call(
            "outbox_claim", subscriber=subscriber, limit=limit, lease_us=lease_us, now_us=self._now_us()
        )
        return rows.deliveries_in_order([rows.delivery_of(columns) for columns in await self._ask(claim)])

    async def record(self, claimed: port.Delivery, attempted: port.Attempted) -> None:
        values = rows.attempt_parameters(claimed, attempted)
        await self._ask(statements.call("outbox_record", now_us=self._now_us(), **values))

    async def waiting(self, subscriber: str) -> int:
        ((number,),) = await self._ask(statements.call("outbox_waiting", subscriber=subscriber))
        return int(number)

    async def read(self, query: port.DeliveryQuery) -> Sequence[port.Delivery]:
        asked = statements.filtered_call("outbox_list", rows.delivery_filters(query))
        _, found = await self._connections.use(lambda wire: wire.run(statements.PLANNED, asked))
        return [rows.delivery_of(columns) for columns in found]

    async def retry(self, id: str) -> Sequence[port.Delivery]:
        found = await self._ask(statements.call("outbox_retry", id=id, now_us=self._now_us()))
        return rows.deliveries_in_order([rows.delivery_of(columns) for columns in found])

    async def _ask(self, asked: statements.Call) -> Rows:
        (found,) = await self._connections.use(lambda wire: wire.run(asked))
        return found


def notification_calls(
    told: Sequence[tuple[Notification, Position]], now_us: int | None
) -> Sequence[statements.Call]:
    """Stores what is to be told for every subscriber that wants it, if its run's log ends where it says."""
    if not told:
        return ()
    ids, run_ids, seqs, kinds, times, bodies = zip(*(astuple(one) for one, _ in told), strict=True)
    return [
        statements.call(
            "outbox_put",
            id=statements.texts(ids),
            run_id=statements.texts(run_ids),
            seq=statements.numbers(seqs),
            kind=statements.texts([kind.value for kind in kinds]),
            at_us=statements.numbers(times),
            body=statements.texts(bodies),
            head=statements.numbers([head.seq for _, head in told]),
            hash=statements.byteas([head.hash for _, head in told]),
            now_us=now_us,
        )
    ]


_BEGIN = statements.Call(
    statements.parse("begin_looking", "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"), ()
)
_SIZE = statements.Call(statements.parse("measure_size", "SELECT pg_database_size(current_database())"), ())


class PostgresMeasures:
    """Numbers about one PostgreSQL database."""

    def __init__(self, connections: Pool, ownership: PostgresOwnership) -> None:
        self._connections, self._ownership = connections, ownership

    async def measure(self) -> port.Measured:
        return measured(await self._connections.use(self._ask), self._ownership.is_alive)

    async def _ask(self, wire: Wire) -> MeasureAnswers:
        now = statements.call("measure_now", now_us=self._ownership.now_us())
        _, ((at_us,),), ((size,),) = await wire.run(_BEGIN, now, _SIZE)
        values = {"now_us": at_us, "hour_us": at_us - port.HOUR_US, "day_us": at_us - port.DAY_US}
        return MeasureAnswers(
            at_us, size, *await wire.run(*(_measure_call(name, values) for name in MEASURE_QUERIES))
        )

    async def note_stuck(self, run_id: str, why: str) -> None:
        note = statements.call("stuck_put", run_id=run_id, why=why, now_us=self._ownership.now_us())
        await self._connections.use(lambda wire: wire.run(note))


def _measure_call(name: str, values: dict[str, statements.Value]) -> statements.Call:
    statement = statements.QUERIES[name]
    return statement.call(**{parameter: values[parameter] for parameter in statement.parameters})
