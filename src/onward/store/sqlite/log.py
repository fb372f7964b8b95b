"""The log in SQLite: each call is one transaction, and appends share theirs.

`SqliteWriter` writes runs inside the caller's transaction: a refusal is a result, not an error. Messages
begin and end with the events of their calls, in the transaction of these events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

import apsw
import msgspec
from msgspec.structs import astuple

from onward import errors
from onward.model.chat import ChunkKind, Message, Role
from onward.model.row import GateRow, Telling
from onward.store import rows
from onward.store.limits import Ledger, charges, note_warnings
from onward.store.message_rows import MessageBegun, arrival_values, message_changes
from onward.store.owner import content_missing, key_occupied, run_exists
from onward.store.port import log as logs
from onward.store.port.leases import Lease
from onward.store.port.limits import Warned
from onward.store.rows import gate_parameters, pack
from onward.store.sqlite.connection import check_known, schema_number
from onward.store.sqlite.leases import SqliteOwnership
from onward.store.sqlite.limits import AddingUp, open_ledger, write_ledger
from onward.store.sqlite.runs import put_notifications
from onward.store.sqlite.statements import (
    QUERIES,
    compact,
    find_due,
    find_snapshot,
    one,
    read_bodies,
    read_records,
)
from onward.store.sqlite.transaction import Transactions
from onward.store.transactions import GroupCommit, Member


class SqliteLog:
    """Logs in one SQLite file."""

    def __init__(self, database: Transactions, ownership: SqliteOwnership, writer: SqliteWriter) -> None:
        self._database, self._ownership, self._writer = database, ownership, writer
        self._group: GroupCommit[Member] = GroupCommit(self._commit)

    async def create(self, write: logs.Write, append_id: str | None = None) -> None:
        await self._group.add(Member(write, None, append_id))
        self._ownership.note(write)

    async def append(self, write: logs.Write, lease: Lease) -> None:
        try:
            await self._group.add(Member(write, lease[1:]))
        except errors.LeaseLost:
            self._ownership.runs.pop(write.run_id, None)
            raise
        if write.row is not None:
            self._ownership.note(write)

    async def _commit(self, group: Sequence[Member]) -> Sequence[Exception | None]:
        return await self._database.transact(lambda db: self._writer.write(db, group))

    async def control(
        self, run_id: str, *, since: int, append_id: str, decide: logs.Decide
    ) -> logs.Controlled:
        asker = self._ownership.announced_owner

        def control(db: apsw.Connection) -> tuple[logs.Controlled, logs.Write | None]:
            return self._control(db, run_id, since, append_id, decide, asker)

        answer, write = await self._database.transact(control)
        if write is not None:
            self._ownership.note(write)
        return answer

    def _control(
        self, db: apsw.Connection, run_id: str, since: int, append_id: str, decide: logs.Decide, asker: str
    ) -> tuple[logs.Controlled, logs.Write | None]:
        found = one(db, "run_position", id=run_id, now_us=self._ownership.now_us())
        if found is None:
            raise errors.RunNotFound(run_id)
        head, hash_, status, owner, token, is_expired = found
        position = rows.position_of(run_id, head, hash_)
        answered = find_append(db, run_id, append_id)
        if answered is not None:
            if owner == asker:
                self._ownership.runs[run_id] = token  # a claim of ours whose reply was lost
            return logs.Controlled(position, is_repeat=True, answered=answered), None
        holder = rows.holder_of(owner, token, bool(is_expired), self._ownership.is_alive)
        held = logs.Held(position, rows.status_of(status, f"run {run_id!r}"), holder, asker)
        write = decide(held, read_records(db, run_id, since))
        if write is None:
            return logs.Controlled(position), None
        (refusal,) = self._writer.write(db, [Member(write, (owner, token), append_id)])
        if refusal is not None:
            raise refusal
        return logs.Controlled(write.head), write

    async def take(
        self, wanted: logs.TakeFilter, *, fold_version: int, decide: logs.DecideLoaded
    ) -> logs.Controlled | None:
        asker, locked = self._ownership.announced_owner, list[str]()
        try:
            answer, write = await self._database.transact(
                lambda db: self._take(db, wanted, fold_version, decide, asker, locked)
            )
        except errors.StoreError as error:
            error.run_id = locked[-1] if locked else None
            raise
        if write is not None:
            self._ownership.note(write)
        return answer

    def _take(
        self,
        db: apsw.Connection,
        wanted: logs.TakeFilter,
        fold_version: int,
        decide: logs.DecideLoaded,
        asker: str,
        locked: list[str],
    ) -> tuple[logs.Controlled | None, logs.Write | None]:
        check_known(schema_number(db))  # a newer version may have migrated the database since it was opened
        run_id = find_due(db, wanted, self._ownership.now_us())
        if run_id is None:
            return None, None
        locked.append(run_id)
        try:
            loaded = self._load(db, run_id, fold_version, wanted.known_of(run_id))
        except (errors.HistoryCorrupt, errors.StoreCorrupt, UnicodeDecodeError) as error:
            raise errors.RunUnreadable(run_id, error) from error
        assert loaded is not None  # it was found in the same transaction
        row = loaded.row
        write = decide(logs.Held(loaded.position, row.status, loaded.holder, asker), loaded)
        if write is None:
            return logs.Controlled(loaded.position), None
        (refusal,) = self._writer.write(db, [Member(write, (row.owner, row.token))])
        if refusal is not None:
            raise refusal
        return logs.Controlled(write.head), write

    async def load(self, run_id: str, *, fold_version: int) -> logs.Loaded | None:
        return await self._database.look(lambda db: self._load(db, run_id, fold_version))

    def _load(
        self, db: apsw.Connection, run_id: str, fold_version: int, known: int | None = None
    ) -> logs.Loaded | None:
        columns = one(db, "run_get", id=run_id, now_us=self._ownership.now_us())
        if columns is None:
            return None
        listed, position = rows.listed_of(columns, self._ownership.is_alive), rows.row_position(columns)
        snapshot = find_snapshot(db, run_id, position.seq, fold_version) if known is None else None
        after = known or (snapshot.seq if snapshot else 0)
        is_cut, is_due = position.seq - after > logs.TAIL_MAX, bool(columns[-2])
        tail = () if is_cut else read_records(db, run_id, after)
        return logs.Loaded(listed.row, position, listed.holder, snapshot, tail, is_cut, is_due)

    async def bodies(self, run_id: str, kind: str) -> Sequence[str]:
        return await self._database.look(lambda db: read_bodies(db, run_id, kind))

    async def read(self, run_id: str, *, after: int, limit: int) -> Sequence[logs.StoredEvent]:
        return await self._database.look(lambda db: read_records(db, run_id, after, limit=limit))


Rows = list[tuple[object, ...]]

# Values are given in the order in which a statement first names them: looking names up takes longer.
_RUN_INSERT, _RUN_UPDATE = compact(QUERIES["run_insert"]), compact(QUERIES["run_update"])
_RUN_ADVANCE, _PLACE_LOCK = compact(QUERIES["run_advance"]), compact(QUERIES["place_lock"])
_EVENT_INSERT, _BLOB_HOLD = compact(QUERIES["event_insert"]), compact(QUERIES["blob_hold"])
_CHANGE_NEXT = compact(QUERIES["change_next"])
_CHANGING = attrgetter(*(column.name for column in rows.CHANGING_COLUMNS))


class _GroupRows(msgspec.Struct):
    """What is written once for a whole group: its events, and what they tell."""

    events: Rows = msgspec.field(default_factory=list)
    told: list[Telling] = msgspec.field(default_factory=list)


class SqliteWriter(msgspec.Struct):
    """Writes runs."""

    now_us: Callable[[], int | None]
    lease_us: int
    adding_up: AddingUp = msgspec.field(default_factory=AddingUp)
    warnings: dict[str, list[Warned]] = msgspec.field(default_factory=dict)
    """Limits that are nearly spent, by the run whose calls spent them, until they are told."""

    def write(self, db: apsw.Connection, members: Sequence[Member]) -> list[Exception | None]:
        """Write whatever is not refused; answers None or the refusal for each."""
        later = _GroupRows()
        answers = [
            self._create(db, member, later) if member.held is None else self._update(db, member, later)
            for member in members
        ]
        _write_events(db, later.events)
        put_notifications(db, later.told, self.now_us())
        return answers

    def _create(self, db: apsw.Connection, member: Member, later: _GroupRows) -> Exception | None:
        """Make a run, unless its id is taken or its key in use; None when it is there."""
        write, append_id = member.write, member.append_id
        refusal = _occupied(db, write) or _without_parent(db, write, later) or _without_content(db, write)
        if refusal is None:
            db.execute(_CHANGE_NEXT)
            db.execute(_RUN_INSERT, (*_all_columns(write), self.now_us(), self.lease_us, write.at_us))
            if db.changes():
                self._write(db, member, later)
                return None
            refusal = run_exists(write.run_id)
        _write_events(db, later.events)  # what is asked for may be in this very group
        if append_id is None:
            is_there = _is_there(db, write)
        else:
            is_there = find_append(db, write.run_id, append_id) is not None
        return None if is_there else refusal

    def _update(self, db: apsw.Connection, member: Member, later: _GroupRows) -> Exception | None:
        """Append for this owner and token behind `write.after`, or say why not."""
        write, held = member.write, member.held
        assert held is not None
        owner, token = held
        missing = _without_content(db, write)
        if missing is not None:
            return missing
        ledger: Ledger | None = None
        if write.calls and charges(write):
            place = db.execute(_PLACE_LOCK, (write.run_id,)).fetchone()
            if place != (*write.after, owner, token):
                _write_events(db, later.events)
                return _why_refused(db, write, owner, token)
            # Nothing else can refuse a write without a row, so its calls can be charged before it is made.
            if write.row is not None or not self.adding_up.charge(db, write):
                ledger = open_ledger(db, write)
                limit_reached = ledger.enter(write)
                if limit_reached is not None:
                    return limit_reached
        if write.row is None:
            head = write.head
            values = (
                head.seq, head.hash, write.next_node, write.doubtful, write.steps_finished,
                write.tokens, write.cost_micro, write.ticks, write.at_us,
                write.run_id, *write.after, token, owner,
            )  # fmt: skip
            db.execute(_RUN_ADVANCE, values)
        else:
            refusal = _occupied(db, write)
            if refusal is not None:
                return refusal
            times = (self.now_us(), self.lease_us, write.at_us)
            db.execute(_CHANGE_NEXT)
            db.execute(
                _RUN_UPDATE, (*_changed_columns(write), *times, write.run_id, *write.after, token, owner)
            )
        if db.changes() == 0:
            _write_events(db, later.events)
            return _why_refused(db, write, owner, token)
        if ledger is not None:
            write_ledger(db, ledger)
            note_warnings(self.warnings, ledger)
            self.adding_up.known.note(ledger)
        self._write(db, member, later)
        return None

    def _write(self, db: apsw.Connection, member: Member, later: _GroupRows) -> None:
        """What comes with a row that was written; the events wait for those of the whole group."""
        write = member.write
        later.events += event_columns(write.records)
        for name, content in write.blobs.items():
            if not _holds(db, name, write.at_us):
                put_blob(db, name, content, write.at_us)
        if write.gates:
            put_gates(db, write.gates)
            if write.row is None:
                db.execute(_CHANGE_NEXT)
                db.execute(QUERIES["run_touch"], (write.run_id,))
        if write.calls:
            put_messages(db, write)
        if write.notifications is not None:
            later.told.append(write.notifications)
        if write.snapshot is not None:
            db.execute(QUERIES["snapshot_put"], (write.run_id, *write.snapshot))
        if member.append_id is not None:
            db.execute(QUERIES["append_insert"], (write.run_id, member.append_id, write.head.seq))


def put_gates(db: apsw.Connection, gates: Iterable[GateRow]) -> None:
    """Store gates, or how they were closed."""
    for gate in gates:
        db.execute(QUERIES["gate_put"], gate_parameters(gate))


def put_blob(db: apsw.Connection, name: str, content: bytes, at_us: int) -> None:
    """Store content, or touch what is stored."""
    db.execute(QUERIES["blob_put"], (name, *pack(content), at_us))


def _holds(db: apsw.Connection, name: str, at_us: int) -> bool:
    """Whether content is stored, and stays: what was marked to be deleted is not any more."""
    touched_at_us = db.execute(_BLOB_HOLD, (name,)).get
    if touched_at_us is not None and touched_at_us < 0:
        db.execute(QUERIES["blob_touch"], (at_us, name))
    return touched_at_us is not None


def _without_content(db: apsw.Connection, write: logs.Write) -> errors.Refused | None:
    relied_on = write.relied_on()
    return check_content(db, write.run_id, relied_on, write.at_us) if relied_on else None


def check_content(
    db: apsw.Connection, run_id: str, names: Iterable[str], at_us: int
) -> errors.Refused | None:
    """The refusal of a write that relies on content which is not stored."""
    return None if all(_holds(db, name, at_us) for name in names) else content_missing(run_id)


def _occupied(db: apsw.Connection, write: logs.Write) -> errors.Refused | None:
    """An exclusive key belongs to one held run; naming the holder beats a broken index."""
    row = write.row
    if row is None or row.owner is None or row.exclusive_key is None:
        return None
    found = one(db, "run_holding_key", key=row.exclusive_key, id=row.id)
    return None if found is None else key_occupied(row.exclusive_key, found[0], found[1])


def _write_events(db: apsw.Connection, rows: Rows) -> None:
    """One call for all: a statement costs less than the way to it."""
    if rows:
        db.executemany(_EVENT_INSERT, rows)
        rows.clear()


def event_columns(records: Iterable[logs.StoredEvent]) -> Rows:
    """The columns of events, in the order in which they are inserted."""
    return [
        (r.run_id, r.seq, r.kind, r.v, r.at_us, r.token, r.body, r.hash, " ".join(r.refs) if r.refs else None)
        for r in records
    ]


def _all_columns(write: logs.Write) -> tuple[object, ...]:
    """A run's columns in the order of the row's fields, and behind them the two hashes."""
    row = write.row
    assert row is not None
    return *astuple(row), write.head.hash, write.after.hash if row.parent else None


def _changed_columns(write: logs.Write) -> tuple[object, ...]:
    """The columns that can change while a run lives, and behind them the hash."""
    row = write.row
    assert row is not None
    return *_CHANGING(row), write.head.hash


def _without_parent(db: apsw.Connection, write: logs.Write, later: _GroupRows) -> Exception | None:
    """A fork stands on an event that its parent really has."""
    row = write.row
    if row is None or row.parent is None or row.parent_seq is None:
        return None
    _write_events(db, later.events)
    below = read_records(db, row.parent, row.parent_seq - 1, limit=1)
    is_there = bool(below) and (below[0].seq, below[0].hash) == write.after
    return None if is_there else errors.RunNotFound(row.parent)


def _why_refused(db: apsw.Connection, write: logs.Write, owner: str | None, token: int) -> Exception | None:
    """None when this very write is already there: its reply was lost, not the write."""
    if _is_there(db, write):
        return None
    found = one(db, "run_position", id=write.run_id, now_us=None)
    if found is None:
        return errors.RunNotFound(write.run_id)
    if (found[3], found[4]) != (owner, token):
        return errors.LeaseLost(write.run_id, token)
    return errors.StaleHistory(write.run_id, write.after.seq)


def _is_there(db: apsw.Connection, write: logs.Write) -> bool:
    """Whether this very write is in the log: its last hash covers all of it, and all before it."""
    found = db.execute(QUERIES["event_hash"], (write.run_id, write.head.seq)).get
    return bool(found == write.head.hash)


def find_append(db: apsw.Connection, run_id: str, append_id: str) -> int | None:
    """The last event that was written under this id, if one was."""
    found: int | None = db.execute(QUERIES["append_find"], (run_id, append_id)).get
    return found


def put_messages(db: apsw.Connection, write: logs.Write) -> None:
    """Begin and end the messages of a write's calls. One that has begun, or ended, stays as it is."""
    for change in message_changes(write):
        if isinstance(change, MessageBegun):
            db.execute(QUERIES["chat_put"], {"chat": change.chat, "at_us": change.at_us})
            found = db.execute(QUERIES["message_begin"], change._asdict()).fetchone()
            columns = None if found is None else (*found, 0, ChunkKind.START.value, Role.ASSISTANT.value)
        else:
            found = db.execute(QUERIES["message_end"], change._asdict()).fetchone()
            columns = None if found is None else (*found, ChunkKind.END.value, change.state)
        if columns is not None:
            db.execute(QUERIES["chunk_insert"], columns)
            db.execute(QUERIES["chat_move"], (columns[1], columns[0]))


def receive_messages(db: apsw.Connection, messages: Iterable[Message]) -> None:
    """Add messages of another database, each at the end of its chat."""
    for message in messages:
        values = arrival_values(message)
        db.execute(QUERIES["chat_put"], {"chat": message.chat, "at_us": message.begun_at_us})
        found = db.execute(QUERIES["message_receive"], values).fetchone()
        if found is not None:
            db.execute(QUERIES["chat_move"], (found[1], found[0]))
