"""Memory: the reference. What it does is what the databases must do, in as few words as possible.

`MemoryDatabase` is the shared thing; each `MemoryStore` stands for one process that uses it. A process
that is `killed` stays in the table as an owner that is certainly dead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from onward.clock import SystemClock, SystemIds
from onward.errors import LeaseLost, RunNotFound, StaleHistory
from onward.model.identity import Identity
from onward.model.row import RunRow
from onward.model.run import RunStatus
from onward.store.carrying import Arrival
from onward.store.measures import Measured, Stuck
from onward.store.memory import forgetting
from onward.store.memory.effects import EffectTable
from onward.store.memory.measuring import measured
from onward.store.memory.state import State, StoredRun
from onward.store.port import (
    TAIL_MAX,
    Controlled,
    Decide,
    DecideLoaded,
    Effect,
    Held,
    Holder,
    Lease,
    Listed,
    Loaded,
    Record,
    RunQuery,
    Snapshot,
    Unwatch,
    Wanted,
    Write,
    content_named,
    read_with,
)
from onward.store.refusals import content_missing, key_occupied, run_exists
from onward.store.retention import Expiry, Kin, Swept


class MemoryDatabase(State):
    """What several stores share."""

    def __init__(self, now_us: Callable[[], int] | None = None) -> None:
        super().__init__(now_us or SystemClock().now_us)
        self.identity = Identity(SystemIds().unique())
        self._processes = 0

    def connect(self, lease_s: float | None = None) -> MemoryStore:
        """A new process at this database."""
        self._processes += 1
        return MemoryStore(self, f"{self._processes}@memory/{self._processes}", lease_s)


class MemoryStore:
    """Runs in this process's memory. With `lease_s` an owner is alive until its time is over."""

    def __init__(self, database: MemoryDatabase, me: str, lease_s: float | None = None) -> None:
        self.database, self._me, self._lease_s = database, me, lease_s
        self._effects = EffectTable(database, me, lease_s)
        database.alive.add(me)

    @property
    def identity(self) -> Identity:
        return self.database.identity

    @property
    def me(self) -> str:
        return self._me

    @property
    def lease_s(self) -> float | None:
        return self._lease_s

    @property
    def heartbeat_s(self) -> float:
        return 0.05

    def kill(self) -> None:
        """From now on this process is dead to everybody."""
        self.database.alive.discard(self._me)

    async def create(self, write: Write, append_id: str | None = None) -> None:
        assert write.row is not None
        there = self.database.runs.get(write.run_id)
        if there is not None:
            if there.has(write.head) if append_id is None else append_id in there.appends:
                return
            raise run_exists(write.run_id)
        self._check_key(write)
        self._check_parent(write)
        self._check_content(write)
        made = StoredRun(write.row, [])
        self.database.runs[write.run_id] = made
        self._write(made, write)
        if append_id is not None:
            made.appends.add(append_id)

    async def append(self, write: Write, lease: Lease) -> None:
        stored = self.database.runs.get(write.run_id)
        if stored is None:
            raise RunNotFound(write.run_id)
        if stored.has(write.head):
            return  # this very write: its reply was lost
        if (stored.row.owner, stored.row.token) != (lease.owner, lease.token):
            raise LeaseLost(write.run_id, lease.token)
        if stored.position != write.after:
            raise StaleHistory(write.run_id, write.after.seq)
        self._check_content(write)
        self._write(stored, write)

    async def control(self, run_id: str, *, since: int, append_id: str, decide: Decide) -> Controlled:
        stored = self.database.runs.get(run_id)
        if stored is None:
            raise RunNotFound(run_id)
        if append_id in stored.appends:
            return Controlled(stored.position, is_repeat=True)
        held = Held(stored.position, stored.row.status, self._holder(stored), self._me)
        write = decide(held, self._records(run_id, since))
        if write is None:
            return Controlled(stored.position)
        self._check_key(write)
        if stored.position != write.after:
            raise StaleHistory(run_id, write.after.seq)
        self._check_content(write)
        self._write(stored, write)
        stored.appends.add(append_id)
        return Controlled(write.head)

    async def take(self, wanted: Wanted, *, fold_version: int, decide: DecideLoaded) -> Controlled | None:
        for stored in sorted(self.database.runs.values(), key=_turn):
            if self._is_due(stored, wanted):
                loaded = self._loaded(stored, fold_version, wanted.known_of(stored.row.id))
                held = Held(stored.position, stored.row.status, loaded.holder, self._me)
                write = decide(held, loaded)
                if write is not None:
                    self._check_content(write)
                    self._write(stored, write)
                return Controlled(stored.position)
        return None

    def _is_due(self, stored: StoredRun, wanted: Wanted) -> bool:
        row = stored.row
        if stored.due_at_us is None or stored.due_at_us > self.database.now_us():
            return False
        if row.needs in wanted.unserved or row.id in wanted.skipped:
            return False
        others = [other.row for other in self.database.runs.values() if other.row.owner is not None]
        if row.exclusive_key is not None and any(o.exclusive_key == row.exclusive_key for o in others):
            return False
        return row.max_running is None or sum(o.pipeline == row.pipeline for o in others) < row.max_running

    async def held(self) -> Sequence[Listed]:
        runs = sorted(self.database.runs.values(), key=lambda stored: stored.row.id)
        return [Listed(run.row, self._holder(run)) for run in runs if run.row.owner is not None]

    def _check_key(self, write: Write) -> None:
        row = write.row
        if row is None or row.owner is None or row.exclusive_key is None:
            return
        for other in self.database.runs.values():
            held = other.row
            if held.id != row.id and held.exclusive_key == row.exclusive_key and held.owner is not None:
                raise key_occupied(row.exclusive_key, held.id, held.owner)

    def _check_parent(self, write: Write) -> None:
        parent = None if write.row is None else write.row.parent
        if parent is None:
            return
        below = self._records(parent, write.after.seq - 1) if parent in self.database.runs else []
        if not below or (below[0].seq, below[0].hash) != write.after:
            raise RunNotFound(parent)

    def _check_content(self, write: Write, rest: Sequence[Record] = ()) -> None:
        relied_on = write.relied_on
        if rest:
            relied_on |= content_named(rest) - write.blobs.keys()
        if relied_on and not relied_on <= self.database.blobs.keys():
            raise content_missing(write.run_id)

    def _write(self, stored: StoredRun, write: Write) -> None:
        stored.records.extend(write.records)
        if write.row is not None:
            if write.row.token != stored.row.token or not stored.lease_until_us:
                stored.lease_until_us = self._lease_end()
            stored.due_at_us = self._due_at(stored, write.row, write.at_us)
            stored.row = write.row
        else:
            stored.row = _advanced(stored.row, write)
        if stored.row.wake_at_us is not None:
            for on_due in self.database.watchers:
                on_due()
        self.database.blobs.update(write.blobs)
        self.database.touched.update(dict.fromkeys(write.blobs, write.at_us))
        stored.snapshot = write.snapshot or stored.snapshot

    def _due_at(self, stored: StoredRun, row: RunRow, at_us: int) -> int | None:
        """By this database's clock: as long from now as the writer's clock says."""
        if row.wake_at_us is None:
            return None
        if stored.due_at_us is not None and stored.row.wake_at_us == row.wake_at_us:
            return stored.due_at_us
        return self.database.now_us() + row.wake_at_us - at_us

    def _lease_end(self) -> int:
        return self.database.now_us() + int((self._lease_s or 0) * 1_000_000)

    def _holder(self, stored: StoredRun) -> Holder | None:
        owner = stored.row.owner
        if owner is None:
            return None
        in_time = self._lease_s is None or stored.lease_until_us > self.database.now_us()
        return Holder(owner, stored.row.token, owner in self.database.alive and in_time)

    async def renew(self, leases: Sequence[Lease]) -> Mapping[str, int]:
        heads: dict[str, int] = {}
        for run_id, owner, token in leases:
            stored = self.database.runs.get(run_id)
            if stored is not None and (stored.row.owner, stored.row.token) == (owner, token):
                stored.lease_until_us = self._lease_end()
                heads[run_id] = stored.position.seq
        return heads

    async def load(self, run_id: str, *, fold_version: int) -> Loaded | None:
        stored = self.database.runs.get(run_id)
        return None if stored is None else self._loaded(stored, fold_version)

    def _loaded(self, stored: StoredRun, fold_version: int, known: int | None = None) -> Loaded:
        run_id, position, holder = stored.row.id, stored.position, self._holder(stored)
        snapshot = self._snapshot(run_id, position.seq, fold_version) if known is None else None
        after = known or (snapshot.seq if snapshot else 0)
        is_cut, is_due = position.seq - after > TAIL_MAX, (stored.due_at_us or 0) <= self.database.now_us()
        tail = () if is_cut else self._records(run_id, after)
        return Loaded(stored.row, position, holder, snapshot, tail, is_cut, is_due)

    def _snapshot(self, run_id: str, seq_max: int, fold_version: int) -> Snapshot | None:
        stored = self.database.runs[run_id]
        found = stored.snapshot
        if found is not None and found.seq <= seq_max and found.fold_version == fold_version:
            return found
        row = stored.row
        if row.parent is None or row.parent_seq is None:
            return None
        return self._snapshot(row.parent, min(seq_max, row.parent_seq), fold_version)

    async def read(self, run_id: str, *, after: int, limit: int) -> Sequence[Record]:
        if run_id not in self.database.runs:
            return []
        return self._records(run_id, after)[:limit]

    def _records(self, run_id: str, after: int) -> list[Record]:
        stored = self.database.runs[run_id]
        own = [self._filled(record) for record in stored.records if record.seq > after]
        row = stored.row
        if row.parent is None or row.parent_seq is None or after >= row.parent_seq:
            return own
        shared = self._records(row.parent, after)
        return [record for record in shared if record.seq <= row.parent_seq] + own

    def _filled(self, record: Record) -> Record:
        return replace(record, values=self._values(read_with(record.refs))) if record.refs else record

    def _values(self, names: Sequence[str]) -> dict[str, bytes]:
        return {name: self.database.blobs[name] for name in names if name in self.database.blobs}

    async def blob(self, hash: str) -> bytes | None:
        return self.database.blobs.get(hash)

    async def begin_effect(
        self, key: str, token: str, *, at_us: int, instead_of: str | None = None
    ) -> Effect:
        return self._effects.begin(key, token, at_us, instead_of)

    async def finish_effect(self, key: str, token: str, result: bytes, *, at_us: int) -> bool:
        return self._effects.finish(key, token, result, at_us)

    async def renew_effect(self, key: str, token: str, *, is_at_it: bool = True) -> bool:
        return self._effects.renew(key, token, is_at_it)

    async def forget_effect(self, key: str, token: str) -> None:
        self._effects.forget(key, token)

    async def find_effect(self, key: str) -> Effect | None:
        return self._effects.find(key)

    async def read_effects(self, under: str, *, limit: int) -> Sequence[Effect]:
        return self._effects.read(under, limit)

    async def find(self, wanted: str) -> Sequence[Listed]:
        runs = sorted(self.database.runs.values(), key=lambda stored: stored.row.id)
        found = [stored for stored in runs if stored.row.display_id == wanted]
        found = found or [stored for stored in runs if stored.row.id == wanted]
        if not found and wanted:
            found = [s for s in runs if s.row.id.startswith(wanted) or s.row.display_id.startswith(wanted)]
        return [Listed(stored.row, self._holder(stored)) for stored in found[:20]]

    async def forks(self, run_id: str) -> Sequence[Listed]:
        found = [stored for stored in self.database.runs.values() if stored.row.parent == run_id]
        found.sort(key=lambda stored: (stored.row.created_at_us, stored.row.id))
        return [Listed(stored.row, self._holder(stored)) for stored in found]

    async def list(self, query: RunQuery) -> Sequence[Listed]:
        found = [
            stored
            for stored in self.database.runs.values()
            if (not query.statuses or stored.row.status in query.statuses)
            and (query.pipeline is None or stored.row.pipeline == query.pipeline)
        ]
        found.sort(key=lambda stored: (stored.row.created_at_us, stored.row.id), reverse=True)
        return [Listed(stored.row, self._holder(stored)) for stored in found[: query.limit]]

    async def count(self) -> Mapping[RunStatus, int]:
        counts: dict[RunStatus, int] = {}
        for stored in self.database.runs.values():
            counts[stored.row.status] = counts.get(stored.row.status, 0) + 1
        return counts

    async def expired(self, expiry: Expiry) -> Sequence[Kin]:
        return forgetting.expired(self.database, expiry)

    async def attached(self) -> Sequence[Kin]:
        return forgetting.attached(self.database)

    async def delete(self, runs: Sequence[Kin]) -> Sequence[str]:
        return forgetting.delete(self.database, runs)

    async def sweep_blobs(self, before_us: int, limit: int) -> Swept:
        return forgetting.sweep_blobs(self.database, before_us, limit)

    async def keep_blobs(self, blobs: Mapping[str, bytes], *, at_us: int) -> None:
        self.database.blobs.update(blobs)
        self.database.touched.update(dict.fromkeys(blobs, at_us))

    async def receive(self, arrival: Arrival) -> None:
        write = arrival.write
        there = self.database.runs.get(write.run_id)
        if there is not None and there.has(write.head):
            return
        rest = [record for page in arrival.rest() for record in page]
        self._check_content(write, rest)
        await self.create(write, arrival.append_id)
        self.database.runs[write.run_id].records.extend(rest)
        for effect in arrival.effects:
            self.database.effects.setdefault(effect.key, (effect, 0))

    async def measure(self) -> Measured:
        return measured(self.database, self._holder)

    async def note_stuck(self, run_id: str, why: str) -> None:
        stored = self.database.runs.get(run_id)
        if stored is not None:
            head, before = stored.position.seq, stored.stuck
            failures = before[1].failures if before is not None and before[0] == head else 0
            stored.stuck = head, Stuck(run_id, failures + 1, self.database.now_us(), why)

    async def watch(self, on_due: Callable[[], None]) -> Unwatch:
        self.database.watchers.append(on_due)

        async def unwatch() -> None:
            self.database.watchers.remove(on_due)

        return unwatch

    async def check(self) -> Sequence[tuple[str, bool, str]]:
        return (("durability", False, "memory keeps nothing; use SQLite or PostgreSQL to keep runs"),)

    async def close(self) -> None:
        self.kill()


def _turn(stored: StoredRun) -> tuple[int, int, str]:
    return -stored.row.priority, stored.due_at_us or 0, stored.row.id


def _advanced(row: RunRow, write: Write) -> RunRow:
    return replace(
        row,
        head=write.head.seq,
        next_node=write.next_node,
        steps_finished=write.steps_finished,
        updated_at_us=write.at_us,
    )
