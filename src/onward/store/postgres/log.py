"""The log in PostgreSQL: one statement for a step, one transaction for a call, and appends share theirs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from onward.errors import HistoryCorrupt, LeaseLost, RunNotFound, RunUnreadable, StoreCorrupt, StoreError
from onward.store import rows
from onward.store.group import GroupCommit
from onward.store.member import Member
from onward.store.port.leases import Lease
from onward.store.port.log import TAIL_MAX, Controlled, Decide, DecideLoaded, Held, Loaded, TakeFilter
from onward.store.port.stored import StoredEvent, Write
from onward.store.postgres.database.migrate import check_schema
from onward.store.postgres.limits.charging import is_charged
from onward.store.postgres.link.failure import ServerError
from onward.store.postgres.link.pool import Pool
from onward.store.postgres.link.wire import Wire
from onward.store.postgres.ownership import Ownership
from onward.store.postgres.reading import (
    events_call,
    find_due,
    inherited_snapshot,
    name_damaged_event,
    read_records,
    read_tail,
    snapshot_call,
    tail_call,
    with_values,
)
from onward.store.postgres.statements import BEGIN, COMMIT, call
from onward.store.postgres.writing.writer import Writer
from onward.store.rows import UNLIMITED


class PostgresLog:
    """Logs in one PostgreSQL database. Appends have a connection of their own.

    So have those that reserve or settle: they wait for scopes that other processes use, and the rest of the
    appends must not wait with them.
    """

    def __init__(
        self, appending: Pool, charging: Pool, connections: Pool, ownership: Ownership, writer: Writer
    ) -> None:
        self._connections = connections
        self._ownership, self._writer = ownership, writer
        self._group: GroupCommit[Member] = GroupCommit(partial(self._commit, appending))
        self._charging: GroupCommit[Member] = GroupCommit(partial(self._commit, charging))

    async def create(self, write: Write, append_id: str | None = None) -> None:
        await self._group.add(Member(write, None, append_id))
        self._ownership.note(write)

    async def append(self, write: Write, lease: Lease) -> None:
        member = Member(write, lease[1:])
        try:
            await (self._charging if is_charged(member) else self._group).add(member)
        except LeaseLost:
            self._ownership.runs.pop(write.run_id, None)
            raise
        if write.row is not None:
            self._ownership.note(write)

    async def _commit(self, pool: Pool, group: Sequence[Member]) -> Sequence[Exception | None]:
        return await pool.use(lambda wire: self._writer.commit(wire, group))

    async def control(self, run_id: str, *, since: int, append_id: str, decide: Decide) -> Controlled:
        answer, write = await self._connections.use(
            lambda wire: self._control(wire, run_id, since, append_id, decide)
        )
        if write is not None:
            self._ownership.note(write)
        return answer

    async def _control(
        self, wire: Wire, run_id: str, since: int, append_id: str, decide: Decide
    ) -> tuple[Controlled, Write | None]:
        asker = self._ownership.owner
        _, found, noted, own = await wire.run(
            BEGIN,
            call("run_position", id=run_id, now_us=self._ownership.now_us()),
            call("append_find", run_id=run_id, append_id=append_id),
            events_call(run_id, since),
        )
        if not found:
            raise RunNotFound(run_id)
        head, hash_, status, owner, token, is_expired = found[0]
        position = rows.position_of(run_id, head, hash_)
        if noted:
            if owner == asker:
                self._ownership.runs[run_id] = token  # a claim of ours whose reply was lost
            return Controlled(position, is_repeat=True, answered=noted[0][0]), None
        holder = rows.holder_of(owner, token, is_expired, self._ownership.is_alive)
        held = Held(position, rows.status_of(status, f"run {run_id!r}"), holder, asker)
        is_whole = head <= since or (own and own[0][1] == since + 1)  # else the rest is in a parent's log
        write = decide(
            held, await (with_values(wire, own) if is_whole else read_records(wire, run_id, since))
        )
        if write is None:
            return Controlled(position), None
        (refusal,) = await self._writer.write(wire, [Member(write, (owner, token), append_id)], COMMIT)
        if refusal is not None:
            raise refusal
        return Controlled(write.head), write

    async def take(self, wanted: TakeFilter, *, fold_version: int, decide: DecideLoaded) -> Controlled | None:
        locked: list[str] = []
        try:
            answer, write = await self._connections.use(
                lambda wire: self._take(wire, wanted, fold_version, decide, locked)
            )
        except StoreError as error:
            error.run_id = locked[-1] if locked else None
            raise
        if write is not None:
            self._ownership.note(write)
        return answer

    async def _take(
        self, wire: Wire, wanted: TakeFilter, fold_version: int, decide: DecideLoaded, locked: list[str]
    ) -> tuple[Controlled | None, Write | None]:
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
        except (HistoryCorrupt, StoreCorrupt) as error:
            raise RunUnreadable(run_id, error) from error
        assert loaded is not None  # it was found, and locked, in the same transaction
        row = loaded.row
        write = decide(Held(loaded.position, row.status, loaded.holder, self._ownership.owner), loaded)
        if write is None:
            return Controlled(loaded.position), None
        (refusal,) = await self._writer.write(wire, [Member(write, (row.owner, row.token))], COMMIT)
        if refusal is not None:
            raise refusal
        return Controlled(write.head), write

    async def load(self, run_id: str, *, fold_version: int) -> Loaded | None:
        return await self._connections.use(lambda wire: self._load(wire, run_id, fold_version))

    async def _load(
        self, wire: Wire, run_id: str, fold_version: int, known: int | None = None
    ) -> Loaded | None:
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
        is_cut, is_due = position.seq - after > TAIL_MAX, bool(found[0][-2])
        tail = () if is_cut else await read_tail(wire, run_id, after, position.seq, own)
        return Loaded(row, position, listed.holder, snapshot, tail, is_cut, is_due)

    async def read(self, run_id: str, *, after: int, limit: int) -> Sequence[StoredEvent]:
        return await self._connections.use(lambda wire: read_records(wire, run_id, after, limit=limit))
