"""The log and the limits in memory: what `RunLog` and `Limits` promise, in as few words as possible.

Every write goes through here: it is checked, charged, and then written with its messages and
notifications.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from onward.errors import LeaseLost, RunNotFound, StaleHistory
from onward.model.limits import DAY, bounded_sum, kind_of
from onward.model.row import RunRow
from onward.store.limits import (
    AddedUsage,
    Ledger,
    UsageKey,
    changed_limit,
    keys_closed,
    note_warnings,
    scopes_opened,
    summed_usage,
)
from onward.store.memory.messages import put_messages
from onward.store.memory.runs import put_notifications
from onward.store.memory.state import MemoryOwnership, State, StoredRun
from onward.store.owner import content_missing, key_occupied, run_exists
from onward.store.port import log as logs
from onward.store.port.leases import Lease
from onward.store.port.limits import Reservation, ReservationState, Scope, Spent, UsageKind, Warned


class MemoryLog:
    """Logs in this process's memory."""

    def __init__(self, state: State, ownership: MemoryOwnership, limits: MemoryLimits) -> None:
        self._state, self._ownership, self._limits = state, ownership, limits

    async def create(self, write: logs.Write, append_id: str | None = None) -> None:
        assert write.row is not None
        there = self._state.runs.get(write.run_id)
        if there is not None:
            if there.has(write.head) if append_id is None else append_id in there.appends:
                return
            raise run_exists(write.run_id)
        self._check_key(write)
        self._check_parent(write)
        check_content(self._state, write)
        made = StoredRun(write.row, [])
        self._state.runs[write.run_id] = made
        self._write(made, write)
        if append_id is not None:
            made.appends[append_id] = write.head.seq

    async def append(self, write: logs.Write, lease: Lease) -> None:
        stored = self._state.runs.get(write.run_id)
        if stored is None:
            raise RunNotFound(write.run_id)
        if stored.has(write.head):
            return  # this very write: its reply was lost
        if (stored.row.owner, stored.row.token) != (lease.owner, lease.token):
            raise LeaseLost(write.run_id, lease.token)
        if stored.position != write.after:
            raise StaleHistory(write.run_id, write.after.seq)
        check_content(self._state, write)
        self._change(stored, write)

    async def control(
        self, run_id: str, *, since: int, append_id: str, decide: logs.Decide
    ) -> logs.Controlled:
        stored = self._state.runs.get(run_id)
        if stored is None:
            raise RunNotFound(run_id)
        if append_id in stored.appends:
            return logs.Controlled(stored.position, is_repeat=True, answered=stored.appends[append_id])
        write = decide(self._held(stored), self._state.records(run_id, since))
        if write is None:
            return logs.Controlled(stored.position)
        self._check_key(write)
        if stored.position != write.after:
            raise StaleHistory(run_id, write.after.seq)
        check_content(self._state, write)
        self._change(stored, write)
        stored.appends[append_id] = write.head.seq
        return logs.Controlled(write.head)

    async def take(
        self, wanted: logs.TakeFilter, *, fold_version: int, decide: logs.DecideLoaded
    ) -> logs.Controlled | None:
        for stored in sorted(self._state.runs.values(), key=_queue_order):
            if self._is_due(stored, wanted):
                loaded = self._loaded(stored, fold_version, wanted.known_of(stored.row.id))
                write = decide(self._held(stored), loaded)
                if write is not None:
                    check_content(self._state, write)
                    self._change(stored, write)
                return logs.Controlled(stored.position)
        return None

    async def load(self, run_id: str, *, fold_version: int) -> logs.Loaded | None:
        stored = self._state.runs.get(run_id)
        return None if stored is None else self._loaded(stored, fold_version)

    async def bodies(self, run_id: str, kind: str) -> Sequence[str]:
        records = self._state.records(run_id, 0) if run_id in self._state.runs else []
        return [record.body for record in records if record.kind == kind]

    async def read(self, run_id: str, *, after: int, limit: int) -> Sequence[logs.StoredEvent]:
        return self._state.records(run_id, after)[:limit] if run_id in self._state.runs else []

    def _held(self, stored: StoredRun) -> logs.Held:
        holder = self._ownership.holder_of(stored)
        return logs.Held(stored.position, stored.row.status, holder, self._ownership.owner)

    def _is_due(self, stored: StoredRun, wanted: logs.TakeFilter) -> bool:
        row = stored.row
        if stored.due_at_us is None or stored.due_at_us > self._state.now_us():
            return False
        if row.needs in wanted.unserved or row.id in wanted.skipped:
            return False
        others = [other.row for other in self._state.runs.values() if other.row.owner is not None]
        if row.exclusive_key is not None and any(o.exclusive_key == row.exclusive_key for o in others):
            return False
        return row.max_running is None or sum(o.pipeline == row.pipeline for o in others) < row.max_running

    def _check_key(self, write: logs.Write) -> None:
        row = write.row
        if row is None or row.owner is None or row.exclusive_key is None:
            return
        for other in self._state.runs.values():
            held = other.row
            if held.id != row.id and held.exclusive_key == row.exclusive_key and held.owner is not None:
                raise key_occupied(row.exclusive_key, held.id, held.owner)

    def _check_parent(self, write: logs.Write) -> None:
        parent = None if write.row is None else write.row.parent
        if parent is None:
            return
        below = self._state.records(parent, write.after.seq - 1) if parent in self._state.runs else []
        if not below or (below[0].seq, below[0].hash) != write.after:
            raise RunNotFound(parent)

    def _change(self, stored: StoredRun, write: logs.Write) -> None:
        if write.calls:
            self._limits.charge(write)
        self._write(stored, write)

    def _write(self, stored: StoredRun, write: logs.Write) -> None:
        stored.records.extend(write.records)
        stored.gates.update((row.gate, row) for row in write.gates)
        if write.row is not None or write.gates:
            self._state.changes += 1
            stored.changed = self._state.changes
        put_messages(self._state, write)
        put_notifications(self._state, write.notifications)
        if write.row is not None:
            if write.row.token != stored.row.token or not stored.lease_until_us:
                stored.lease_until_us = self._ownership.lease_end()
            stored.due_at_us = self._due_at(stored, write.row, write.at_us)
            stored.row = write.row
        else:
            stored.row = _advanced_row(stored.row, write)
        if stored.row.wake_at_us is not None:
            for on_due in self._state.watchers:
                on_due()
        if write.blobs:
            self._state.put(write.blobs, write.at_us)
        stored.snapshot = write.snapshot or stored.snapshot

    def _due_at(self, stored: StoredRun, row: RunRow, at_us: int) -> int | None:
        """By this database's clock: as long from now as the writer's clock says."""
        if row.wake_at_us is None:
            return None
        if stored.due_at_us is not None and stored.row.wake_at_us == row.wake_at_us:
            return stored.due_at_us
        return self._state.now_us() + row.wake_at_us - at_us

    def _loaded(self, stored: StoredRun, fold_version: int, known: int | None = None) -> logs.Loaded:
        run_id, position, holder = stored.row.id, stored.position, self._ownership.holder_of(stored)
        snapshot = self._snapshot(run_id, position.seq, fold_version) if known is None else None
        after = known or (snapshot.seq if snapshot else 0)
        is_cut, is_due = position.seq - after > logs.TAIL_MAX, (stored.due_at_us or 0) <= self._state.now_us()
        tail = () if is_cut else self._state.records(run_id, after)
        return logs.Loaded(stored.row, position, holder, snapshot, tail, is_cut, is_due)

    def _snapshot(self, run_id: str, seq_max: int, fold_version: int) -> logs.Snapshot | None:
        stored = self._state.runs[run_id]
        found = stored.snapshot
        if found is not None and found.seq <= seq_max and found.fold_version == fold_version:
            return found
        row = stored.row
        if row.parent is None or row.parent_seq is None:
            return None
        return self._snapshot(row.parent, min(seq_max, row.parent_seq), fold_version)


def check_content(state: State, write: logs.Write, rest: Sequence[logs.StoredEvent] = ()) -> None:
    """Refuse a write that relies on content which is not stored."""
    relied_on = write.relied_on()
    if rest:
        relied_on |= logs.content_named(rest) - write.blobs.keys()
    if relied_on and not relied_on <= state.blobs.keys():
        raise content_missing(write.run_id)


def _queue_order(stored: StoredRun) -> tuple[int, int, str]:
    return -stored.row.priority, stored.due_at_us or 0, stored.row.id


def _advanced_row(row: RunRow, write: logs.Write) -> RunRow:
    return replace(
        row,
        head=write.head.seq,
        next_node=write.next_node,
        doubtful=write.doubtful,
        steps_finished=write.steps_finished,
        tokens=write.tokens,
        cost_micro=write.cost_micro,
        ticks=write.ticks,
        updated_at_us=write.at_us,
    )


_USAGE_FIELDS = {UsageKind.RUN: "run_id"}


class MemoryLimits:
    """The limits of a database, as one process sees them."""

    def __init__(self, ownership: MemoryOwnership) -> None:
        self._state, self._ownership = ownership.state, ownership
        self._warnings: dict[str, list[Warned]] = {}

    async def read(self, scopes: Sequence[str]) -> Sequence[Scope]:
        return [_scope(self._state, id) for id in scopes]

    async def list(self, *, limit: int) -> Sequence[Scope]:
        found = sorted((_scope(self._state, id) for id in self._state.scopes), key=lambda scope: scope.id)
        found.sort(key=lambda scope: scope.id if kind_of(scope.id) == DAY else "", reverse=True)
        return sorted(found, key=lambda scope: (scope.id != kind_of(scope.id), kind_of(scope.id)))[:limit]

    async def change(self, scope: str, changes: Mapping[str, int | None]) -> Scope:
        self._state.scopes[scope] = changed_limit(_scope(self._state, scope), changes)
        return _scope(self._state, scope)

    async def usage(self, by: UsageKind, *, limit: int) -> Sequence[Spent]:
        sums: dict[str, AddedUsage] = {}
        for key, used in self._state.usage.items():
            what = getattr(key, _USAGE_FIELDS.get(by, by.value))
            sums[what] = AddedUsage(*map(bounded_sum, sums.get(what, (0,) * len(used)), used))
        found = [Spent(what=what, **used._asdict()) for what, used in sums.items()]
        found.sort(key=lambda one: (-one.cost_micro, -one.tokens, one.what))
        if by is UsageKind.DAY:
            found.sort(key=lambda one: one.what, reverse=True)
        return found[:limit]

    async def reservations(self, run_id: str) -> Sequence[Reservation]:
        return [made for key, made in sorted(self._state.reservations.items()) if key.run_id == run_id]

    async def abandoned(self, scope: str) -> Sequence[str]:
        open_ = [
            made.run_id
            for made in self._state.reservations.values()
            if made.state is ReservationState.OPEN and scope in made.scopes
        ]
        return [id for id in sorted(set(open_)) if not self._is_alive(id)]

    def _is_alive(self, run_id: str) -> bool:
        holder = self._ownership.holder_of(self._state.runs[run_id])
        return holder is not None and holder.is_alive

    def take_warnings(self, run_id: str) -> Sequence[Warned]:
        return self._warnings.pop(run_id, ())

    def charge(self, write: logs.Write) -> None:
        """Reserve and settle for the calls of a write, or raise the refusal of one of them."""
        state, keys = self._state, keys_closed(write)
        open_ = {key: state.reservations[key] for key in keys if key in state.reservations}
        settled = {id for made in open_.values() for id in made.scopes}
        there = scopes_opened(write) | settled & state.scopes.keys()
        ledger = Ledger({id: _scope(state, id) for id in there}, open_)
        refusal = ledger.enter(write)
        if refusal is not None:
            raise refusal
        state.scopes.update(ledger.changed)
        state.reservations.update(ledger.written)
        state.usage.update(summed_usage([*_usage_there(state, ledger.used), *ledger.used]))
        note_warnings(self._warnings, ledger)


def _usage_there(
    state: State, used: Sequence[tuple[UsageKey, AddedUsage]]
) -> Sequence[tuple[UsageKey, AddedUsage]]:
    return [(key, state.usage[key]) for key in {key for key, _ in used} if key in state.usage]


def _scope(state: State, id: str) -> Scope:
    default = state.scopes.get(kind_of(id))
    found = state.scopes.get(id, Scope(id=id))
    return found if default is None else replace(found, default=default.own)


def forget_limits(state: State, run_id: str) -> None:
    """What goes with a run: its reservations and its own scope, and no spending of others."""
    state.scopes.pop(f"run/{run_id}", None)
    for key in [key for key in state.reservations if key.run_id == run_id]:
        del state.reservations[key]
