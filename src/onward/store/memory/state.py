"""The tables in memory, and the processes at them: ownership, leases, workers and effects.

All processes at a database share the tables. A message is there with its chunks and the token of its
writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from onward.model.chat import Chunk, Intake, Message
from onward.model.limits import CALLS_PER_RUN, CHAT_TOKENS
from onward.model.row import GateRow, NotificationKind, Offer, RegisteredWorker, RunRow
from onward.store.limits import AddedUsage, ReservationKey, UsageKey
from onward.store.message_rows import LockedMessage
from onward.store.port.leases import Effect, Holder, Lease
from onward.store.port.limits import Reservation, Scope
from onward.store.port.log import Position, Snapshot, StoredEvent, read_with
from onward.store.port.principals import AuditRow, Principal
from onward.store.port.retention import RegisteredPipeline, RegisteredVersion
from onward.store.port.runs import Delivery, Listed, Stuck


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
    changed: int = 0
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
        default_factory=lambda: {
            "chat": Scope(id="chat", own=(CHAT_TOKENS, None, None)),
            "run": Scope(id="run", own=(None, None, CALLS_PER_RUN)),
        }
    )
    reservations: dict[ReservationKey, Reservation] = field(default_factory=dict)
    usage: dict[UsageKey, AddedUsage] = field(default_factory=dict)
    chats: dict[str, int] = field(default_factory=dict)
    said: dict[str, StoredMessage] = field(default_factory=dict)
    pipelines: dict[str, RegisteredPipeline] = field(default_factory=dict)
    versions: dict[str, list[RegisteredVersion]] = field(default_factory=dict)
    intakes: dict[str, Intake] = field(default_factory=dict)
    turns: dict[str, int] = field(default_factory=dict)
    """How many runs the messages of a chat have started."""
    chat_projects: dict[str, str] = field(default_factory=dict)
    principals: dict[str, Principal] = field(default_factory=dict)
    audit: dict[int, AuditRow] = field(default_factory=dict)
    audit_n: int = 0
    """The number of the newest row of the audit, also if it is gone."""
    changes: int = 0
    """The number of the newest change."""
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


class MemoryOwnership(msgspec.Struct, frozen=True):
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


@dataclass
class StoredMessage:
    """A message and its chunks, under the token of whoever writes it."""

    message: Message
    token: int
    next_index: int = 0
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def locked(self) -> LockedMessage:
        """What a flush is judged by."""
        one = self.message
        return LockedMessage(0, one.run_id, one.state, self.token, self.next_index, 0, 0)


HEARTBEAT_S = 0.05
WORKER_RENEW_S = 20.0


class MemoryLeases:
    """The leases of one process."""

    def __init__(self, ownership: MemoryOwnership) -> None:
        self._ownership = ownership

    @property
    def owner(self) -> str:
        return self._ownership.owner

    @property
    def lease_s(self) -> float | None:
        return self._ownership.lease_s

    @property
    def heartbeat_s(self) -> float:
        return HEARTBEAT_S

    @property
    def news(self) -> asyncio.Event:
        return asyncio.Event()  # nothing tells; the heartbeat is quick instead

    async def renew(self, leases: Sequence[Lease]) -> Mapping[str, int]:
        heads: dict[str, int] = {}
        for run_id, owner, token in leases:
            stored = self._ownership.state.runs.get(run_id)
            if stored is not None and (stored.row.owner, stored.row.token) == (owner, token):
                stored.lease_until_us = self._ownership.lease_end()
                heads[run_id] = stored.position.seq
        return heads


class MemoryWorkers:
    """The workers at a database, as one process sees them."""

    def __init__(self, ownership: MemoryOwnership) -> None:
        self._ownership, self._workers = ownership, ownership.state.workers

    @property
    def renew_s(self) -> float:
        return (self._ownership.lease_s or WORKER_RENEW_S * 3) / 3

    async def register(self, offer: Offer) -> None:
        owner, known = self._ownership.owner, self._workers.get(self._ownership.owner)
        started_at_us = self._ownership.state.now_us() if known is None else known[0].started_at_us
        worker = RegisteredWorker(owner, offer, started_at_us, is_alive=True)
        self._workers[owner] = worker, self._ownership.lease_end()

    async def leave(self) -> None:
        self._workers.pop(self._ownership.owner, None)

    async def read(self) -> Sequence[RegisteredWorker]:
        found = [
            replace(worker, is_alive=self._ownership.is_alive(worker.owner, until_us))
            for worker, until_us in self._workers.values()
        ]
        return sorted(found, key=lambda worker: (worker.started_at_us, worker.owner))

    async def tidy(self) -> int:
        dead = [worker.owner for worker in await self.read() if not worker.is_alive]
        for owner in dead:
            del self._workers[owner]
        return len(dead)


EFFECT_LEASE_S = 60.0


class MemoryEffects:
    """The effects of a database, as one process sees them."""

    def __init__(self, ownership: MemoryOwnership) -> None:
        self._ownership, self._state = ownership, ownership.state

    async def begin(self, key: str, token: str, *, at_us: int, instead_of: str | None = None) -> Effect:
        there = self._find(key)
        if there is None or (there.token == instead_of and there.result is None):
            self._state.effects[key] = Effect(key, token, self._ownership.owner, True, at_us), self._end_us()
        found = self._find(key)
        assert found is not None
        return found

    async def finish(self, key: str, token: str, result: bytes, *, at_us: int) -> bool:
        there = self._find(key)
        if there is None or there.token != token:
            return False
        if there.result is None:
            self._state.effects[key] = replace(there, result=result, finished_at_us=at_us), 0
        return True

    async def renew(self, key: str, token: str, *, is_at_it: bool = True) -> bool:
        there = self._find(key)
        if there is None or there.token != token or there.result is not None:
            return False
        self._state.effects[key] = there, self._end_us() if is_at_it else 0
        return True

    async def forget(self, key: str, token: str) -> None:
        there = self._state.effects.get(key)
        if there is not None and there[0].token == token:
            del self._state.effects[key]

    async def find(self, key: str) -> Effect | None:
        return self._find(key)

    async def read(self, under: str, *, limit: int) -> Sequence[Effect]:
        keys = sorted(key for key in self._state.effects if key.startswith(f"{under}/"))
        found = [self._find(key) for key in keys[:limit]]
        return [effect for effect in found if effect is not None]

    def _find(self, key: str) -> Effect | None:
        if key not in self._state.effects:
            return None
        there, until_us = self._state.effects[key]
        is_alive = there.owner in self._state.alive and until_us > self._state.now_us()
        return replace(there, is_alive=is_alive)

    def _end_us(self) -> int:
        return self._state.now_us() + int((self._ownership.lease_s or EFFECT_LEASE_S) * 1_000_000)
