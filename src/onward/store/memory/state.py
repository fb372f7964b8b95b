"""What is in memory: the tables that every process at one database shares, and one process as an owner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from onward.model.chats.intake import Intake
from onward.model.notification import NotificationKind
from onward.model.row import GateRow, RunRow
from onward.model.values.amounts import CHAT_TOKENS
from onward.model.worker import RegisteredWorker
from onward.store.limits.ledger import ReservationKey, UsageKey, Used
from onward.store.memory.chats.said import Said
from onward.store.port.effects import Effect
from onward.store.port.leases import Holder
from onward.store.port.measures import Stuck
from onward.store.port.money.limits import Reservation, Scope
from onward.store.port.outbox import Delivery
from onward.store.port.registry.pipelines import RegisteredPipeline, RegisteredVersion
from onward.store.port.runs import Listed
from onward.store.port.stored import Position, Snapshot, StoredEvent, read_with


@dataclass
class StoredRun:
    """One run's row, log and side tables."""

    row: RunRow
    records: list[StoredEvent]
    gates: dict[str, GateRow] = field(default_factory=dict)
    appends: dict[str, int] = field(default_factory=dict)
    """The last event of each request, by its append id."""
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
    """All runs, contents, effects and workers, and who is alive. An effect or a worker comes with the end of
    its time."""

    now_us: Callable[[], int]
    runs: dict[str, StoredRun] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    effects: dict[str, tuple[Effect, int]] = field(default_factory=dict)
    touched: dict[str, int] = field(default_factory=dict)
    workers: dict[str, tuple[RegisteredWorker, int]] = field(default_factory=dict)
    subscribers: dict[str, tuple[frozenset[NotificationKind], int]] = field(default_factory=dict)
    outbox: dict[tuple[str, str], Delivery] = field(default_factory=dict)
    scopes: dict[str, Scope] = field(
        default_factory=lambda: {"chat": Scope(id="chat", own=(CHAT_TOKENS, None, None))}
    )
    reservations: dict[ReservationKey, Reservation] = field(default_factory=dict)
    usage: dict[UsageKey, Used] = field(default_factory=dict)
    chats: dict[str, int] = field(default_factory=dict)
    said: dict[str, Said] = field(default_factory=dict)
    pipelines: dict[str, RegisteredPipeline] = field(default_factory=dict)
    versions: dict[str, list[RegisteredVersion]] = field(default_factory=dict)
    intakes: dict[str, Intake] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)
    """How many runs the messages of a chat have started."""
    chat_projects: dict[str, str] = field(default_factory=dict)
    alive: set[str] = field(default_factory=set)
    watchers: list[Callable[[], None]] = field(default_factory=list)

    def records(self, run_id: str, after: int) -> list[StoredEvent]:
        """A run's log with its large values; before its fork point that is its parent's."""
        stored = self.runs[run_id]
        own = [self._filled(record) for record in stored.records if record.seq > after]
        row = stored.row
        if row.parent is None or row.parent_seq is None or after >= row.parent_seq:
            return own
        shared = self.records(row.parent, after)
        return [record for record in shared if record.seq <= row.parent_seq] + own

    def _filled(self, record: StoredEvent) -> StoredEvent:
        if not record.refs:
            return record
        values = {name: self.blobs[name] for name in read_with(record.refs) if name in self.blobs}
        return replace(record, values=values)

    def put(self, blobs: Mapping[str, bytes], at_us: int) -> None:
        """Store content, or touch what is stored."""
        self.blobs.update(blobs)
        self.touched.update(dict.fromkeys(blobs, at_us))


class Ownership(msgspec.Struct, frozen=True):
    """One process as an owner. With `lease_s` an owner is alive until its time is over."""

    state: State
    owner: str
    lease_s: float | None

    def lease_end(self) -> int:
        return self.state.now_us() + int((self.lease_s or 0) * 1_000_000)

    def holder_of(self, stored: StoredRun) -> Holder | None:
        """Who holds a run, and whether it is alive."""
        owner = stored.row.owner
        if owner is None:
            return None
        return Holder(owner, stored.row.token, self.is_alive(owner, stored.lease_until_us))

    def is_alive(self, owner: str, until_us: int) -> bool:
        """Whether a process is alive, whose time is over at `until_us`."""
        in_time = self.lease_s is None or until_us > self.state.now_us()
        return owner in self.state.alive and in_time

    def listed(self, runs: Sequence[StoredRun]) -> Sequence[Listed]:
        return [Listed(stored.row, self.holder_of(stored)) for stored in runs]
