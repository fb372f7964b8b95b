"""Writing runs: a group of writes is one to three statements in one transaction, and a refusal a result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import astuple

from onward.errors import LeaseLost, RunNotFound, StaleHistory
from onward.model.row import GateRow
from onward.store import rows
from onward.store.limits.ledger import note_warnings
from onward.store.member import Member
from onward.store.port.money.limits import Warned
from onward.store.port.stored import Position, StoredEvent, Write
from onward.store.postgres.chats.projecting import message_calls
from onward.store.postgres.limits.charging import is_charged, ledger_calls, lock
from onward.store.postgres.limits.one_trip import Charge, OneTrip
from onward.store.postgres.link.binary import byteas, number, numbers, optional_text, text, texts
from onward.store.postgres.link.failure import AGAIN, KEY_IN_USE, ServerError
from onward.store.postgres.link.wire import Wire
from onward.store.postgres.news.outbox import notification_calls
from onward.store.postgres.reading import read_records
from onward.store.postgres.statements import COMMIT, QUERIES, ROLLBACK, Call, advance_alone, call
from onward.store.refusals import content_missing, key_occupied, run_exists

KNOWN_MAX = 10_000
CONTENT_MISSING = "22012"  # the division by zero of blob_hold and blob_touch
# Each length is a statement of its own on the server; a longer write is rare enough to go as arrays.
ALONE_EVENTS_MAX = 8
_NUMBERS = (
    *("recoverable", "is_dismissed", "steps_finished", "token", "wake_at_us", "parent_seq", "created_at_us"),
    *("updated_at_us", "ended_at_us", "head", "after", "held_token", "priority", "max_running", "at_us"),
)
_ARRAYS: Mapping[str, Callable[[Sequence[Any]], bytes]] = {
    **dict.fromkeys(_NUMBERS, numbers),
    **dict.fromkeys(("hash", "parent_hash", "after_hash"), byteas),
}


@dataclass(slots=True)
class Writer:
    """Writes runs. `known` is content that was stored once: asking for it is cheaper than sending it."""

    now_us: Callable[[], int | None]
    lease_us: int
    known: set[str] = field(default_factory=set)
    scopes: set[str] = field(default_factory=set)
    """Scopes that have rows."""
    one_trip: OneTrip = field(default_factory=OneTrip)
    warnings: dict[str, list[Warned]] = field(default_factory=dict)
    """Limits that are nearly spent, by the run whose calls spent them, until they are told."""

    async def commit(self, wire: Wire, group: Sequence[Member]) -> Sequence[Exception | None]:
        """Write whatever is not refused; answers None or the refusal for each."""
        if len(group) == 1:
            return await self.write(wire, group)
        answers: list[Exception | None] = []
        for wave in _waves(group):
            answers += await self.write(wire, wave)
        return answers

    async def write(self, wire: Wire, members: Sequence[Member], *then: Call) -> Sequence[Exception | None]:
        """Write members of different runs, and `then` do something more, in one trip."""
        if not any(map(is_charged, members)):
            return await self._write(wire, members, *then)
        is_ours = not wire.is_in_transaction
        charge = self.one_trip.charge(members) if is_ours and not then else None
        if charge is not None:
            try:
                return await self._write(wire, members, charge=charge)
            except ServerError as error:
                if not self.one_trip.needs_look(charge, error):
                    raise
        locked = await lock(wire, members, self.scopes)
        refused = locked.charge(members)
        sent = [member for member in members if member.write.run_id not in refused]
        answers: dict[str, Exception | None] = {**refused}
        if sent:
            written = await self._write(wire, sent, *ledger_calls(locked.ledger), *(then or (COMMIT,)))
            answers |= dict(zip((member.write.run_id for member in sent), written, strict=True))
        if is_ours and wire.is_in_transaction:
            await wire.run(ROLLBACK)  # all of it was refused
        else:
            note_warnings(self.warnings, locked.ledger)
            self.one_trip.note(locked.ledger)
        return [answers[member.write.run_id] for member in members]

    async def _write(
        self, wire: Wire, members: Sequence[Member], *then: Call, charge: Charge | None = None
    ) -> Sequence[Exception | None]:
        if len(members) == 1 and not then and _is_in_passing(members[0], charge):
            (found,) = await wire.run(_advance_alone(members[0], charge))
            if charge is not None and found:  # a refused write has charged nothing
                self.one_trip.charged(charge)
            return [None if found else await _why_refused(wire, members[0], ())]
        orphans = [
            member.write.run_id
            for member in members
            if _is_fork(member) and await _is_orphan(wire, member.write)
        ]
        sent = [member for member in members if member.write.run_id not in orphans] if orphans else members
        statements, blobs = self._statements(sent), _blobs(sent)
        held = sorted(self.known & blobs.keys())
        snapshots = [member.write for member in sent if member.write.snapshot is not None]
        gates = [gate_call(row, member.write.head) for member in sent for row in member.write.gates]
        said = message_calls([member.write for member in sent if member.write.calls])
        charged = [charge.behind(sent[0].write)] if charge is not None and sent else []
        told = [
            (one, member.write.head)
            for member in sent
            if member.write.notifications is not None
            for one in member.write.notifications()
        ]
        notices = [call("due_notify")] if any(map(_makes_due, sent)) else []
        content = [blob_call(name, *blobs[name]) for name in sorted(blobs.keys() - self.known)]
        content += [call("blob_hold", hashes=texts(held))] if held else []
        for member in sent:
            content += relying_on(member.write.relied_on, member.write.at_us)
        try:
            answers = await wire.run(
                *statements,
                *said,
                *charged,
                *content,
                *gates,
                *notification_calls(told, self.now_us()),
                *map(_snapshot_call, snapshots),
                *notices,
                *then,
            )
        except ServerError as error:
            if error.sqlstate == CONTENT_MISSING and held:
                self.known.clear()  # it was deleted: the next try sends it
                raise ServerError(AGAIN, str(error)) from None
            if error.sqlstate == CONTENT_MISSING and len(members) == 1:
                return [content_missing(members[0].write.run_id)]
            if error.constraint != KEY_IN_USE or len(members) > 1:
                raise
            return [await _occupied(wire, members[0].write)]
        self._note(blobs.keys())
        moved = {columns[0] for found in answers[: len(statements)] for columns in found}
        if charge is not None and members[0].write.run_id in moved:
            self.one_trip.charged(charge)
        return [
            None if member.write.run_id in moved else await _why_refused(wire, member, orphans)
            for member in members
        ]

    def _statements(self, members: Sequence[Member]) -> Sequence[Call]:
        made = [member for member in members if member.held is None]
        changed = [member for member in members if member.held is not None and member.write.row is not None]
        advanced = [member for member in members if member.write.row is None]
        # Whichever comes first locks for both; what is alone needs no order.
        locked = [member.write.run_id for member in (*changed, *advanced)]
        locked = locked if len(locked) > 1 else []
        calls: list[Call] = []
        if changed:
            calls.append(self._change("run_update", changed, locked))
        if advanced:
            is_short = len(advanced) == 1 and len(advanced[0].write.records) <= ALONE_EVENTS_MAX
            locked = [] if changed else locked
            calls.append(_advance_alone(advanced[0]) if is_short else _advance(advanced, locked))
        if made:
            calls.append(self._change("run_insert", made))
        return calls

    def _change(self, name: str, members: Sequence[Member], locked: Sequence[str] = ()) -> Call:
        table = [_columns(member) for member in members]
        others = {**_events(members), "now_us": self.now_us(), "lease_us": self.lease_us}
        if len(table) == 1 and not locked:
            return call(f"{name}_alone", **table[0], **others)
        wanted = [parameter for parameter in QUERIES[name].parameters if parameter in table[0]]
        arrays = {column: _ARRAYS.get(column, texts)([row[column] for row in table]) for column in wanted}
        return call(name, **arrays, **others, locked=texts(locked))

    def _note(self, names: Collection[str]) -> None:
        if len(self.known) >= KNOWN_MAX:
            self.known.clear()
        self.known.update(names)


def _waves(group: Sequence[Member]) -> Iterator[Sequence[Member]]:
    """Consecutive parts in which no run comes twice: a statement sees each run as it was before it."""
    wave: dict[str, Member] = {}
    for member in group:
        if member.write.run_id in wave:
            yield list(wave.values())
            wave = {}
        wave[member.write.run_id] = member
    yield list(wave.values())


def _advance(members: Sequence[Member], locked: Sequence[str]) -> Call:
    writes = [member.write for member in members]
    lasts = [write.records[-1] for write in writes]
    return call(
        "run_advance",
        locked=texts(locked),
        id=texts([write.run_id for write in writes]),
        after=numbers([write.after.seq for write in writes]),
        after_hash=byteas([write.after.hash for write in writes]),
        held_token=numbers([member.held[1] for member in members if member.held]),
        held_owner=texts([member.held[0] for member in members if member.held]),
        head=numbers([last.seq for last in lasts]),
        hash=byteas([last.hash for last in lasts]),
        next_node=texts([write.next_node for write in writes]),
        doubtful=texts([write.doubtful for write in writes]),
        steps_finished=numbers([write.steps_finished for write in writes]),
        updated_at_us=numbers([write.at_us for write in writes]),
        **_events(members),
    )


def _advance_alone(member: Member, charge: Charge | None = None) -> Call:
    """In the order of the statement's parameters: nothing is written as often as this."""
    write, (owner, token) = member.write, member.held or (None, 0)
    records = write.records
    last = records[-1]
    values = [number(last.seq), last.hash, optional_text(write.next_node), optional_text(write.doubtful)]
    values += (
        number(write.steps_finished),
        number(write.at_us),
        text(write.run_id),
        number(write.after.seq),
        write.after.hash,
    )
    values += (number(token), optional_text(owner))
    for record in records:
        _, seq, kind, v, at_us, event_token, body, hash_, refs, _ = astuple(record)
        values += (number(seq), text(kind), number(v), number(at_us), number(event_token))
        values += (text(body), hash_, text(" ".join(refs)) if refs else None)
    if charge is not None:
        return charge.together(len(records), values)
    return Call(advance_alone(len(records)), values)


def _columns(member: Member) -> dict[str, Any]:
    owner, token = member.held or (None, 0)
    after = member.write.after
    return {
        **rows.row_parameters(member.write),
        "after": after.seq,
        "after_hash": after.hash,
        "held_owner": owner,
        "held_token": token,
        "append_id": member.append_id,
        "at_us": member.write.at_us,
    }


def _events(members: Sequence[Member]) -> dict[str, bytes]:
    return event_arrays([record for member in members for record in member.write.records])


def event_arrays(records: Sequence[StoredEvent]) -> dict[str, bytes]:
    """Events as one array for each column."""
    run_ids, seqs, kinds, versions, times, tokens, bodies, hashes, refs, _ = zip(
        *map(astuple, records), strict=True
    )
    return {
        "event_run_id": texts(run_ids),
        "event_seq": numbers(seqs),
        "event_kind": texts(kinds),
        "event_v": numbers(versions),
        "event_at_us": numbers(times),
        "event_token": numbers(tokens),
        "event_body": texts(bodies),
        "event_hash": byteas(hashes),
        "event_refs": texts([" ".join(names) if names else None for names in refs]),
    }


def _blobs(members: Sequence[Member]) -> Mapping[str, tuple[bytes, int]]:
    """The content that comes with these writes, and when it is stored."""
    return {
        name: (content, member.write.at_us)
        for member in members
        for name, content in member.write.blobs.items()
    }


def relying_on(names: Collection[str], at_us: int) -> Sequence[Call]:
    """Make sure that content is stored and stays; else CONTENT_MISSING fails all that is sent with this."""
    return [call("blob_touch", hashes=texts(sorted(names)), touched_at_us=at_us)] if names else []


def blob_call(name: str, content: bytes, at_us: int) -> Call:
    """Stores content, or touches what is stored."""
    encoding, packed = rows.pack(content)
    return call("blob_put", hash=name, encoding=encoding, content=packed, touched_at_us=at_us)


def gate_call(row: GateRow, head: Position) -> Call:
    """Stores a gate, or how it was closed, if the run's log ends at `head`."""
    return call("gate_put", **rows.gate_parameters(row), head=head.seq, hash=head.hash)


def _snapshot_call(write: Write) -> Call:
    assert write.snapshot is not None
    return call("snapshot_put", run_id=write.run_id, **write.snapshot._asdict())


def _is_in_passing(member: Member, charge: Charge | None) -> bool:
    """Whether this is a step on the way, with nothing to store beside its events and this charge."""
    write = member.write
    is_plain = write.row is None and write.snapshot is None and not write.blobs and not write.gates
    is_plain = is_plain and write.notifications is None
    is_plain = is_plain and (not write.calls or (charge is not None and not write.calls[0].is_streamed))
    return is_plain and not write.relied_on and len(write.records) <= ALONE_EVENTS_MAX


def _makes_due(member: Member) -> bool:
    """Whether a worker may be waiting for this."""
    return member.write.row is not None and member.write.row.wake_at_us is not None


def _is_fork(member: Member) -> bool:
    return member.held is None and member.write.row is not None and member.write.row.parent is not None


async def _is_orphan(wire: Wire, write: Write) -> bool:
    """A fork stands on an event that its parent really has; once there, it is there for ever."""
    assert write.row is not None
    below = await read_records(wire, write.row.parent or "", write.after.seq - 1, limit=1)
    return not below or (below[0].seq, below[0].hash) != write.after


async def _occupied(wire: Wire, write: Write) -> Exception:
    """An exclusive key belongs to one held run; naming the holder beats a broken index."""
    assert write.row is not None
    assert write.row.exclusive_key is not None
    if wire.is_in_transaction:
        await wire.run(ROLLBACK)
    (found,) = await wire.run(call("run_holding_key", key=write.row.exclusive_key, id=write.run_id))
    if not found:
        raise ServerError(AGAIN, "the key was in use a moment ago")
    return key_occupied(write.row.exclusive_key, *found[0][:2])


async def _is_there(wire: Wire, member: Member) -> bool:
    """Whether this creation is in the log, by the name it was given or by its last hash."""
    write = member.write
    if member.append_id is None:
        (written,) = await wire.run(call("event_hash", run_id=write.run_id, seq=write.head.seq))
        return bool(written) and bool(written[0][0] == write.head.hash)
    (noted,) = await wire.run(call("append_find", run_id=write.run_id, append_id=member.append_id))
    return bool(noted)


async def _why_refused(wire: Wire, member: Member, orphans: Sequence[str]) -> Exception | None:
    """None when this very write is already there: its reply was lost, not the write."""
    write = member.write
    if member.held is None:
        if await _is_there(wire, member):
            return None
        if write.run_id in orphans and write.row is not None:
            return RunNotFound(write.row.parent or "")
        return run_exists(write.run_id)
    written, found = await wire.run(
        call("event_hash", run_id=write.run_id, seq=write.head.seq),
        call("run_get", id=write.run_id, now_us=None),
    )
    if written and written[0][0] == write.head.hash:
        return None
    if not found:
        return RunNotFound(write.run_id)
    row = rows.run_row(found[0])
    if (row.owner, row.token) != member.held:
        return LeaseLost(write.run_id, member.held[1])
    return StaleHistory(write.run_id, write.after.seq)
