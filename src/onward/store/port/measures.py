"""How a database stands, as numbers for operators: one look at one instant, cheap with a million old runs.

Counts are exact. Those of finished runs are scans of an index alone, never of the table; all others cost what
is queued, held or lately ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec

from onward.model.run import RunStatus
from onward.model.worker import RegisteredWorker, WaitingFor, waiting_for

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US


class Stand(NamedTuple):
    """How runs stand: their status, why, and whether a person may resume them."""

    status: RunStatus
    reason: str
    recoverable: bool


class Ended(NamedTuple):
    """How many runs came to an end lately."""

    hour: int
    day: int


class Holding(NamedTuple):
    """A process that holds runs; stalled ones are those that it cannot be at work on any more."""

    owner: str
    runs: int
    stalled: int


class Stuck(NamedTuple):
    """A due run that could not be claimed: how often that failed, when it did last, and why."""

    run: str
    failures: int
    failed_at_us: int
    why: str


class Undelivered(NamedTuple):
    """Notifications that wait, since when the oldest does by its writer's clock, and that were given up."""

    waiting: int = 0
    failed: int = 0
    oldest_us: int | None = None


NONE_UNDELIVERED = Undelivered()
STUCK_MAX = 100
NEEDS_MAX = 10_000


class Measured(msgspec.Struct, frozen=True):
    """One look. `due` runs wait for a worker now, `later` ones for their time; `at_us` is the instant.

    `oldest_due_us` is since when the oldest due run has waited. `size` is in bytes, with what is beside the
    tables: indexes, logs that are not merged yet, space that is free for new rows. Of `stuck` runs the latest
    STUCK_MAX are there.
    """

    at_us: int
    runs: Mapping[Stand, int]
    due: int
    later: int
    oldest_due_us: int | None
    holdings: tuple[Holding, ...]
    ended: Mapping[RunStatus, Ended]
    size: int
    stuck: tuple[Stuck, ...] = ()
    needs: Mapping[str, int] = msgspec.field(default_factory=dict)
    """How many runs at the front of the queue have which needs, as they are stored."""
    workers: tuple[RegisteredWorker, ...] = ()
    undelivered: Undelivered = NONE_UNDELIVERED

    @property
    def unserved(self) -> Mapping[WaitingFor, int]:
        """How many due runs wait for what no live worker has; of the first NEEDS_MAX in the queue."""
        found = Counter[WaitingFor]()
        for needs, number in self.needs.items():
            waiting = waiting_for(needs.split(), self.workers)
            if waiting is not None:
                found[waiting] += number
        return found

    @property
    def statuses(self) -> Mapping[RunStatus, int]:
        """Runs by status alone; every status is there."""
        found = dict.fromkeys(RunStatus, 0)
        for stand, number in self.runs.items():
            found[stand.status] += number
        return found

    @property
    def recoverable(self) -> int:
        return sum(number for stand, number in self.runs.items() if stand.recoverable)

    @property
    def held(self) -> int:
        return sum(holding.runs for holding in self.holdings)

    @property
    def stalled(self) -> int:
        return sum(holding.stalled for holding in self.holdings)

    @property
    def queue_age_s(self) -> float:
        """How long the oldest due run has waited; 0 when none does."""
        return 0.0 if self.oldest_due_us is None else max(0, self.at_us - self.oldest_due_us) / 1_000_000


class Measures(Protocol):
    """Numbers for operators."""

    async def measure(self) -> Measured:
        """How the database stands, as one consistent look that blocks no other process."""
        ...

    async def note_stuck(self, run_id: str, why: str) -> None:
        """Note that a due run could not be claimed. Once its log has grown, the note says nothing."""
        ...
