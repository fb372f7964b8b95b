"""What is in memory: the tables that every process at one database shares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from onward.model.row import RunRow
from onward.store.measures import Stuck
from onward.store.port import Effect, Position, Record, Snapshot


@dataclass
class StoredRun:
    """One run's row, log and side tables."""

    row: RunRow
    records: list[Record]
    appends: set[str] = field(default_factory=set)
    snapshot: Snapshot | None = None
    lease_until_us: int = 0
    due_at_us: int | None = None
    stuck: tuple[int, Stuck] | None = None
    """A failed claim, and where the log ended then."""

    @property
    def position(self) -> Position:
        return Position(self.records[-1].seq, self.records[-1].hash)

    def has(self, position: Position) -> bool:
        """Whether this very event is in the log."""
        index = position.seq - self.records[0].seq
        return 0 <= index < len(self.records) and self.records[index].hash == position.hash


@dataclass
class State:
    """All runs, contents and effects, and who is alive. An effect comes with the end of its time."""

    now_us: Callable[[], int]
    runs: dict[str, StoredRun] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    effects: dict[str, tuple[Effect, int]] = field(default_factory=dict)
    touched: dict[str, int] = field(default_factory=dict)
    alive: set[str] = field(default_factory=set)
    watchers: list[Callable[[], None]] = field(default_factory=list)
