"""Lists in SQL: which queries make up a list, and which of their lines stand."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from onward.model.run import RunStatus
from onward.model.values.tags import tag_pattern
from onward.store.port.gates import GateQuery
from onward.store.port.runs import SEARCHED_MAX, RunQuery, lowered
from onward.store.rows import ROW_FIELDS

_FILTER = re.compile(r"^    AND .*:(\w+)\b.*\n", re.MULTILINE)
_CREATED = ROW_FIELDS.index("created_at_us")
Values = Mapping[str, Any]


def filtered(text: str, given: Collection[str]) -> str:
    """A query without the lines that filter by what is not given: so each list has the index that fits it."""
    return _FILTER.sub(lambda line: line[0] if line[1] in given else "", text)


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
    named = ("pipeline", query.pipeline), *zip(("after_us", "after_run", "after_gate"), place, strict=True)
    return {"limit": query.limit, **{name: value for name, value in named if value is not None}}


def newest(found: Sequence[Sequence[Sequence[Any]]], limit: int) -> Iterable[Sequence[Any]]:
    """The rows of several lists as one, newest first."""
    if len(found) == 1:
        return found[0]
    return sorted((columns for part in found for columns in part), key=_age, reverse=True)[:limit]


def _age(columns: Sequence[Any]) -> tuple[int, str]:
    created_at_us = columns[_CREATED]  # of whatever type, if it was damaged
    return created_at_us if type(created_at_us) is int else 0, str(columns[0])
