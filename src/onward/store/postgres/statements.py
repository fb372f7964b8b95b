"""The queries as prepared statements: `:name` becomes `$1`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import msgspec

from onward.store.filters import filtered
from onward.store.postgres.link.binary import Value, dump
from onward.store.queries import load_migrations, load_queries

PACKAGE = "onward.store.postgres"
MIGRATIONS = load_migrations(PACKAGE)
EVENT_ROWS = "event_rows"
WHAT = "{what}"
EVENT_TYPES = ("bigint", "text", "bigint", "bigint", "bigint", "text", "bytea", "text")
ALONE_PARAMETERS = (
    *("head", "hash", "next_node", "doubtful", "steps_finished", "updated_at_us"),
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
