"""Named queries: `-- name --` headers in a `.sql` file, the same names for every database.

`{name}` in a query stands for another query of the file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files

NO_HOLDERS = "-- Needs no holders: "
"""How a migration begins that a process of an older version would not get along with; behind it, why."""
_PART = re.compile(r"\{([a-z_]+)\}")
_HEADER = re.compile(r"^-- (?P<name>[a-z_]+) --$", re.MULTILINE)


def load_queries(package: str) -> Mapping[str, str]:
    """The queries of `package/queries.sql` by name."""
    text = files(package).joinpath("queries.sql").read_text(encoding="utf-8")
    parts = _HEADER.split(text)
    queries = {name: body.strip().rstrip(";") for name, body in zip(parts[1::2], parts[2::2], strict=True)}
    return {name: _whole(body, queries) for name, body in queries.items()}


def _whole(body: str, queries: Mapping[str, str]) -> str:
    """A query with the text of those that it names. Other names in braces stay as they are."""

    def named(part: re.Match[str]) -> str:
        return _whole(queries[part[1]], queries) if part[1] in queries else part[0]

    return _PART.sub(named, body)


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
