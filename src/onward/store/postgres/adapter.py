"""PostgreSQL: one statement per step, one connection for the writes of a process, a few for all else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Self

from onward.clock import Clock, SystemClock
from onward.errors import StoreError, StoreReadOnly
from onward.model.identity import Identity
from onward.store.port.store import Unwatch
from onward.store.postgres.backfill import PostgresBackfill
from onward.store.postgres.blobs import PostgresBlobs
from onward.store.postgres.carrying import PostgresCarrying
from onward.store.postgres.chats.intakes import PostgresIntakes
from onward.store.postgres.chats.messages import PostgresMessages
from onward.store.postgres.database.checks import check_database
from onward.store.postgres.database.identity import read_identity
from onward.store.postgres.database.migrate import NEWEST, check_known, migrate, schema_number
from onward.store.postgres.effects import PostgresEffects
from onward.store.postgres.leases import PostgresLeases, PostgresWorkers
from onward.store.postgres.limits.limits import PostgresLimits
from onward.store.postgres.link.connection import Address
from onward.store.postgres.link.listening import Listener
from onward.store.postgres.link.pool import Pool
from onward.store.postgres.link.server import Server
from onward.store.postgres.log import PostgresLog
from onward.store.postgres.measures import PostgresMeasures
from onward.store.postgres.news.gates import PostgresGates
from onward.store.postgres.news.outbox import PostgresOutbox
from onward.store.postgres.ownership import Ownership
from onward.store.postgres.pipelines import PostgresPipelines
from onward.store.postgres.retention import PostgresRetention
from onward.store.postgres.runs import PostgresRuns
from onward.store.postgres.writing.writer import Writer

LEASE_S = 10.0
PATIENCE_S = 10.0
CONNECTIONS_MAX = 4
CLOSE_S_MAX = 2.0


class PostgresStore:
    """Runs in one PostgreSQL database; made by `open`.

    `lease_s` is how long a claim or renewal is good for, `now_us` replaces the database's clock where leases
    are judged, and `patience_s` is how long to wait for a server that went away.
    """

    def __init__(
        self,
        address: Address,
        *,
        lease_s: float,
        now_us: Callable[[], int | None],
        clock: Clock,
        patience_s: float,
    ) -> None:
        self.identity = Identity("")  # until it is opened
        self._clock, self._server = clock, Server(address, patience_s)
        self._appending, self._renewing = Pool(self._server, 1), Pool(self._server, 1)
        self._charging = Pool(self._server, 1)
        self._flushing = Pool(self._server, 1)  # never that of the appends, which would wait for chats
        self._connections = shared = Pool(self._server, CONNECTIONS_MAX)
        owner = Ownership(now_us, int(lease_s * 1_000_000))
        writer = Writer(now_us, owner.lease_us)
        self.limits = PostgresLimits(shared, owner, writer.warnings)
        self.log = PostgresLog(self._appending, self._charging, shared, owner, writer)
        self.leases = PostgresLeases(self._renewing, owner, lease_s)
        self.workers = PostgresWorkers(shared, owner)
        self.runs = PostgresRuns(shared, owner)
        self.gates = PostgresGates(shared)
        self.outbox = PostgresOutbox(shared, now_us, writer.note_subscriber)
        self.messages = PostgresMessages(self._flushing, shared)
        self.intakes = PostgresIntakes(shared)
        self.blobs = PostgresBlobs(shared)
        self.pipelines = PostgresPipelines(shared)
        self.effects = PostgresEffects(self._renewing, shared, owner)
        self.retention = PostgresRetention(shared)
        self.carrying = PostgresCarrying(shared, writer)
        self.measures = PostgresMeasures(shared, owner)
        self.backfill = PostgresBackfill(shared)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        lease_s: float = LEASE_S,
        now_us: Callable[[], int | None] = lambda: None,
        clock: Clock | None = None,
        patience_s: float = PATIENCE_S,
    ) -> Self:
        """A store at the database that `url` names, its schema up to date."""
        address, clock = Address.parse(url), clock or SystemClock()
        store = cls(address, lease_s=lease_s, now_us=now_us, clock=clock, patience_s=patience_s)
        try:
            await store._connections.open()
            found = await store._connections.use(schema_number)
            check_known(found)
            if found < NEWEST:
                await _bring_up_to_date(address, found)
            store.identity = await store._connections.use(read_identity)
        except BaseException:
            await store.close()
            raise
        return store

    async def watch(self, on_due: Callable[[], None]) -> Unwatch:
        listener = Listener(self._server, on_due)
        await listener.start()
        return listener.stop

    async def check(self) -> Sequence[tuple[str, bool, str]]:
        return await self._appending.use(lambda wire: check_database(wire, self._clock))

    async def close(self) -> None:
        # No other process needs to wait for our leases to end; if we cannot end them any more, they expire.
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(CLOSE_S_MAX):
                await self.leases.end()
                await self.effects.end()
                await self.workers.end()
        own = self._appending, self._charging, self._renewing, self._flushing
        for pool in (*own, self._connections):
            pool.close()


async def _bring_up_to_date(address: Address, found: int) -> None:
    try:
        await migrate(address)
    except StoreReadOnly as error:
        raise StoreReadOnly(
            f"{address.place} has schema {found}, this version reads schema {NEWEST}, and it cannot be "
            "brought up to date from here; open it once on the primary, with a role that owns its tables."
        ) from error
