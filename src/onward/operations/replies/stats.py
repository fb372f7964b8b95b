"""The numbers of a database, as a reply; `onward stats --json` prints them."""

from __future__ import annotations

from typing import TypedDict

from onward.operations.replies.instant import Instant


class ReasonCounted(TypedDict):
    """How many runs have a status for a reason."""

    status: str
    reason: str
    recoverable: bool
    runs: int


class RunsCounted(TypedDict):
    """The runs of a database in numbers."""

    total: int
    by_status: dict[str, int]
    by_reason: list[ReasonCounted]
    recoverable: int
    held: int
    stalled: int
    waiting: int


class RunStuck(TypedDict):
    """A due run that could not be claimed."""

    run: str
    failures: int
    failed_at: Instant
    why: str


class RunsUnserved(TypedDict):
    """Due runs that no live worker can serve, and what they wait for."""

    runs: int
    workers: int
    handlers: list[str]
    directory: str | None
    says: str


class Undelivered(TypedDict):
    """The notifications that were not delivered."""

    waiting: int
    failed: int
    oldest_waiting: Instant | None


class QueueMeasured(TypedDict):
    """The runs that wait for a worker."""

    due: int
    later: int
    oldest_due: Instant | None
    age_s: float
    stuck: list[RunStuck]
    unserved: list[RunsUnserved]


class HolderCounted(TypedDict):
    """A process that holds runs, in numbers."""

    worker: str
    runs: int
    stalled: int


class Stats(TypedDict):
    """How the database stands at one moment."""

    at: Instant
    runs: RunsCounted
    queue: QueueMeasured
    ended: dict[str, dict[str, int]]
    workers: list[HolderCounted]
    database_bytes: int
    notifications: Undelivered
