"""Bringing a file's schema up to date: all or nothing, and never under a process that would not get along."""

from __future__ import annotations

import apsw

from onward.errors import SchemaInUse, SchemaTooNew, StoreUnavailable
from onward.store.owner import owner_label
from onward.store.queries import needs_no_holders
from onward.store.sqlite.file.presence import is_owner_alive, workers_of
from onward.store.sqlite.statements import MIGRATIONS, QUERIES

NEWEST = MIGRATIONS[-1][0]
NOW_US = "SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)"


def checked_schema(db: apsw.Connection, path: str) -> int:
    """The number of the schema, 0 in a new file. Refuses what is not ours, or newer than this program."""
    try:
        found = schema_number(db)
    except apsw.SQLError:  # a table of that name, with other columns
        raise _foreign(path) from None
    if not found and db.execute("SELECT count(*) FROM sqlite_schema WHERE name <> 'migration'").get:
        found = schema_number(db)  # another process may have made the schema, which it does all at once
        if not found:
            raise _foreign(path)
    check_known(found)
    return found


def _foreign(path: str) -> StoreUnavailable:
    return StoreUnavailable(f"{path} is another program's database; name another file with --db.")


def migrate(db: apsw.Connection, path: str) -> None:
    """Bring the schema up to date, all or nothing; refuse it while an older process holds runs."""
    db.execute("BEGIN IMMEDIATE")
    db.execute(QUERIES["migrations_table"])
    found = schema_number(db)  # another process may have been faster
    if needs_no_holders(MIGRATIONS, found):
        _refuse_holders(db, path, found)
    for number, name, script in MIGRATIONS:
        if number > found:
            db.execute(script)
            db.execute(QUERIES["migration_insert"], {"number": number, "name": name})
    db.execute("COMMIT")


def _refuse_holders(db: apsw.Connection, path: str, found: int) -> None:
    holders = db.execute(QUERIES["measure_holders"], {"now_us": db.execute(NOW_US).get}).fetchall()
    for owner, is_expired, _ in holders:
        if is_owner_alive(workers_of(path), str(owner), is_expired=bool(is_expired)):
            raise SchemaInUse(found, NEWEST, owner_label(str(owner)))


def check_known(found: int) -> None:
    """Refuse a schema that only a newer version knows."""
    if found > NEWEST:
        raise SchemaTooNew(found, NEWEST)


def schema_number(db: apsw.Connection) -> int:
    """The number of the newest migration that this database has; 0 when it is new."""
    known = db.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'migration'").get
    return int(db.execute(QUERIES["migration_newest"]).get) if known else 0
