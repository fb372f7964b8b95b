"""The queries by name, and the migrations in their order."""

from __future__ import annotations

import re

from onward.store.queries import load_migrations, load_queries

PACKAGE = "onward.store.sqlite"
QUERIES = load_queries(PACKAGE)
MIGRATIONS = load_migrations(PACKAGE)
_PARTS = re.compile(r"('(?:[^']|'')*')|\s*([,=()])\s*|:(\w+)|\s*--.*\s*|\s+")


def compact(query: str) -> str:
    """A query with numbers for its parameters, in the order in which it first names them.

    It has no comments and no layout either: whenever a statement is executed, the driver looks at every byte.
    Not for queries with quoted names or `/* */`; a test compares every query that there is.
    """
    numbers: dict[str, int] = {}

    def short(part: re.Match[str]) -> str:
        literal, mark, name = part.groups()
        if name is not None:
            return f"?{numbers.setdefault(name, len(numbers) + 1)}"
        return literal or mark or " "

    return _PARTS.sub(short, query).strip()
