"""Connect to a server: what an address means, how a session is set up, and how PostgreSQL fails.

Each SQLSTATE has one of our errors. Why a server cannot be reached is said in one clause, with what to do
about it. The driver's own words name the address again, ask questions and run over several lines; what is
left of them here is the reason alone, whatever language the server speaks.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import DiagnosticField
from psycopg.pq.abc import PGresult

from onward.errors import StoreCorrupt, StoreError, StoreFull, StoreIO, StoreReadOnly, StoreUnavailable
from onward.store.postgres.statements import parse

# When a command ends, the queries that still wait are cancelled, and the driver warns of a session that it
# closes then. That is for programs that keep logs: without this, Python prints it on a person's terminal.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

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
            f"{place} is encoded in {encoding}, which cannot store every character; create it with ENCODING "
            "'UTF8'."
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


# Another transaction was chosen to go on; ours did nothing and can simply be made again.
AGAIN = "40001"
# A fork and the deletion of its parent met: asked again, the later one finds what the other has done.
FORK_MET_DELETION = "23503"
YIELDED = frozenset({AGAIN, "40P01", FORK_MET_DELETION})
KEY_IN_USE = "run_exclusive"
# A standby, a primary that was demoted, or one that somebody set to read-only for a while.
READ_ONLY = "25006"
NOT_SUPPORTED, CHECKS_PLAN = "0A000", "RevalidateCachedQuery"
# The server is going down, is coming up, or ends this session.
SHUTTING_DOWN = "57P"


class ConnectionLost(Exception):
    """The connection broke. What was sent last may or may not have happened."""


class ServerError(Exception):
    """The server refused a statement, and with it all that was sent together."""

    def __init__(self, sqlstate: str, message: str, constraint: str = "") -> None:
        self.sqlstate, self.constraint = sqlstate, constraint
        super().__init__(message)


def failure_of(result: PGresult) -> Exception:
    """The error that the server sent; one that ends the session, or all use of it, is a lost connection."""
    message = _field(result, DiagnosticField.MESSAGE_PRIMARY) or result.get_error_message()
    sqlstate = _field(result, DiagnosticField.SQLSTATE)
    severity = _field(result, DiagnosticField.SEVERITY_NONLOCALIZED)
    if severity in ("FATAL", "PANIC") or sqlstate.startswith(SHUTTING_DOWN) or _is_outdated(result, sqlstate):
        return ConnectionLost(message)
    return ServerError(sqlstate, message, _field(result, DiagnosticField.CONSTRAINT_NAME))


def _is_outdated(result: PGresult, sqlstate: str) -> bool:
    """Whether a migration has changed the type of a column that a prepared statement returns.

    The statement fails for ever; on a new connection it is prepared anew. The text of the error may be in any
    language.
    """
    return sqlstate == NOT_SUPPORTED and _field(result, DiagnosticField.SOURCE_FUNCTION) == CHECKS_PLAN


def _field(result: PGresult, field: DiagnosticField) -> str:
    return (result.error_field(field) or b"").decode(errors="replace")


_ERRORS: dict[str, tuple[type[StoreError], str]] = {
    "53100": (
        StoreFull,
        "there is no space left for {place}; nothing acknowledged is lost, free some space and resume",
    ),
    "53": (StoreUnavailable, "{place} has too little memory or too few connections left; try again later"),
    READ_ONLY: (
        StoreReadOnly,
        "{place} is read-only, because it is a standby or set to read-only; name the primary server in the "
        "address, or set default_transaction_read_only to off",
    ),
    "42501": (
        StoreReadOnly,
        "the role is not allowed to do this in {place}; grant it the privileges that it needs",
    ),
    "55P03": (StoreUnavailable, "{place} stayed locked by another process; try again"),
    "40": (StoreUnavailable, "{place} stayed locked by other processes; try again"),
    "57014": (StoreUnavailable, "{place} took too long to answer, or the statement was cancelled; try again"),
    "57": (StoreUnavailable, "{place} is shutting down or starting; try again"),
    "08": (StoreUnavailable, "the connection to {place} failed; try again"),
    "42P01": (StoreCorrupt, "{place} is missing a table of its schema; restore a backup"),
    "42703": (StoreCorrupt, "{place} is missing a column of its schema; restore a backup"),
    "XX001": (StoreCorrupt, "{place} is damaged; keep it, and restore a backup"),
    "XX002": (StoreCorrupt, "an index of {place} is damaged; rebuild it with REINDEX"),
}


def translate(place: str, sqlstate: str, message: str) -> StoreError:
    """Our error for one of PostgreSQL's: by its code, else by the class of its code."""
    for code in (sqlstate, sqlstate[:2]):
        if code in _ERRORS:
            kind, sentence = _ERRORS[code]
            return kind(f"{sentence.format(place=place)} ({message}).")
    return StoreIO(f"PostgreSQL failed on {place}: {message} (SQLSTATE {sqlstate or 'none'}).")


_ALL_FAILURES = "Multiple connection attempts failed. All failures were:"
_EACH = re.compile(r" ?- host: (?:'[^']*'|None), port: (?:'[^']*'|None), hostaddr: (?:'[^']*'|None): ")
_BEFORE = re.compile(
    r"^(?:connection (?:failed|is bad): )?"
    r"(?:connection to server (?:at \"[^\"]*\"(?: \([^)]*\))?, port \S+|on socket \"[^\"]*\") failed: )?"
    r"(?:[A-Z]+: +)?"
)
_BEHIND = re.compile(r" (?:Is the server running|This probably means|HINT:|DETAIL:|LINE \d).*$")

OTHER_ADVICE = "check that the server runs, and the address, role and password"
_ADVICE = (
    (r"session is read-only|hot standby", "start or promote the primary, or add it to the address"),
    (r"database \"[^\"]*\" does not exist", "create it with `createdb`, or name another in the address"),
    (r"password|authentication|\brole \"", "correct the role and the password in the address"),
    (r"pg_hba", "allow this machine in the server's pg_hba.conf, or use another address"),
    (r"starting up|shutting down|recovery|too many|remaining connection slots", "try again later"),
    (r"SSL|certificate", "correct sslmode in the address, or set up TLS on the server"),
    (r"resolve host|could not translate host|port number", "correct the host and port in the address"),
    (
        r"refused|timeout|timed out|No such file|unreachable|no route|closed the connection",
        "start the server, or correct the host and port in the address",
    ),
)


def reason(said: object) -> str:
    """What the driver or the server said, as one clause without an end."""
    text = " ".join(str(said).split())
    if _ALL_FAILURES in text:
        each = _EACH.split(text.partition(_ALL_FAILURES)[2])
        return " or ".join(dict.fromkeys(_clause(one) for one in each if one.strip()))
    return _clause(text)


def advice(why: str) -> str:
    """What to do about a reason."""
    for pattern, what in _ADVICE:
        if re.search(pattern, why, re.IGNORECASE):
            return what
    return OTHER_ADVICE


def _clause(text: str) -> str:
    clause = _BEHIND.sub("", _BEFORE.sub("", text.strip()))
    clause = re.sub(r"\[Errno -?\d+\] ", "", clause)
    return clause.rstrip(" .?!")
