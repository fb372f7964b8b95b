"""Rows of runs by the thousand, made by the database itself: what a store looks like after years of work."""

from __future__ import annotations

from typing import Any

_COLUMNS = (
    "id, display_id, pipeline, pipeline_hash, status, reason, detail, recoverable, steps_finished, token, "
    "owner, wake_at_us, due_at_us, on_owner_loss, created_at_us, updated_at_us, head, hash"
)
POSTGRES_ROWS = f"""
INSERT INTO run ({_COLUMNS})
SELECT %(status)s || n, 'd' || n, 'p', 'h', %(status)s, '', '', 0, 0, 1,
    %(owner)s, %(wake)s::bigint + n, %(wake)s::bigint + n, 'requeue', n, n, 1, decode(repeat('00', 32), 'hex')
FROM generate_series(1, %(rows)s) AS n
"""
SQLITE_ROWS = f"""
WITH RECURSIVE series (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < :rows)
INSERT INTO run ({_COLUMNS})
SELECT :status || n, 'd' || n, 'p', 'h', :status, '', '', 0, 0, 1,
    :owner, :wake + n, :wake + n, 'requeue', n, n, 1, zeroblob(32)
FROM series
WHERE :rows > 0
"""


def finished(rows: int) -> dict[str, Any]:
    """The values of so many runs that have finished."""
    return {"status": "completed", "owner": None, "wake": None, "rows": rows}


def due(rows: int) -> dict[str, Any]:
    """The values of so many runs that wait for a worker."""
    return {"status": "queued", "owner": None, "wake": 0, "rows": rows}


def held(rows: int) -> dict[str, Any]:
    """The values of so many runs that somebody drives."""
    return {"status": "running", "owner": "somebody", "wake": None, "rows": rows}
