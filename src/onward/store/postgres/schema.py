"""Bring a database's schema up to date: all or nothing, and once, however many start at once."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.errors import DuplicateTable, UndefinedColumn

from onward.errors import SchemaInUse, SchemaTooNew, StoreUnavailable
from onward.store.owner import owner_label
from onward.store.postgres.connection import Address, Session, connect, reason, translate
from onward.store.postgres.leases import is_owner_alive
from onward.store.postgres.pool import Wire
from onward.store.postgres.statements import MIGRATIONS, QUERIES, Call, call, parse
from onward.store.queries import needs_no_holders

NEWEST = MIGRATIONS[-1][0]
LOCK = int.from_bytes(b"onward")  # any number that no other program on the server takes
LOST = "08006"
NOW_US = b"SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
UNHURRIED = b"SELECT set_config('lock_timeout', '0', true), set_config('statement_timeout', '0', true)"
_IS_THERE = Call(
    parse(
        "migration_is_there",
        """
        SELECT EXISTS (
            SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('migration') AND attname = 'number'
        )
        """,
    ),
    (),
)


async def schema_number(wire: Wire) -> int:
    """The number of the newest migration that this database has; 0 when it is new."""
    (((is_there,),),) = await wire.run(_IS_THERE)
    if not is_there:
        return 0
    (((number,),),) = await wire.run(call("migration_newest"))
    return int(number)


def check_known(found: int) -> None:
    """Refuse a schema that only a newer version knows."""
    if found > NEWEST:
        raise SchemaTooNew(found, NEWEST)


async def check_schema(wire: Wire) -> None:
    """After a statement failed: raise SchemaTooNew if a newer version has changed the schema."""
    await wire.roll_back()
    check_known(await schema_number(wire))


async def migrate(address: Address) -> None:
    """Apply the migrations that are missing, in one transaction; refused where that would do harm."""
    async with await connect(address) as session:
        try:
            await _apply(session)
        except (DuplicateTable, UndefinedColumn) as error:
            raise StoreUnavailable(
                f"{address.place} holds another program's tables ({error.diag.message_primary}); "
                "create a database for Onward alone."
            ) from error
        except psycopg.Error as error:
            raise translate(address.place, error.sqlstate or LOST, reason(error)) from error


async def _apply(session: Session) -> None:
    await session.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
    async with session.transaction(), psycopg.AsyncRawCursor(session) as cursor:
        await cursor.execute(UNHURRIED)
        # Whoever comes second waits here, and then finds nothing left to do.
        await cursor.execute("SELECT pg_advisory_xact_lock($1)", (LOCK,))
        await cursor.execute(QUERIES["migrations_table"].sql)
        await cursor.execute(QUERIES["migration_newest"].sql)
        (found,) = await cursor.fetchone() or (0,)
        check_known(found)
        if needs_no_holders(MIGRATIONS, found):
            await _refuse_holders(cursor, found)
        for number, name, script in MIGRATIONS:
            if number > found:
                await cursor.execute(script.encode())
                await cursor.execute(QUERIES["migration_insert"].sql, (number, name))


async def _refuse_holders(cursor: psycopg.AsyncRawCursor[Any], found: int) -> None:
    # From here to the end of the migration no run can be claimed, and no worker is about to: one that comes
    # later waits for this lock before it asks which migrations there are.
    await cursor.execute("LOCK TABLE run IN EXCLUSIVE MODE")
    await cursor.execute(NOW_US)
    (now_us,) = await cursor.fetchone() or (0,)
    await cursor.execute(QUERIES["measure_holders"].sql, (now_us,))
    for owner, is_expired, _ in await cursor.fetchall():
        if is_owner_alive(owner, is_expired=is_expired):
            raise SchemaInUse(found, NEWEST, owner_label(owner))
