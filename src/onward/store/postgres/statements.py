"""The queries as prepared statements (`:name` becomes `$1`), and values in PostgreSQL's binary format.

The values are text, 64-bit numbers, bytes, and arrays of these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from struct import Struct
from typing import Any, NamedTuple

import msgspec
from psycopg.pq.abc import PGresult

from onward.errors import InvalidInput
from onward.store.queries import filtered, load_migrations, load_queries

BOOL, BYTEA, INT8, INT4, TEXT = 16, 17, 20, 23, 25
Value = int | str | bytes | None

# PostgreSQL's text holds every character but NUL. NUL is written as the last character there is and a zero,
# and that character, which nobody uses, as itself and a one; so every text comes back as it was.
LAST = "\U0010ffff"

_INT8, _INT4 = Struct("!q"), Struct("!i")
number, _length = _INT8.pack, _INT4.pack
_numbered, _header = Struct("!iq").pack, Struct("!iiiii").pack
_one, _one_number = Struct("!iiiiii").pack, Struct("!iiiiiiq").pack
_NULL = _length(-1)
_EIGHT = 8
PACKED_MAX = 256  # each length has a packer of its own


def dump(value: Value) -> bytes | None:
    """A value as a parameter."""
    if value is None or isinstance(value, bytes):
        return value
    return text(value) if isinstance(value, str) else number(value)


def text(value: str) -> bytes:
    """A text as a parameter."""
    # In the text and not in its bytes: Python would first ask whether what is looked for there is a number.
    if "\0" in value or LAST in value:
        value = value.replace(LAST, LAST + "1").replace("\0", LAST + "0")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{value!r} contains a lone surrogate, which is not a valid character.") from None


def optional_text(value: str | None) -> bytes | None:
    """A text, or NULL."""
    return None if value is None else text(value)


def _load_text(raw: bytes) -> str:
    found = raw.decode()
    return found.replace(LAST + "0", "\0").replace(LAST + "1", LAST) if LAST in found else found


def texts(values: Sequence[str | None]) -> bytes:
    """An array of texts."""
    # Looked through together: to ask for each takes longer than to put them into one.
    together = "".join(filter(None, values))
    if "\0" in together or LAST in together:
        return _array(TEXT, [optional_text(value) for value in values])
    try:
        return _array(TEXT, [None if value is None else value.encode() for value in values])
    except UnicodeEncodeError:
        return _array(TEXT, [optional_text(value) for value in values])  # which says what is wrong


def byteas(values: Sequence[bytes | None]) -> bytes:
    """An array of byte strings."""
    return _array(BYTEA, values)


def numbers(values: Sequence[int | None]) -> bytes:
    """An array of 64-bit numbers."""
    if len(values) == 1 and (value := values[0]) is not None:
        return _one_number(1, 1, INT8, 1, 1, _EIGHT, value)
    if len(values) <= PACKED_MAX and None not in values:
        items = [_EIGHT] * (2 * len(values))
        items[1::2] = values  # type: ignore[assignment] # none of them is None
        return _packed(len(values))(1, 1, INT8, len(values), 1, *items)
    parts = [_NULL if value is None else _numbered(_EIGHT, value) for value in values]
    return b"".join([_header(1, 1, INT8, len(parts), 1), *parts])


@lru_cache(maxsize=PACKED_MAX)
def _packed(count: int) -> Callable[..., bytes]:
    """Packs an array of so many numbers at once."""
    return Struct("!5i" + "iq" * count).pack


def _array(kind: int, values: Sequence[bytes | None]) -> bytes:
    # One dimension, perhaps with NULLs, counted from one. Mostly there is one value.
    if len(values) == 1 and (value := values[0]) is not None:
        return _one(1, 1, kind, 1, 1, len(value)) + value
    parts = [_NULL if value is None else _length(len(value)) + value for value in values]
    return b"".join([_header(1, 1, kind, len(parts), 1), *parts])


_LOADERS: dict[int, Callable[[bytes], Any]] = {
    BOOL: lambda raw: raw != b"\0",
    BYTEA: bytes,
    INT8: lambda raw: _INT8.unpack(raw)[0],
    INT4: lambda raw: _INT4.unpack(raw)[0],
    TEXT: _load_text,
}


def load(result: PGresult) -> list[tuple[Any, ...]]:
    """The rows of a result."""
    columns = [(column, _LOADERS[result.ftype(column)]) for column in range(result.nfields)]
    get = result.get_value
    return [
        tuple([None if (raw := get(row, column)) is None else loader(raw) for column, loader in columns])
        for row in range(result.ntuples)
    ]


PACKAGE = "onward.store.postgres"
MIGRATIONS = load_migrations(PACKAGE)
EVENT_ROWS = "event_rows"
WHAT = "{what}"
EVENT_TYPES = ("bigint", "text", "bigint", "bigint", "bigint", "text", "bytea", "text")
ALONE_PARAMETERS = (
    *(
        "head",
        "hash",
        "next_node",
        "doubtful",
        "steps_finished",
        "tokens",
        "cost_micro",
        "ticks",
        "updated_at_us",
    ),
    *("id", "after", "after_hash", "held_token", "held_owner"),
)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z][a-z_0-9]*)")  # but not the `::` of a cast


class Statement(msgspec.Struct, frozen=True):
    """A query, and the names of its parameters in their order."""

    name: bytes
    sql: bytes
    parameters: tuple[str, ...]

    def call(self, **values: Value) -> Call:
        """This statement with its values."""
        return Call(self, [dump(values[parameter]) for parameter in self.parameters])


class Call(NamedTuple):
    """A statement with its values, ready to be sent."""

    statement: Statement
    values: Sequence[bytes | None]


def parse(name: str, text: str) -> Statement:
    """A statement from a query's text. A parameter may stand in it any number of times."""
    parameters = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    sql = _PARAMETER.sub(lambda found: f"${parameters.index(found[1]) + 1}", text)
    return Statement(name.encode(), sql.encode(), parameters)


_TEXTS = load_queries(PACKAGE)
QUERIES = {
    name: parse(name, text)
    for name, text in _TEXTS.items()
    if not any(part in text for part in (EVENT_ROWS, WHAT))  # those are statements when it is filled in
}
BEGIN = Call(parse("begin", "BEGIN ISOLATION LEVEL READ COMMITTED"), ())
BEGIN_LOOKING = Call(parse("begin_looking", "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"), ())
COMMIT = Call(parse("commit", "COMMIT"), ())
ROLLBACK = Call(parse("rollback", "ROLLBACK"), ())
# A list is planned each time, with its values: one of a rare status is read by another index than one of most
# runs.
PLANNED = Call(parse("planned", "SELECT set_config('plan_cache_mode', 'force_custom_plan', true)"), ())
# For the transaction that it is sent with, and never for a session: behind a pooler, sessions are shared.
UNSYNCED = Call(parse("unsynced", "SELECT set_config('synchronous_commit', 'off', true)"), ())


@cache
def advance_alone(events: int, name: str = "run_advance_alone") -> Statement:
    """The statement that moves one run by so many events: ALONE_PARAMETERS, then the columns of each.

    Those of other names do more, and have more parameters behind these.
    """
    rows = [
        ", ".join(f":event{row}_{column}::{kind}" for column, kind in enumerate(EVENT_TYPES))
        for row in range(events)
    ]
    text = _TEXTS[name].replace(f"{{{EVENT_ROWS}}}", ", ".join(f"({row})" for row in rows))
    statement = parse(f"{name}_{events}", text)
    assert statement.parameters[: len(ALONE_PARAMETERS)] == ALONE_PARAMETERS
    return statement


@cache
def usage_statement(column: str) -> Statement:
    """The statement that sums usage by this column."""
    return parse(f"usage_list_{column}", _TEXTS["usage_list"].replace(WHAT, column))


@cache
def _filtered(name: str, given: tuple[str, ...]) -> Statement:
    return parse("_".join((name, *given)), filtered(_TEXTS[name], given))


def filtered_call(name: str, filters: Mapping[str, Value], **values: Value) -> Call:
    """A call of a query with those of its filters that are given."""
    return _filtered(name, tuple(filters)).call(**filters, **values)


def call(name: str, **values: Value) -> Call:
    """A call of a query by its name."""
    return QUERIES[name].call(**values)
