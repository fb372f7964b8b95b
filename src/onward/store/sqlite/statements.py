"""The queries by name, and the migrations in their order."""

from __future__ import annotations

from onward.store.queries import load_migrations, load_queries

PACKAGE = "onward.store.sqlite"
QUERIES = load_queries(PACKAGE)


def compact(query: str) -> str:
    """A query without comments and layout: the driver looks at every byte each time it is executed."""
    return " ".join(" ".join(line for line in query.splitlines() if not line.startswith("--")).split())


MIGRATIONS = load_migrations(PACKAGE)
