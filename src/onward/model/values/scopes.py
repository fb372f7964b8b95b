"""Scopes: what limits are set for. `chat/ID`, `project/ID`, `run/ID` and `day/YYYY-MM-DD` in UTC.

The bare word (`chat`, `project`, `run`, `day`) is the default of that kind: its limits count for every scope
of the kind that has none of its own.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from functools import lru_cache

from onward.errors import InvalidInput
from onward.model.values.names import check_name

KINDS = ("chat", "day", "project", "run")
DAY = "day"
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def day_of(at_us: int) -> str:
    """The UTC day of a time."""
    return datetime.fromtimestamp(at_us / 1_000_000, UTC).date().isoformat()


def scopes_of(*, root: str, chat: str | None, project: str | None, at_us: int) -> tuple[str, ...]:
    """The scopes that a call counts in, in their order. `root` is the run that it is charged to."""
    found = [f"day/{day_of(at_us)}", f"run/{root}"]
    found += [f"chat/{chat}"] if chat else []
    found += [f"project/{project}"] if project else []
    return tuple(sorted(found))


def kind_of(scope: str) -> str:
    """The kind of a scope; a default is of the kind that it is the default of."""
    return scope.partition("/")[0]


@lru_cache(maxsize=1_000)  # all calls of a run have the same scopes
def part_of(scopes: tuple[str, ...], kind: str) -> str:
    """The id of the scope of this kind; '' if there is none."""
    return next((id for id in (scope.partition("/") for scope in scopes) if id[0] == kind), ("", "", ""))[2]


def check_scope(text: str) -> str:
    """The scope that this text names."""
    kind, slash, id = text.partition("/")
    if kind not in KINDS or (slash and not id) or not text.isprintable():
        raise InvalidInput(
            f"{text!r} is no scope; write chat/ID, project/ID, run/ID or day/YYYY-MM-DD, or one of "
            f"{', '.join(KINDS)} for the default of all of that kind."
        )
    if kind == DAY and slash and not _is_day(id):
        raise InvalidInput(f"{id!r} is no day; write day/YYYY-MM-DD (UTC), or day for every day.")
    return check_name("the scope", text)


def _is_day(text: str) -> bool:
    try:
        return bool(_DAY.fullmatch(text)) and bool(date.fromisoformat(text))
    except ValueError:
        return False
