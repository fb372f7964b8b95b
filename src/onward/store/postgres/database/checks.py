"""What `onward doctor` looks at in a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Sequence

from onward.clock import Clock
from onward.store.postgres.database.migrate import NEWEST, schema_number
from onward.store.postgres.link.connection import SERVER_MIN
from onward.store.postgres.link.wire import Wire
from onward.store.postgres.statements import Call, parse

CLOCK_S_MAX = 1.0
POOLER = (
    "between here and the server: safe, but every statement is planned again, and workers poll for due runs "
    "instead of being notified; give workers the server's own address if you can"
)
ISOLATION = "read committed"
OTHER = (
    "conflicting transactions are refused and retried; set default_transaction_isolation to read committed "
    "for this role"
)
_PRIMARY = {
    (True, "on"): "a standby, which cannot be written",
    (False, "on"): "set to read-only (default_transaction_read_only), so it cannot be written",
    (False, "off"): "not a standby",
}

_SERVER = Call(
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
_RIGHTS = Call(
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
            ('chunk', 'SELECT'), ('chunk', 'INSERT'), ('chunk', 'DELETE')
        ) AS wanted (table_name, right_name)
        """,
    ),
    (),
)
_CLOCK = Call(
    parse("check_clock", "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"),
    (),
)


async def check_database(wire: Wire, clock: Clock) -> Sequence[tuple[str, bool, str]]:
    """Subject, whether it is well, and a sentence for each: as it is on this connection, which must be one
    of those that acknowledge work."""
    ((server,),) = await wire.run(_SERVER)
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
            isolation if isolation == ISOLATION else f"{isolation}: {OTHER}",
        ),
        ("primary", is_read_only == "off", _PRIMARY[is_standby, is_read_only]),
        ("encoding", encoding == "UTF8", encoding),
        ("clock", abs(ahead_s) <= CLOCK_S_MAX, f"the server's clock is {ahead_s:+.3f} s from this machine's"),
        await _check_rights(wire),
    )


async def _clock_ahead_s(wire: Wire, clock: Clock) -> float:
    before_us = clock.now_us()
    (((found_us,),),) = await wire.run(_CLOCK)
    there_us: int = found_us
    return (there_us - (before_us + clock.now_us()) / 2) / 1_000_000


async def _check_rights(wire: Wire) -> tuple[str, bool, str]:
    (((role, is_superuser, missing),),) = await wire.run(_RIGHTS)
    if missing:
        return "rights", False, f"role {role} lacks {missing}"
    more = "; as a superuser it may do far more than it needs" if is_superuser else ""
    return "rights", True, f"role {role} may read and write what it needs{more}"
