"""What both SQL databases answer when they are measured, as numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from onward.model.run import RunStatus
from onward.store import rows
from onward.store.port.measures import Ended, Holding, Measured, Stand, Stuck, Undelivered

MEASURES = (
    *("run_count", "measure_reasons", "measure_queue", "measure_holders", "measure_ended", "measure_stuck"),
    *("measure_needs", "worker_read"),
    "measure_outbox",
)
"""The queries, in the order of the answers in `Found`."""
Rows = Sequence[Sequence[Any]]


class Found(NamedTuple):
    """What the queries answered, at which instant, and how many bytes the database has."""

    at_us: int
    size: int
    statuses: Rows
    reasons: Rows
    queue: Rows
    holders: Rows
    ended: Rows
    stuck: Rows
    needs: Rows
    workers: Rows
    outbox: Rows


def measured(found: Found, is_alive: Callable[[str, bool], bool]) -> Measured:
    """The answers as numbers; `is_alive` judges owners."""
    queue = {bool(is_due): (number, oldest) for is_due, number, oldest in found.queue}
    due, oldest_due_us = queue.get(True, (0, None))
    return Measured(
        at_us=found.at_us,
        runs=_stands(dict(rows.sound(found.statuses, rows.counted)), dict(rows.sound(found.reasons, _stand))),
        due=due,
        later=queue.get(False, (0, None))[0],
        oldest_due_us=oldest_due_us,
        holdings=holdings_of(
            # A run that is being driven is renewed, so one whose lease is over is stalled even if a lock says
            # that its process lives.
            (owner, number, not is_expired and is_alive(owner, False))
            for owner, is_expired, number in found.holders
        ),
        ended=dict(rows.sound(found.ended, _ended)),
        size=found.size,
        stuck=tuple(Stuck(*columns) for columns in found.stuck),
        needs={needs: number for needs, number in found.needs},
        workers=tuple(rows.sound(found.workers, lambda columns: rows.worker_of(columns, is_alive))),
        undelivered=undelivered_of({state: (number, oldest) for state, number, oldest in found.outbox}),
    )


def holdings_of(held: Iterable[tuple[str, int, bool]]) -> tuple[Holding, ...]:
    """Who holds how many: from owners, numbers of runs, and whether those are alive."""
    found: dict[str, Holding] = {}
    for owner, number, is_alive in held:
        known = found.get(owner, Holding(owner, 0, 0))
        stalled = known.stalled + (0 if is_alive else number)
        found[owner] = Holding(owner, known.runs + number, stalled)
    return tuple(found[owner] for owner in sorted(found))


def undelivered_of(found: Mapping[str, tuple[int, int]]) -> Undelivered:
    """Notifications by state: how many, and when the oldest was created."""
    waiting, oldest_us = found.get("waiting", (0, None))
    return Undelivered(waiting, found.get("failed", (0, 0))[0], oldest_us)


def _stands(statuses: Mapping[RunStatus, int], reasons: Mapping[Stand, int]) -> Mapping[Stand, int]:
    """Runs by stand, from all by status and those that have a reason: the rest have none."""
    without = dict(statuses)
    for stand, number in reasons.items():
        without[stand.status] -= number
    bare = {Stand(status, "", False): number for status, number in without.items() if number}
    return {**bare, **reasons}


def _stand(columns: Sequence[Any]) -> tuple[Stand, int]:
    status, reason, recoverable, number = columns
    return Stand(rows.status_of(status, f"{number} runs"), reason, bool(recoverable)), number


def _ended(columns: Sequence[Any]) -> tuple[RunStatus, Ended]:
    status, hour, day = columns
    return rows.status_of(status, f"{day} runs"), Ended(hour, day)
