"""The queries by name, the migrations in their order, and reads that several parts share.

The reads (logs across forks, snapshots, blobs, the run that is due) all happen inside the caller's
transaction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import apsw

from onward.errors import HistoryCorrupt
from onward.store import rows
from onward.store.port.log import Snapshot, StoredEvent, TakeFilter
from onward.store.queries import load_migrations, load_queries
from onward.store.rows import UNLIMITED

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


Columns = tuple[Any, ...]


def one(db: apsw.Connection, name: str, **values: Any) -> Columns | None:
    """The first row of a query, if there is one."""
    found: Columns | None = db.execute(QUERIES[name], values).fetchone()
    return found


def read_records(
    db: apsw.Connection, run_id: str, after: int, *, upto: int = UNLIMITED, limit: int = UNLIMITED
) -> list[StoredEvent]:
    """A run's log; below its fork point that is its parent's."""
    parent, parent_seq = _fork_of(db, run_id)
    shared: list[StoredEvent] = []
    if parent and after < parent_seq:
        shared = read_records(db, parent, after, upto=min(upto, parent_seq), limit=limit)
        after = parent_seq
    if after >= upto or len(shared) >= limit:
        return shared
    own = _own_events(db, run_id, after, upto, limit - len(shared))
    found = read_blobs(db, {name for columns in own for name in rows.values_of(columns[8])})
    return shared + [rows.record_of(columns, found) for columns in own]


def read_bodies(db: apsw.Connection, run_id: str, kind: str, upto: int = UNLIMITED) -> list[str]:
    """The events of one kind; below a run's fork point they are its parent's."""
    parent, parent_seq = _fork_of(db, run_id)
    shared = read_bodies(db, parent, kind, min(upto, parent_seq)) if parent else []
    return shared + [body for (body,) in db.execute(QUERIES["event_bodies"], (run_id, upto, kind))]


def _own_events(db: apsw.Connection, run_id: str, after: int, upto: int, limit: int) -> list[Columns]:
    found: list[Columns] = []
    try:
        for columns in db.execute(QUERIES["event_read"], (run_id, after, upto, limit)):
            found.append(columns)  # one by one, to know after which event reading failed
    except (apsw.CorruptError, UnicodeDecodeError) as error:
        seq = found[-1][1] if found else after
        raise HistoryCorrupt(run_id, seq + 1, f"the database cannot read it ({error})") from error
    return found


def _fork_of(db: apsw.Connection, run_id: str) -> tuple[str | None, int]:
    found = db.execute(QUERIES["run_fork"], (run_id,)).fetchone()
    return (None, 0) if found is None else (found[0], found[1] or 0)


def read_blobs(db: apsw.Connection, names: Iterable[str]) -> dict[str, bytes]:
    """The contents that are there and are what their names say."""
    found: dict[str, bytes] = {}
    for name in names:
        columns = db.execute(QUERIES["blob_get"], (name,)).fetchone()
        content = rows.unpack(name, *columns) if columns else None
        if content is not None:
            found[name] = content
    return found


def find_snapshot(db: apsw.Connection, run_id: str, seq_max: int, fold_version: int) -> Snapshot | None:
    """The newest fold of this run, or of the run it was forked from, that is not past `seq_max`."""
    columns = db.execute(QUERIES["snapshot_find"], (run_id, seq_max, fold_version)).fetchone()
    if columns is not None:
        return rows.snapshot_of(columns)
    parent, parent_seq = _fork_of(db, run_id)
    return find_snapshot(db, parent, min(seq_max, parent_seq), fold_version) if parent else None


def find_due(db: apsw.Connection, wanted: TakeFilter, now_us: int | None) -> str | None:
    """The run whose turn it is, passing over pipelines that have as many runs held as they may."""
    full: list[str] = []
    while True:
        left = {"unserved": wanted.unserved, "skipped": wanted.skipped, "full": full}
        lists = {name: json.dumps(names) for name, names in left.items()}
        found = one(db, "run_due", now_us=now_us, **lists)
        if found is None:
            return None
        run_id, pipeline, max_running = found
        if max_running is None:
            return str(run_id)
        used = one(db, "ceiling_used", pipeline=pipeline)
        if used is None or used[0] < max_running:
            return str(run_id)
        full.append(pipeline)
