"""Forgetting runs, inside the caller's transaction."""

from __future__ import annotations

import json
from collections.abc import Sequence

import apsw

from onward.store import rows
from onward.store.retention import Expiry, Kin, Swept, keys_below
from onward.store.sqlite.statements import QUERIES

_PARTS = ("run_delete", "event_delete", "append_delete", "snapshot_delete", "effect_delete")


def expired(db: apsw.Connection, expiry: Expiry) -> Sequence[Kin]:
    """The runs that are old enough, oldest first."""
    statuses = json.dumps([status.value for status in expiry.statuses])
    values = {"statuses": statuses, "before_us": expiry.before_us, "keep": expiry.keep}
    found = map(rows.kin_of, db.execute(QUERIES["run_expired"], values))
    return [kin for kin in found if kin is not None]


def attached(db: apsw.Connection) -> Sequence[Kin]:
    """All that are not final, and all forks."""
    found = map(rows.kin_of, db.execute(QUERIES["run_attached"]))
    return [kin for kin in found if kin is not None]


def delete(db: apsw.Connection, runs: Sequence[Kin]) -> Sequence[str]:
    """Delete those that have not changed; the ids that are gone now."""
    for kin in runs:
        for part in _PARTS:
            first, behind = keys_below(kin.id)
            values = {"id": kin.id, "head": kin.head, "first": first, "behind": behind}
            named = {name: value for name, value in values.items() if f":{name}" in QUERIES[part]}
            db.execute(QUERIES[part], named)
    ids = json.dumps([kin.id for kin in runs])
    remaining = {columns[0] for columns in db.execute(QUERIES["run_remaining"], {"ids": ids})}
    return [kin.id for kin in runs if kin.id not in remaining]


def unused_blobs(db: apsw.Connection, before_us: int, limit: int) -> Sequence[str]:
    """Blobs that nobody refers to and nobody has touched since."""
    values = {"before_us": before_us, "limit": limit}
    return [columns[0] for columns in db.execute(QUERIES["blob_unused"], values)]


def mark_blobs(db: apsw.Connection, names: Sequence[str], *, before_us: int, mark: int) -> None:
    """Mark those of these blobs that are still untouched: whoever uses one from now on takes the mark off."""
    for name in names:
        db.execute(QUERIES["blob_mark"], {"hash": name, "before_us": before_us, "mark": mark})


def delete_blobs(db: apsw.Connection, names: Sequence[str], *, mark: int) -> Swept:
    """Delete those of these blobs that still have the mark."""
    sizes = [
        columns[0]
        for name in names
        for columns in db.execute(QUERIES["blob_delete"], {"hash": name, "mark": mark})
    ]
    return Swept(len(sizes), sum(sizes))
