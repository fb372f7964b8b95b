"""Lists of runs, gates and notifications in memory, and the numbers for operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from onward.model.chat import READING_TAG
from onward.model.row import DeliveryState, GateRow, NotificationKind, RunRow, Telling
from onward.model.run import RunStatus
from onward.model.values import tags_in
from onward.store.memory.state import MemoryOwnership, MemoryWorkers, State, StoredRun
from onward.store.port import runs as port
from onward.store.rows import holdings_of

FOUND_MAX = 20


class MemoryRuns:
    """The runs of a database, as one process sees their holders."""

    def __init__(self, ownership: MemoryOwnership) -> None:
        self._ownership, self._runs = ownership, ownership.state.runs

    async def find(self, wanted: str) -> Sequence[port.Listed]:
        runs = sorted(self._runs.values(), key=_by_id)
        found = [stored for stored in runs if stored.row.id == wanted]
        found = found or [stored for stored in runs if stored.row.display_id == wanted]
        if not found and wanted:
            found = [s for s in runs if s.row.id.startswith(wanted) or s.row.display_id.startswith(wanted)]
        return self._ownership.listed(found[:FOUND_MAX])

    async def list(self, query: port.RunQuery) -> Sequence[port.Listed]:
        found = [stored for stored in self._runs.values() if _fits_query(stored.row, query)]
        return self._ownership.listed(sorted(found, key=by_age, reverse=True)[: query.limit])

    async def heads(self, ids: Collection[str]) -> Mapping[str, port.RunHead]:
        found = [self._runs[id] for id in ids if id in self._runs]
        return {
            stored.row.id: port.RunHead(
                stored.row.id,
                stored.row.head,
                stored.row.status,
                stored.changed,
                self._ownership.holder_of(stored),
            )
            for stored in found
        }

    async def changed(self, after: int, limit: int) -> port.Changes:
        runs = sorted(self._runs.values(), key=lambda stored: stored.changed)
        found = [stored for stored in runs if stored.changed > after][:limit]
        listed = self._ownership.listed(found)
        changed = [port.ChangedRun(one, stored.changed) for one, stored in zip(listed, found, strict=True)]
        newest = await self.change_number()
        return port.Changes(changed, changed[-1].changed if len(found) >= limit else newest)

    async def change_number(self) -> int:
        return self._ownership.state.changes

    async def of_chats(self, chats: Collection[str]) -> Mapping[str, port.Listed]:
        runs = [stored for stored in sorted(self._runs.values(), key=by_age) if _does_work(stored.row)]
        newest = {stored.row.chat: stored for stored in runs if stored.row.chat in chats}
        return {
            chat: self._ownership.listed([stored])[0] for chat, stored in newest.items() if chat is not None
        }

    async def relatives(self, run_id: str) -> Sequence[port.Listed]:
        found = [
            stored for stored in self._runs.values() if run_id in (stored.row.parent, stored.row.managed_by)
        ]
        return self._ownership.listed(sorted(found, key=by_age)[: port.RELATIVES_MAX])

    async def awaited(self, reason: str) -> Sequence[tuple[str, str]]:
        rows = [stored.row for stored in self._runs.values()]
        since = {row.id: row.updated_at_us - port.AWAITED_US for row in rows if _waits(row, reason)}
        found = [
            (row.managed_by, row.id)
            for row in rows
            if row.managed_by is not None
            and row.managed_by in since
            and row.status in (RunStatus.COMPLETED, RunStatus.CANCELLED, RunStatus.FAILED)
            and row.updated_at_us > since[row.managed_by]
        ]
        return sorted(found)[: port.RELATIVES_MAX]

    async def held(self) -> Sequence[port.Listed]:
        found = [stored for stored in self._runs.values() if stored.row.owner is not None]
        return self._ownership.listed(sorted(found, key=_by_id))

    async def count(self) -> Mapping[RunStatus, int]:
        return Counter(stored.row.status for stored in self._runs.values())


def _does_work(row: RunRow) -> bool:
    return row.managed_by is None and READING_TAG not in tags_in(row.tags)


def _waits(row: RunRow, reason: str) -> bool:
    is_interrupted = row.status is RunStatus.INTERRUPTED and row.reason == reason
    return row.status is RunStatus.WAITING or is_interrupted


def _fits_query(row: RunRow, query: port.RunQuery) -> bool:
    text = port.lowered(query.text or "")
    return (
        (not query.statuses or row.status in query.statuses)
        and (not query.reasons or row.reason in query.reasons)
        and query.pipeline in (None, row.pipeline)
        and query.parent in (None, row.parent)
        and query.chat in (None, row.chat)
        and (query.since_us is None or row.created_at_us >= query.since_us)
        and set(query.tags) <= set(tags_in(row.tags))
        and (query.place is None or (row.created_at_us, row.id) < query.place)
        and any(text in port.lowered(said) for said in (row.id, row.display_id, row.pipeline, row.detail))
    )


def by_age(stored: StoredRun) -> tuple[int, str]:
    """Sorts the oldest first."""
    return stored.row.created_at_us, stored.row.id


def _by_id(stored: StoredRun) -> str:
    return stored.row.id


class MemoryGates:
    """The questions of a database's runs."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def open(self, query: port.GateQuery) -> Sequence[GateRow]:
        every = [row for stored in self._state.runs.values() for row in stored.gates.values()]
        found = [
            row
            for row in sorted(every, key=_gate_place)
            if row.closed_at_us is None
            and query.pipeline in (None, row.pipeline)
            and query.run_id in (None, row.run_id)
            and query.chat in (None, self._state.runs[row.run_id].row.chat)
            and (query.place is None or _gate_place(row) > query.place)
        ]
        return found[: query.limit]

    async def of(self, run_id: str) -> Sequence[GateRow]:
        stored = self._state.runs.get(run_id)
        return [] if stored is None else sorted(stored.gates.values(), key=_gate_place)


def _gate_place(row: GateRow) -> port.GatePlace:
    return port.GatePlace(row.opened_at_us, row.run_id, row.gate)


WAITING = DeliveryState.WAITING


class MemoryOutbox:
    """The notifications of a database."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def subscribe(
        self, subscriber: str, kinds: Sequence[NotificationKind], *, for_us: int, renew_us: int = 0
    ) -> None:
        now_us, known = self._state.now_us(), self._state.subscribers.get(subscriber)
        if known is None or known[0] != frozenset(kinds) or known[1] - now_us <= renew_us:
            self._state.subscribers[subscriber] = frozenset(kinds), now_us + for_us

    async def claim(self, subscriber: str, *, limit: int, lease_us: int) -> Sequence[port.Delivery]:
        now_us = self._state.now_us()
        due = [one for one in self._of(subscriber) if one.due_at_us is not None and one.due_at_us <= now_us]
        due.sort(key=lambda one: (one.due_at_us, one.created_at_us, one.id))
        return [
            self._keep(
                replace(
                    one,
                    token=one.token + 1,
                    tries=one.tries + 1,
                    tried_at_us=now_us,
                    due_at_us=now_us + lease_us,
                )
            )
            for one in sorted(due[:limit], key=_delivery_order)
        ]

    async def record(self, claimed: port.Delivery, attempted: port.Attempted) -> None:
        there = self._state.outbox.get((claimed.id, claimed.subscriber))
        if there is None or there.token != claimed.token or there.state is not WAITING:
            return
        now_us, wait_us = self._state.now_us(), attempted.wait_us
        self._keep(
            replace(
                there,
                state=attempted.state,
                response=attempted.response,
                error=attempted.error,
                due_at_us=None if wait_us is None else now_us + wait_us,
                delivered_at_us=now_us if attempted.state is DeliveryState.DELIVERED else None,
            )
        )

    async def waiting(self, subscriber: str) -> int:
        return sum(one.state is WAITING for one in self._of(subscriber))

    async def read(self, query: port.DeliveryQuery) -> Sequence[port.Delivery]:
        found = [
            one
            for one in sorted(self._state.outbox.values(), key=_delivery_place, reverse=True)
            if query.run_id in (None, one.run_id)
            and query.state in (None, one.state)
            and (query.place is None or _delivery_place(one) < query.place)
        ]
        return found[: query.limit]

    async def retry(self, id: str) -> Sequence[port.Delivery]:
        found = sorted((one for one in self._state.outbox.values() if one.id == id), key=_delivery_order)
        fresh = {"state": WAITING, "tries": 0, "due_at_us": self._state.now_us(), "delivered_at_us": None}
        return [self._keep(replace(one, **fresh)) for one in found]

    def _of(self, subscriber: str) -> list[port.Delivery]:
        return [one for one in self._state.outbox.values() if one.subscriber == subscriber]

    def _keep(self, delivery: port.Delivery) -> port.Delivery:
        self._state.outbox[delivery.id, delivery.subscriber] = delivery
        return delivery


def put_notifications(state: State, telling: Telling | None) -> None:
    """Store what is to be told, for every subscriber that wants it."""
    if telling is None or not state.subscribers:
        return
    now_us = state.now_us()
    for told in telling():
        for subscriber, (kinds, until_us) in state.subscribers.items():
            if told.kind in kinds and until_us > now_us:
                state.outbox[told.id, subscriber] = port.Delivery(
                    id=told.id,
                    subscriber=subscriber,
                    run_id=told.run_id,
                    seq=told.seq,
                    kind=told.kind,
                    body=told.body,
                    created_at_us=told.at_us,
                    state=WAITING,
                    token=0,
                    tries=0,
                    due_at_us=now_us,
                )


def _delivery_place(one: port.Delivery) -> port.DeliveryPlace:
    return port.DeliveryPlace(one.created_at_us, one.id, one.subscriber)


def _delivery_order(one: port.Delivery) -> tuple[int, str, int, str]:
    return one.created_at_us, one.run_id, one.seq, one.id


class MemoryMeasures:
    """Numbers about a database, as one process sees it."""

    def __init__(self, ownership: MemoryOwnership) -> None:
        self._ownership, self._state = ownership, ownership.state
        self._workers = MemoryWorkers(ownership)

    async def measure(self) -> port.Measured:
        now_us, runs = self._state.now_us(), list(self._state.runs.values())
        rows = [stored.row for stored in runs]
        turns = [stored.due_at_us for stored in runs if stored.due_at_us is not None]
        due = [due_at_us for due_at_us in turns if due_at_us <= now_us]
        holders = [holder for stored in runs if (holder := self._ownership.holder_of(stored)) is not None]
        lately = [(row.status, now_us - row.ended_at_us) for row in rows if row.ended_at_us is not None]
        hour = Counter(status for status, ago_us in lately if ago_us <= port.HOUR_US)
        day = Counter(status for status, ago_us in lately if ago_us <= port.DAY_US)
        bodies = sum(len(record.body.encode()) for stored in runs for record in stored.records)
        return port.Measured(
            at_us=now_us,
            runs=Counter(port.Stand(row.status, row.reason, row.recoverable) for row in rows),
            due=len(due),
            later=len(turns) - len(due),
            oldest_due_us=min(due, default=None),
            holdings=holdings_of((holder.owner, 1, holder.is_alive) for holder in holders),
            ended={status: port.EndedRuns(hour[status], number) for status, number in day.items()},
            stuck=_stuck_runs(runs),
            needs=_needs_of_due(runs, now_us),
            workers=tuple(await self._workers.read()),
            undelivered=self._undelivered(),
            size=bodies + sum(map(len, self._state.blobs.values())),
        )

    def _undelivered(self) -> port.Undelivered:
        told = self._state.outbox.values()
        waiting = [one.created_at_us for one in told if one.state is DeliveryState.WAITING]
        failed = sum(one.state is DeliveryState.FAILED for one in told)
        return port.Undelivered(len(waiting), failed, min(waiting, default=None))

    async def note_stuck(self, run_id: str, why: str) -> None:
        stored = self._state.runs.get(run_id)
        if stored is not None:
            head, before = stored.position.seq, stored.stuck
            failures = before[1].failures if before is not None and before[0] == head else 0
            stored.stuck = head, port.Stuck(run_id, failures + 1, self._state.now_us(), why)


def _needs_of_due(runs: list[StoredRun], now_us: int) -> Counter[str]:
    due = [stored for stored in runs if stored.due_at_us is not None and stored.due_at_us <= now_us]
    due.sort(key=lambda stored: (-stored.row.priority, stored.due_at_us, stored.row.id))
    return Counter(stored.row.needs for stored in due[: port.NEEDS_MAX])


def _stuck_runs(runs: list[StoredRun]) -> tuple[port.Stuck, ...]:
    noted = [stored.stuck for stored in runs if stored.due_at_us is not None]
    heads = [stored.position.seq for stored in runs if stored.due_at_us is not None]
    found = [note[1] for note, head in zip(noted, heads, strict=True) if note is not None and note[0] == head]
    return tuple(sorted(found, key=lambda stuck: (-stuck.failed_at_us, stuck.run))[: port.STUCK_MAX])
