"""PostgreSQL: one statement per step, one connection for the writes of a process, a few for all else.

With it are what concerns the whole database: which one it is on its server, and what `onward doctor` looks
at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Self

from onward.clock import Clock, SystemClock
from onward.errors import StoreCorrupt, StoreError, StoreReadOnly
from onward.model.ids import Identity
from onward.store.port.store import Unwatch
from onward.store.postgres.connection import SERVER_MIN, Address
from onward.store.postgres.leases import PostgresEffects, PostgresLeases, PostgresOwnership, PostgresWorkers
from onward.store.postgres.limits import PostgresLimits
from onward.store.postgres.log import PostgresLog, PostgresWriter
from onward.store.postgres.messages import PostgresIntakes, PostgresMessages
from onward.store.postgres.pool import CONTROL, DUE, Listener, Pool, Server, Wire
from onward.store.postgres.principals import PostgresAudit, PostgresPrincipals
from onward.store.postgres.retention import (
    PostgresBackfill,
    PostgresBlobs,
    PostgresCarrying,
    PostgresPipelines,
    PostgresRetention,
)
from onward.store.postgres.runs import PostgresGates, PostgresMeasures, PostgresOutbox, PostgresRuns
from onward.store.postgres.schema import NEWEST, check_known, migrate, schema_number
from onward.store.postgres.statements import Call, call, parse

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
        owner = PostgresOwnership(now_us, int(lease_s * 1_000_000))
        writer = PostgresWriter(now_us, owner.lease_us)
        self.limits = PostgresLimits(shared, owner, writer.warnings)
        self.log = PostgresLog(self._appending, self._charging, shared, owner, writer)
        self.leases = PostgresLeases(self._renewing, owner, lease_s, partial(Listener, self._server, CONTROL))
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
        self.principals = PostgresPrincipals(shared)
        self.audit = PostgresAudit(shared)

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
        listener = Listener(self._server, DUE, lambda _: on_due())
        await listener.start()
        return listener.stop

    async def version(self) -> int | None:
        return None

    async def check(self) -> Sequence[tuple[str, bool, str]]:
        return await self._appending.use(lambda wire: check_database(wire, self._clock))

    async def close(self) -> None:
        await self.leases.stop_listening()
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


async def read_identity(wire: Wire) -> Identity:
    """Its own, with the database's name: a copy on the same server is not the original."""
    (found,) = await wire.run(call("identity_get"))
    if not found:
        raise StoreCorrupt("the identity of the database is missing; restore the table `identity`.")
    return Identity(*found[0])


CLOCK_S_MAX = 1.0
POOLER = (
    "between here and the server: safe, but every statement is planned again, and workers poll for due runs "
    "instead of being notified; give workers the server's own address if you can"
)
ISOLATION = "read committed"
OTHER_ISOLATION = (
    "conflicting transactions are refused and retried; set default_transaction_isolation to read committed "
    "for this role"
)
_PRIMARY = {
    (True, "on"): "a standby, which is read-only",
    (False, "on"): "set to read-only (default_transaction_read_only), so it cannot be written",
    (False, "off"): "not a standby",
}

_CHECK_SERVER = Call(
    parse(
        "check_server",
        """
        SELECT current_setting('server_version'), current_setting('server_version_num')::bigint / 10000,
            current_setting('fsync'), current_setting('full_page_writes'),
            current_setting('synchronous_commit'), current_setting('transaction_isolation'),
            current_setting('server_encoding'), pg_is_in_recovery(), current_setting('transaction_read_only')
        """,
    ),
    (),
)
_CHECK_RIGHTS = Call(
    parse(
        "check_rights",
        """
        SELECT current_user::text, (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
            coalesce(string_agg(wanted.right_name || ' on ' || wanted.table_name, ', ') FILTER (
                WHERE NOT has_table_privilege(wanted.table_name, wanted.right_name)
            ), '')
        FROM (VALUES
            ('run', 'SELECT'), ('run', 'INSERT'), ('run', 'UPDATE'), ('event', 'SELECT'), ('event', 'INSERT'),
            ('append', 'SELECT'), ('append', 'INSERT'), ('snapshot', 'SELECT'), ('snapshot', 'INSERT'),
            ('snapshot', 'UPDATE'), ('blob', 'SELECT'), ('blob', 'INSERT'), ('blob', 'UPDATE'),
            ('stuck', 'SELECT'), ('stuck', 'INSERT'), ('stuck', 'UPDATE'), ('gate', 'SELECT'),
            ('gate', 'INSERT'), ('gate', 'UPDATE'), ('backfill', 'SELECT'), ('worker', 'SELECT'),
            ('worker', 'INSERT'), ('worker', 'UPDATE'), ('worker', 'DELETE'),
            ('outbox', 'SELECT'), ('outbox', 'INSERT'), ('outbox', 'UPDATE'),
            ('subscriber', 'SELECT'), ('subscriber', 'INSERT'), ('subscriber', 'UPDATE'),
            ('scope', 'SELECT'), ('scope', 'INSERT'), ('scope', 'UPDATE'),
            ('reservation', 'SELECT'), ('reservation', 'INSERT'), ('reservation', 'UPDATE'),
            ('usage', 'SELECT'), ('usage', 'INSERT'), ('usage', 'UPDATE'),
            ('chat', 'SELECT'), ('chat', 'INSERT'), ('chat', 'UPDATE'),
            ('message', 'SELECT'), ('message', 'INSERT'), ('message', 'UPDATE'),
            ('chunk', 'SELECT'), ('chunk', 'INSERT'), ('chunk', 'DELETE'),
            ('principal', 'SELECT'), ('principal', 'INSERT'), ('principal', 'UPDATE'),
            ('audit', 'SELECT'), ('audit', 'INSERT'), ('audit', 'UPDATE')
        ) AS wanted (table_name, right_name)
        """,
    ),
    (),
)
_CHECK_CLOCK = Call(
    parse("check_clock", "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"),
    (),
)


async def check_database(wire: Wire, clock: Clock) -> Sequence[tuple[str, bool, str]]:
    """Subject, whether it is well, and a sentence for each: as it is on this connection, which must be one
    of those that acknowledge work."""
    ((server,),) = await wire.run(_CHECK_SERVER)
    version, major, fsync, page_writes, commit, isolation, encoding, is_standby, is_read_only = server
    number = await schema_number(wire)
    ahead_s = await _clock_ahead_s(wire, clock)
    return (
        ("server", major >= SERVER_MIN, f"PostgreSQL {version}"),
        ("schema", number == NEWEST, f"schema {number}"),
        (
            "durability",
            fsync == page_writes == "on" and commit != "off",
            f"fsync={fsync}, full_page_writes={page_writes}, synchronous_commit={commit}",
        ),
        ("pooler", True, POOLER if wire.is_pooled else "none"),
        (
            "isolation",
            isolation == ISOLATION,
            isolation if isolation == ISOLATION else f"{isolation}: {OTHER_ISOLATION}",
        ),
        ("primary", is_read_only == "off", _PRIMARY[is_standby, is_read_only]),
        ("encoding", encoding == "UTF8", encoding),
        ("clock", abs(ahead_s) <= CLOCK_S_MAX, f"the server's clock is {ahead_s:+.3f} s from this machine's"),
        await _check_rights(wire),
    )


async def _clock_ahead_s(wire: Wire, clock: Clock) -> float:
    before_us = clock.now_us()
    (((found_us,),),) = await wire.run(_CHECK_CLOCK)
    there_us: int = found_us
    return (there_us - (before_us + clock.now_us()) / 2) / 1_000_000


async def _check_rights(wire: Wire) -> tuple[str, bool, str]:
    (((role, is_superuser, missing),),) = await wire.run(_CHECK_RIGHTS)
    if missing:
        return "rights", False, f"role {role} lacks {missing}"
    more = "; as a superuser it has far more privileges than it needs" if is_superuser else ""
    return "rights", True, f"role {role} has the privileges that it needs{more}"
