"""Connecting to a server: what an address means, and how a session is set up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from onward.errors import StoreUnavailable
from onward.store.postgres.link.unreachable import advice, reason
from onward.store.postgres.statements import parse

SERVER_MIN = 14
CONNECT_S_MAX = 5

# The kernel notices a peer that vanished without a word.
DEFAULTS: Mapping[str, str | int] = {
    "connect_timeout": CONNECT_S_MAX,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "fallback_application_name": "onward",
}
# Of several servers the primary is wanted: nothing here can do with less, and which one it is may change.
OF_SEVERAL: Mapping[str, str | int] = {"target_session_attrs": "read-write"}
SESSION: Mapping[str, str] = {
    # Nothing is acknowledged before it is on the disk, whatever the server's default is.
    "synchronous_commit": "on",
    "default_transaction_isolation": "read committed",
    # Nothing waits for ever; and a process that stops while it holds a run's row, holds it for less time
    # than it takes the run's owner to lose its lease.
    "lock_timeout": "30s",
    "statement_timeout": "60s",
    "idle_in_transaction_session_timeout": "5s",
    # Everything is found by an index, also in tables that were still empty when the plan was made; so one
    # plan is good for ever.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    # In the order of the index: a bitmap has none, and a claim would sort all runs that are due to take one.
    "enable_bitmapscan": "off",
    "jit": "off",
}


# For the session of the server's process `pid`; in another's session, for this transaction alone. From a
# server that asks for more than a commit that waits for the disk, such as a copy on a standby, that is kept.
SETTINGS = parse(
    "settings",
    """
    SELECT set_config(setting.name, setting.value, is_pooled), is_pooled
    FROM unnest(:names::text[], :values::text[]) AS setting (name, value),
        (SELECT pg_backend_pid() <> :pid::bigint) AS told (is_pooled)
    WHERE setting.name <> 'synchronous_commit' OR current_setting(setting.name) = 'off'
    """,
)


class Session(psycopg.AsyncConnection[Any]):
    """A connection to a server, or to a pooler."""

    is_pooled = False
    """Whether a pooler is in between. Then each transaction may be in another session of the server, so
    nothing may be left in one: no setting, no prepared statement, no LISTEN."""


class Address(msgspec.Struct, frozen=True):
    """Which database on which server. `place` names it for people, without the password."""

    conninfo: str
    place: str

    @classmethod
    def parse(cls, url: str) -> Address:
        """The address that a URL or libpq connection string means."""
        try:
            given = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            given = {"host": "@"}  # what libpq says about it may quote the password
        host, port = str(given.get("host", "")), str(given.get("port", ""))
        if "@" in host or not set(port) <= set("0123456789,"):
            raise StoreUnavailable(
                "the database's address cannot be read; write postgresql://user:password@host:port/name, "
                "with every special character of the password as %XX."
            )
        defaults = {**DEFAULTS, **OF_SEVERAL} if "," in host else DEFAULTS
        conninfo = make_conninfo(
            url, **{name: value for name, value in defaults.items() if name not in given}
        )
        name = given.get("dbname") or given.get("user") or "postgres"
        return cls(conninfo, f"PostgreSQL database {name!r} on {_where(host, port)}")


def _where(host: str, port: str) -> str:
    """Each server's host and port; libpq takes lists of both, and one port for all."""
    hosts, ports = host.split(","), port.split(",")
    if len(ports) < len(hosts):
        ports = ports[:1] * len(hosts)
    named = [(one or "this machine", at) for one, at in zip(hosts, ports, strict=False)]
    return " or ".join(f"{one}:{at}" if at else one for one, at in named)


async def connect(address: Address) -> Session:
    """A new connection on which every statement commits by itself; StoreUnavailable when there is none."""
    try:
        session = await Session.connect(
            address.conninfo, autocommit=True, client_encoding="utf8", prepare_threshold=None
        )
    except (psycopg.Error, OSError, UnicodeError) as error:
        why = reason(error)
        raise StoreUnavailable(f"cannot connect to {address.place}: {why}; {advice(why)}.") from None
    try:
        _check_server(session, address.place)
        await _set_up(session)
    except psycopg.Error as error:
        await session.close()
        raise StoreUnavailable(
            f"cannot use {address.place}: {reason(error)}; connect to the server itself, as a role that may "
            "change the settings of its session."
        ) from error
    except BaseException:
        await session.close()
        raise
    return session


def _check_server(session: Session, place: str) -> None:
    major = session.pgconn.server_version // 10_000
    if major < SERVER_MIN:
        raise StoreUnavailable(f"{place} is version {major}; use PostgreSQL {SERVER_MIN} or newer.")
    encoding = (session.pgconn.parameter_status(b"server_encoding") or b"").decode()
    if encoding != "UTF8":
        raise StoreUnavailable(
            f"{place} is encoded in {encoding}, which cannot hold every text; create it with ENCODING 'UTF8'."
        )


async def _set_up(session: Session) -> None:
    """Make the settings for the session, if it is ours alone.

    A server says at the start which process serves the connection; a pooler says something of its own.
    """
    async with psycopg.AsyncRawCursor(session) as cursor:
        await cursor.execute(
            SETTINGS.sql, (list(SESSION), list(SESSION.values()), session.pgconn.backend_pid)
        )
        _, session.is_pooled = await cursor.fetchone() or ("", False)
