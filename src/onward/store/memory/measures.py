"""Measuring a database in memory: what `Measures` promises, in as few words as possible."""

from __future__ import annotations

from collections import Counter

from onward.model.notification import DeliveryState
from onward.store.memory.leases import MemoryWorkers
from onward.store.memory.state import Ownership, StoredRun
from onward.store.port.measures import (
    DAY_US,
    HOUR_US,
    NEEDS_MAX,
    STUCK_MAX,
    Ended,
    Measured,
    Stand,
    Stuck,
    Undelivered,
)
from onward.store.tallies import holdings_of


class MemoryMeasures:
    """Numbers about a database, as one process sees it."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership, self._state = ownership, ownership.state
        self._workers = MemoryWorkers(ownership)

    async def measure(self) -> Measured:
        now_us, runs = self._state.now_us(), list(self._state.runs.values())
        rows = [stored.row for stored in runs]
        turns = [stored.due_at_us for stored in runs if stored.due_at_us is not None]
        due = [due_at_us for due_at_us in turns if due_at_us <= now_us]
        holders = [holder for stored in runs if (holder := self._ownership.holder_of(stored)) is not None]
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
            needs=_needs(runs, now_us),
            workers=tuple(await self._workers.read()),
            undelivered=self._undelivered(),
            size=bodies + sum(map(len, self._state.blobs.values())),
        )

    def _undelivered(self) -> Undelivered:
        told = self._state.outbox.values()
        waiting = [one.created_at_us for one in told if one.state is DeliveryState.WAITING]
        failed = sum(one.state is DeliveryState.FAILED for one in told)
        return Undelivered(len(waiting), failed, min(waiting, default=None))

    async def note_stuck(self, run_id: str, why: str) -> None:
        stored = self._state.runs.get(run_id)
        if stored is not None:
            head, before = stored.position.seq, stored.stuck
            failures = before[1].failures if before is not None and before[0] == head else 0
            stored.stuck = head, Stuck(run_id, failures + 1, self._state.now_us(), why)


def _needs(runs: list[StoredRun], now_us: int) -> Counter[str]:
    due = [stored for stored in runs if stored.due_at_us is not None and stored.due_at_us <= now_us]
    due.sort(key=lambda stored: (-stored.row.priority, stored.due_at_us, stored.row.id))
    return Counter(stored.row.needs for stored in due[:NEEDS_MAX])


def _stuck(runs: list[StoredRun]) -> tuple[Stuck, ...]:
    noted = [stored.stuck for stored in runs if stored.due_at_us is not None]
    heads = [stored.position.seq for stored in runs if stored.due_at_us is not None]
    found = [note[1] for note, head in zip(noted, heads, strict=True) if note is not None and note[0] == head]
    return tuple(sorted(found, key=lambda stuck: (-stuck.failed_at_us, stuck.run))[:STUCK_MAX])
