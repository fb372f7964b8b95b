"""The log in PostgreSQL: one statement for a step, one transaction for a call; appends share theirs.

`PostgresWriter` writes a group of writes with one to three statements in one transaction. A refusal is a
result, and why a write was refused is looked up after the server did not take it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

import msgspec

from onward import errors
from onward.store import rows
from onward.store.limits import note_warnings
from onward.store.owner import content_missing, key_occupied, run_exists
from onward.store.port import log as logs
from onward.store.port.leases import Lease
from onward.store.port.limits import Warned
from onward.store.postgres.calls import (
    ALONE_EVENTS_MAX,
    ARRAYS,
    CONTENT_MISSING,
    SUBSCRIBED,
    Charge,
    OneTrip,
    advance,
    advance_one,
    blob_call,
    blobs_of,
    calls_beside,
    columns_of,
    events_of,
    message_calls,
    relying_on,
)
from onward.store.postgres.connection import AGAIN, KEY_IN_USE, ServerError
from onward.store.postgres.leases import PostgresOwnership
from onward.store.postgres.limits import is_charged, ledger_calls, lock_ledger
from onward.store.postgres.pool import Pool, Wire
from onward.store.postgres.read import (
    events_call,
    find_due,
    inherited_snapshot,
    name_damaged_event,
    read_bodies,
    read_records,
    read_tail,
    snapshot_call,
    tail_call,
    with_values,
)
from onward.store.postgres.schema import check_schema
from onward.store.postgres.statements import BEGIN, COMMIT, QUERIES, ROLLBACK, Call, call, texts
from onward.store.rows import UNLIMITED
from onward.store.transactions import GroupCommit, Member


class PostgresLog:
    """Logs in one PostgreSQL database. Appends have a connection of their own.

    So have those that reserve or settle: they wait for scopes that other processes use, and the rest of the
    appends must not wait with them.
    """

    def __init__(
        self,
        appending: Pool,
        charging: Pool,
        connections: Pool,
        ownership: PostgresOwnership,
        writer: PostgresWriter,
    ) -> None:
        self._connections = connections
        self._ownership, self._writer = ownership, writer
        self._group: GroupCommit[Member] = GroupCommit(partial(self._commit, appending))
        self._charging: GroupCommit[Member] = GroupCommit(partial(self._commit, charging))

    async def create(self, write: logs.Write, append_id: str | None = None) -> None:
        await self._group.add(Member(write, None, append_id))
        self._ownership.note(write)

    async def append(self, write: logs.Write, lease: Lease) -> None:
        member = Member(write, lease[1:])
        try:
            await (self._charging if is_charged(member) else self._group).add(member)
        except errors.LeaseLost:
            self._ownership.runs.pop(write.run_id, None)
            raise
        if write.row is not None:
            self._ownership.note(write)

    async def _commit(self, pool: Pool, group: Sequence[Member]) -> Sequence[Exception | None]:
        return await pool.use(lambda wire: self._writer.commit(wire, group))

    async def control(
        self, run_id: str, *, since: int, append_id: str, decide: logs.Decide
    ) -> logs.Controlled:
        answer, write = await self._connections.use(
            lambda wire: self._control(wire, run_id, since, append_id, decide)
        )
        if write is not None:
            self._ownership.note(write)
        return answer

    async def _control(
        self, wire: Wire, run_id: str, since: int, append_id: str, decide: logs.Decide
    ) -> tuple[logs.Controlled, logs.Write | None]:
        asker = self._ownership.owner
        _, found, noted, own = await wire.run(
            BEGIN,
            call("run_position", id=run_id, now_us=self._ownership.now_us()),
            call("append_find", run_id=run_id, append_id=append_id),
            events_call(run_id, since),
        )
        if not found:
            raise errors.RunNotFound(run_id)
        head, hash_, status, owner, token, is_expired = found[0]
        position = rows.position_of(run_id, head, hash_)
        if noted:
            if owner == asker:
                self._ownership.runs[run_id] = token  # a claim of ours whose reply was lost
            return logs.Controlled(position, is_repeat=True, answered=noted[0][0]), None
        holder = rows.holder_of(owner, token, is_expired, self._ownership.is_alive)
        held = logs.Held(position, rows.status_of(status, f"run {run_id!r}"), holder, asker)
        is_whole = head <= since or (own and own[0][1] == since + 1)  # else the rest is in a parent's log
        write = decide(
            held, await (with_values(wire, own) if is_whole else read_records(wire, run_id, since))
        )
        if write is None:
            return logs.Controlled(position), None
        # Its holder would learn of this at the next heartbeat, which may be seconds away.
        notices = () if owner is None else (call("control_notify", run_id=run_id),)
        (refusal,) = await self._writer.write(
            wire, [Member(write, (owner, token), append_id)], *notices, COMMIT
        )
        if refusal is not None:
            raise refusal
        return logs.Controlled(write.head), write

    async def take(
        self, wanted: logs.TakeFilter, *, fold_version: int, decide: logs.DecideLoaded
    ) -> logs.Controlled | None:
        locked: list[str] = []
        try:
            answer, write = await self._connections.use(
                lambda wire: self._take(wire, wanted, fold_version, decide, locked)
            )
        except errors.StoreError as error:
            error.run_id = locked[-1] if locked else None
            raise
        if write is not None:
            self._ownership.note(write)
        return answer

    async def _take(
        self,
        wire: Wire,
        wanted: logs.TakeFilter,
        fold_version: int,
        decide: logs.DecideLoaded,
        locked: list[str],
    ) -> tuple[logs.Controlled | None, logs.Write | None]:
        locked.clear()
        try:
            run_id = await find_due(wire, wanted, self._ownership.now_us())
        except ServerError:
            await check_schema(wire)
            raise
        if run_id is None:
            return None, None
        locked.append(run_id)
        try:
            loaded = await self._load(wire, run_id, fold_version, wanted.known_of(run_id))
        except (errors.HistoryCorrupt, errors.StoreCorrupt) as error:
            raise errors.RunUnreadable(run_id, error) from error
        assert loaded is not None  # it was found, and locked, in the same transaction
        row = loaded.row
        write = decide(logs.Held(loaded.position, row.status, loaded.holder, self._ownership.owner), loaded)
        if write is None:
            return logs.Controlled(loaded.position), None
        (refusal,) = await self._writer.write(wire, [Member(write, (row.owner, row.token))], COMMIT)
        if refusal is not None:
            raise refusal
        return logs.Controlled(write.head), write

    async def load(self, run_id: str, *, fold_version: int) -> logs.Loaded | None:
        return await self._connections.use(lambda wire: self._load(wire, run_id, fold_version))

    async def _load(
        self, wire: Wire, run_id: str, fold_version: int, known: int | None = None
    ) -> logs.Loaded | None:
        # The snapshot first: read later, it could be of an event that the row does not know yet.
        asked = [] if known is not None else [snapshot_call(run_id, UNLIMITED, fold_version)]
        asked.append(call("run_get", id=run_id, now_us=self._ownership.now_us()))
        try:
            *cached, found, own = await wire.run(*asked, tail_call(run_id, known, fold_version))
        except ServerError as error:
            await name_damaged_event(wire, run_id, error, known, asked)
            raise
        if not found:
            return None
        listed = rows.listed_of(found[0], self._ownership.is_alive)
        row, position, snapshot = listed.row, rows.row_position(found[0]), None
        if cached:
            (kept,) = cached
            snapshot = (
                rows.snapshot_of(kept[0]) if kept else await inherited_snapshot(wire, row, fold_version)
            )
        after = known or (snapshot.seq if snapshot else 0)
        is_cut, is_due = position.seq - after > logs.TAIL_MAX, bool(found[0][-2])
        tail = () if is_cut else await read_tail(wire, run_id, after, position.seq, own)
        return logs.Loaded(row, position, listed.holder, snapshot, tail, is_cut, is_due)

    async def bodies(self, run_id: str, kind: str) -> Sequence[str]:
        return await self._connections.use(lambda wire: read_bodies(wire, run_id, kind))

    async def read(self, run_id: str, *, after: int, limit: int) -> Sequence[logs.StoredEvent]:
        return await self._connections.use(lambda wire: read_records(wire, run_id, after, limit=limit))


KNOWN_MAX = 10_000


class PostgresWriter(msgspec.Struct):
    """Writes runs. `known` is content that was stored once: asking for it is cheaper than sending it."""

    now_us: Callable[[], int | None]
    lease_us: int
    known: set[str] = msgspec.field(default_factory=set)
    is_heard: bool = False
    """Whether somebody is known to have subscribed; if not, writes make sure that nobody has."""
    scopes: set[str] = msgspec.field(default_factory=set)
    """Scopes that have rows."""
    one_trip: OneTrip = msgspec.field(default_factory=OneTrip)
    warnings: dict[str, list[Warned]] = msgspec.field(default_factory=dict)
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
        locked = await lock_ledger(wire, members, self.scopes)
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
            (found,) = await wire.run(advance_one(members[0], charge))
            if charge is not None and found:  # a refused write has charged nothing
                self.one_trip.charged(charge)
            return [None if found else await why_refused(wire, members[0], ())]
        orphans = [
            member.write.run_id
            for member in members
            if is_fork(member) and await is_orphan(wire, member.write)
        ]
        sent = [member for member in members if member.write.run_id not in orphans] if orphans else members
        statements, blobs = self._statements(sent), blobs_of(sent)
        held = sorted(self.known & blobs.keys())
        charged = [charge.behind(sent[0].write)] if charge is not None and sent else []
        content = [blob_call(name, *blobs[name]) for name in sorted(blobs.keys() - self.known)]
        content += [call("blob_hold", hashes=texts(held))] if held else []
        for member in sent:
            content += relying_on(member.write.relied_on(), member.write.at_us)
        try:
            answers = await wire.run(
                *statements,
                *message_calls([member.write for member in sent if member.write.calls]),
                *charged,
                *content,
                *calls_beside(sent, self.now_us(), is_heard=self.is_heard),
                *then,
            )
        except ServerError as error:
            if error.sqlstate == CONTENT_MISSING and held:
                self.known.clear()  # it was deleted: the next try sends it
                raise ServerError(AGAIN, str(error)) from None
            if error.sqlstate == SUBSCRIBED:
                self.note_subscriber()
                raise ServerError(AGAIN, str(error)) from None
            refusal = await refusal_of(wire, members[0].write, error) if len(members) == 1 else None
            if refusal is None:
                raise
            return [refusal]
        self._note(blobs.keys())
        moved = {columns[0] for found in answers[: len(statements)] for columns in found}
        if charge is not None and members[0].write.run_id in moved:
            self.one_trip.charged(charge)
        return [
            None if member.write.run_id in moved else await why_refused(wire, member, orphans)
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
            calls.append(advance_one(advanced[0]) if is_short else advance(advanced, locked))
        if made:
            calls.append(self._change("run_insert", made))
        return calls

    def _change(self, name: str, members: Sequence[Member], locked: Sequence[str] = ()) -> Call:
        table = [columns_of(member) for member in members]
        others = {**events_of(members), "now_us": self.now_us(), "lease_us": self.lease_us}
        if len(table) == 1 and not locked:
            return call(f"{name}_alone", **table[0], **others)
        wanted = [parameter for parameter in QUERIES[name].parameters if parameter in table[0]]
        arrays = {column: ARRAYS.get(column, texts)([row[column] for row in table]) for column in wanted}
        return call(name, **arrays, **others, locked=texts(locked))

    def note_subscriber(self) -> None:
        """Make notifications from now on."""
        self.is_heard = True

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


def _is_in_passing(member: Member, charge: Charge | None) -> bool:
    """Whether this is a step on the way, with nothing to store beside its events and this charge."""
    write = member.write
    is_plain = write.row is None and write.snapshot is None and not write.blobs and not write.gates
    is_plain = is_plain and write.notifications is None
    is_plain = is_plain and (not write.calls or (charge is not None and not write.calls[0].is_streamed))
    return is_plain and not write.relied_on() and len(write.records) <= ALONE_EVENTS_MAX


def is_fork(member: Member) -> bool:
    """Whether this creates a run that shares the log of another."""
    return member.held is None and member.write.row is not None and member.write.row.parent is not None


async def is_orphan(wire: Wire, write: logs.Write) -> bool:
    """A fork stands on an event that its parent really has; once there, it is there for ever."""
    assert write.row is not None
    below = await read_records(wire, write.row.parent or "", write.after.seq - 1, limit=1)
    return not below or (below[0].seq, below[0].hash) != write.after


async def refusal_of(wire: Wire, write: logs.Write, error: ServerError) -> Exception | None:
    """What an error of the server means for the only write that it is about; None if it is no refusal."""
    if error.sqlstate == CONTENT_MISSING:
        return content_missing(write.run_id)
    return await _occupied(wire, write) if error.constraint == KEY_IN_USE else None


async def _occupied(wire: Wire, write: logs.Write) -> Exception:
    """An exclusive key belongs to one held run; naming the holder beats a broken index."""
    assert write.row is not None
    assert write.row.exclusive_key is not None
    await wire.roll_back()
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


async def why_refused(wire: Wire, member: Member, orphans: Sequence[str]) -> Exception | None:
    """None when this very write is already there: its reply was lost, not the write."""
    write = member.write
    if member.held is None:
        if await _is_there(wire, member):
            return None
        if write.run_id in orphans and write.row is not None:
            return errors.RunNotFound(write.row.parent or "")
        return run_exists(write.run_id)
    written, found = await wire.run(
        call("event_hash", run_id=write.run_id, seq=write.head.seq),
        call("run_get", id=write.run_id, now_us=None),
    )
    if written and written[0][0] == write.head.hash:
        return None
    if not found:
        return errors.RunNotFound(write.run_id)
    row = rows.run_row(found[0])
    if (row.owner, row.token) != member.held:
        return errors.LeaseLost(write.run_id, member.held[1])
    return errors.StaleHistory(write.run_id, write.after.seq)
