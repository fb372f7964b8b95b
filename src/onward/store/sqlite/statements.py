"""The queries by name, and the migrations in their order."""

from __future__ import annotations

from onward.store.queries import load_migrations, load_queries

PACKAGE = "onward.store.sqlite"
QUERIES = load_queries(PACKAGE)
MIGRATIONS = load_migrations(PACKAGE)
