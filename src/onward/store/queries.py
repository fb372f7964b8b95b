"""Named queries in `.sql` files, the same names for every database; and the queries of a list.

Each query has a header `-- name --`. `{name}` in a query stands for another query of the file. What names
`{column}` or `{changing}` is no query but a list: it is repeated for each column of a run's row, or for each
that can change, with commas between. `{amount_max}` is where sums stop growing, whatever was stored before.

A list of runs is made up of one or more queries, each without the lines that filter by what is not given.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.resources import files
from itertools import product
from typing import Any

from onward.model.limits import AMOUNT_MAX
from onward.model.run import RunStatus
from onward.model.values import tag_pattern
from onward.store.port.runs import SEARCHED_MAX, GateQuery, RunQuery, lowered
from onward.store.rows import CHANGING_COLUMNS, ROW_FIELDS, RUN_COLUMNS

NO_HOLDERS = "-- Needs no holders: "
"""How a migration begins that a process of an older version would not get along with; behind it, why."""
_NAMED_PART = re.compile(r"\{([a-z_]+)\}")
_REPEATED = {"{column}": RUN_COLUMNS, "{changing}": CHANGING_COLUMNS}
_HEADER = re.compile(r"^-- (?P<name>[a-z_]+) --$", re.MULTILINE)


def load_queries(package: str) -> Mapping[str, str]:
    """The queries of `package/queries.sql` by name."""
    text = files(package).joinpath("queries.sql").read_text(encoding="utf-8")
    found = _HEADER.split(text)
    queries = {name: body.strip().rstrip(";") for name, body in zip(found[1::2], found[2::2], strict=True)}
    lists = {name: _column_list(body) for name, body in queries.items() if _is_list(body)}
    parts = queries | lists | {"amount_max": str(AMOUNT_MAX)}
    return {name: _whole(body, parts) for name, body in queries.items() if name not in lists}


def _is_list(body: str) -> bool:
    return any(mark in body for mark in _REPEATED)


def _column_list(form: str) -> str:
    """The form for each column of a run's row, with its name and the type that a server knows it by."""
    (mark,) = (mark for mark in _REPEATED if mark in form)
    made = [
        form.replace(mark, column.name).replace("{type}", "bigint" if column.is_number else "text")
        for column in _REPEATED[mark]
    ]
    return ", ".join(made)


def _whole(body: str, queries: Mapping[str, str]) -> str:
    """A query with the text of those that it names. Other names in braces stay as they are."""

    def named(part: re.Match[str]) -> str:
        return _whole(queries[part[1]], queries) if part[1] in queries else part[0]

    return _NAMED_PART.sub(named, body)


def load_migrations(package: str) -> tuple[tuple[int, str, str], ...]:
    """The numbered migrations of a database, in order: number, name, SQL."""
    found = []
    for entry in files(package).joinpath("migrations").iterdir():
        number, _, rest = entry.name.partition("_")
        if entry.name.endswith(".sql"):
            found.append((int(number), rest.removesuffix(".sql"), entry.read_text(encoding="utf-8")))
    return tuple(sorted(found))


def needs_no_holders(migrations: Sequence[tuple[int, str, str]], found: int) -> bool:
    """Whether no run may be held while a database with schema `found` gets the migrations that it lacks."""
    return any(number > found > 0 and script.startswith(NO_HOLDERS) for number, _, script in migrations)


_FILTER_LINE = re.compile(r"^    AND .*:(\w+)\b.*\n", re.MULTILINE)
_CREATED = ROW_FIELDS.index("created_at_us")
Values = Mapping[str, Any]


def filtered(text: str, given: Collection[str]) -> str:
    """A query without the lines that filter by what is not given: so each list has the index that fits it."""
    return _FILTER_LINE.sub(lambda line: line[0] if line[1] in given else "", text)


def run_filters(query: RunQuery) -> Sequence[Values]:
    """The filters of the queries that together make up a list.

    One query has one status and one reason, so that an index gives its runs in the order of the list. A
    search for a text reads at most the newest SEARCHED_MAX runs of each query, because no index finds a text.
    """
    place = query.place or (None, None)
    common = {
        "pipeline": query.pipeline,
        "parent": query.parent,
        "chat": query.chat,
        "tags": tag_pattern(query.tags) if query.tags else None,
        "since_us": query.since_us,
        "before_us": place[0],
        "before_id": place[1],
        "limit": SEARCHED_MAX if query.text else query.limit,
        "text": lowered(query.text) if query.text else None,
        "found": query.limit if query.text else None,
    }
    pairs = product(dict.fromkeys(query.statuses or (None,)), dict.fromkeys(query.reasons or (None,)))
    named = (
        {_filter_of(status): status and status.value, "reason": reason, **common} for status, reason in pairs
    )
    return [{name: value for name, value in values.items() if value is not None} for values in named]


def _filter_of(status: RunStatus | None) -> str:
    # Most runs have completed, so an index leaves them out; SQLite chooses it before it is given a status.
    return "completed" if status is RunStatus.COMPLETED else "status"


def run_query(filters: Values) -> str:
    """The name of the query that has these filters."""
    return "run_search" if "text" in filters else "run_list"


def gate_filters(query: GateQuery) -> Values:
    """The filters of a list of open gates."""
    place = query.place or (None, None, None)
    given = ("pipeline", query.pipeline), ("run_id", query.run_id), ("chat", query.chat)
    named = *given, *zip(("after_us", "after_run", "after_gate"), place, strict=True)
    return {"limit": query.limit, **{name: value for name, value in named if value is not None}}


def newest(found: Sequence[Sequence[Sequence[Any]]], limit: int) -> Iterable[Sequence[Any]]:
    """The rows of several lists as one, newest first."""
    if len(found) == 1:
        return found[0]
    return sorted((columns for part in found for columns in part), key=_age, reverse=True)[:limit]


def _age(columns: Sequence[Any]) -> tuple[int, str]:
    created_at_us = columns[_CREATED]  # of whatever type, if it was damaged
    return created_at_us if type(created_at_us) is int else 0, str(columns[0])
