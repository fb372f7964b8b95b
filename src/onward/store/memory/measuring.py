"""Measuring a database in memory: what `Measures` promises, in as few words as possible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from onward.store.measures import DAY_US, HOUR_US, STUCK_MAX, Ended, Measured, Stand, Stuck, holdings_of
from onward.store.memory.state import State, StoredRun
from onward.store.port import Holder


def measured(state: State, holder_of: Callable[[StoredRun], Holder | None]) -> Measured:
    """Everything that is counted, now."""
    now_us, runs = state.now_us(), list(state.runs.values())
    rows = [stored.row for stored in runs]
    turns = [stored.due_at_us for stored in runs if stored.due_at_us is not None]
    due = [due_at_us for due_at_us in turns if due_at_us <= now_us]
    holders = [holder for stored in runs if (holder := holder_of(stored)) is not None]
    lately = [(row.status, now_us - row.ended_at_us) for row in rows if row.ended_at_us is not None]
    hour = Counter(status for status, ago_us in lately if ago_us <= HOUR_US)
    day = Counter(status for status, ago_us in lately if ago_us <= DAY_US)
    bodies = sum(len(record.body.encode()) for stored in runs for record in stored.records)
    return Measured(
        at_us=now_us,
        runs=Counter(Stand(row.status, row.reason, row.recoverable) for row in rows),
        due=len(due),
        later=len(turns) - len(due),
        oldest_due_us=min(due, default=None),
        holdings=holdings_of((holder.owner, 1, holder.is_alive) for holder in holders),
        ended={status: Ended(hour[status], number) for status, number in day.items()},
        stuck=_stuck(runs),
        size=bodies + sum(map(len, state.blobs.values())),
    )


def _stuck(runs: list[StoredRun]) -> tuple[Stuck, ...]:
    noted = [stored.stuck for stored in runs if stored.due_at_us is not None]
    heads = [stored.position.seq for stored in runs if stored.due_at_us is not None]
    found = [note[1] for note, head in zip(noted, heads, strict=True) if note is not None and note[0] == head]
    return tuple(sorted(found, key=lambda stuck: (-stuck.failed_at_us, stuck.run))[:STUCK_MAX])
