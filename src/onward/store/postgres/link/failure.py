"""How PostgreSQL fails, and what we say then: one of our errors for each SQLSTATE."""

from __future__ import annotations

from psycopg.pq import DiagnosticField
from psycopg.pq.abc import PGresult

from onward.errors import StoreCorrupt, StoreError, StoreFull, StoreIO, StoreReadOnly, StoreUnavailable

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
GOING = "57P"


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
    if severity in ("FATAL", "PANIC") or sqlstate.startswith(GOING) or _is_outdated(result, sqlstate):
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


_KINDS: dict[str, tuple[type[StoreError], str]] = {
    "53100": (
        StoreFull,
        "there is no space left for {place}; nothing acknowledged is lost, free some space and resume",
    ),
    "53": (StoreUnavailable, "{place} has too little memory or too few connections left; try again later"),
    READ_ONLY: (
        StoreReadOnly,
        "{place} cannot be written, because it is a standby or set to read-only; name the primary server in "
        "the address, or set default_transaction_read_only to off",
    ),
    "42501": (StoreReadOnly, "the role may not do this in {place}; grant it the rights that it needs"),
    "55P03": (StoreUnavailable, "{place} stayed locked by another process; try again"),
    "40": (StoreUnavailable, "{place} stayed locked by other processes; try again"),
    "57014": (StoreUnavailable, "{place} took too long to answer, or the statement was cancelled; try again"),
    "57": (StoreUnavailable, "{place} is shutting down or starting; try again"),
    "08": (StoreUnavailable, "the connection to {place} failed; try again"),
    "42P01": (StoreCorrupt, "{place} lacks a table of its schema; restore a backup"),
    "42703": (StoreCorrupt, "{place} lacks a column of its schema; restore a backup"),
    "XX001": (StoreCorrupt, "{place} is damaged; keep it, and restore a backup"),
    "XX002": (StoreCorrupt, "an index of {place} is damaged; rebuild it with REINDEX"),
}


def translate(place: str, sqlstate: str, message: str) -> StoreError:
    """Our error for one of PostgreSQL's: by its code, else by the class of its code."""
    for code in (sqlstate, sqlstate[:2]):
        if code in _KINDS:
            kind, sentence = _KINDS[code]
            return kind(f"{sentence.format(place=place)} ({message}).")
    return StoreIO(f"PostgreSQL failed on {place}: {message} (SQLSTATE {sqlstate or 'none'}).")
