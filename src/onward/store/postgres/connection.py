"""Connecting to a server: what an address means, and how a session is set up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from onward.errors import StoreUnavailable
from onward.store.postgres.unreachable import advice, reason

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
MIGRATING: Mapping[str, str] = {**SESSION, "lock_timeout": "0", "statement_timeout": "0"}


@dataclass(frozen=True, slots=True)
class Address:
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


async def connect(address: Address, settings: Mapping[str, str]) -> psycopg.AsyncConnection[Any]:
    """A new connection on which every statement commits by itself; StoreUnavailable when there is none."""
    try:
        connection = await psycopg.AsyncConnection.connect(
            address.conninfo, autocommit=True, client_encoding="utf8"
        )
    except (psycopg.Error, OSError, UnicodeError) as error:
        why = reason(error)
        raise StoreUnavailable(f"cannot connect to {address.place}: {why}; {advice(why)}.") from None
    try:
        _check_server(connection, address.place)
        await _set_up(connection, settings)
    except psycopg.Error as error:
        await connection.close()
        raise StoreUnavailable(
            f"cannot use {address.place}: {reason(error)}; connect to the server itself, as a role that may "
            "change the settings of its session."
        ) from error
    except BaseException:
        await connection.close()
        raise
    return connection


def _check_server(connection: psycopg.AsyncConnection[Any], place: str) -> None:
    major = connection.pgconn.server_version // 10_000
    if major < SERVER_MIN:
        raise StoreUnavailable(f"{place} is version {major}; use PostgreSQL {SERVER_MIN} or newer.")
    encoding = (connection.pgconn.parameter_status(b"server_encoding") or b"").decode()
    if encoding != "UTF8":
        raise StoreUnavailable(
            f"{place} is encoded in {encoding}, which cannot hold every text; create it with ENCODING 'UTF8'."
        )


async def _set_up(connection: psycopg.AsyncConnection[Any], settings: Mapping[str, str]) -> None:
    await connection.execute(
        "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS setting (name, value)",
        (list(settings), list(settings.values())),
    )
    # Only from off to on: a server may ask for more, such as a copy on a standby.
    await connection.execute(
        "SELECT set_config('synchronous_commit', 'on', false) "
        "WHERE current_setting('synchronous_commit') = 'off'"
    )
