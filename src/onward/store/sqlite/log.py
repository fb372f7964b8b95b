"""The log in SQLite: each call is one transaction, and appends share theirs."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from onward.errors import HistoryCorrupt, LeaseLost, RunNotFound, RunUnreadable, StoreCorrupt, StoreError
from onward.store import rows
from onward.store.group import GroupCommit
from onward.store.member import Member
from onward.store.port.leases import Lease
from onward.store.port.log import TAIL_MAX, Controlled, Decide, DecideLoaded, Held, Loaded, TakeFilter
from onward.store.port.stored import StoredEvent, Write
from onward.store.sqlite.file.migrate import check_known, schema_number
from onward.store.sqlite.file.transaction import Transactions
from onward.store.sqlite.ownership import Ownership
from onward.store.sqlite.reading import find_due, find_snapshot, one, read_records
from onward.store.sqlite.writing import Writer, find_append


class SqliteLog:
    """Logs in one SQLite file."""

    def __init__(self, database: Transactions, ownership: Ownership, writer: Writer) -> None:
        self._database, self._ownership, self._writer = database, ownership, writer
        self._group: GroupCommit[Member] = GroupCommit(self._commit)

    async def create(self, write: Write, append_id: str | None = None) -> None:
        await self._group.add(Member(write, None, append_id))
        self._ownership.note(write)

    async def append(self, write: Write, lease: Lease) -> None:
        try:
            await self._group.add(Member(write, lease[1:]))
        except LeaseLost:
            self._ownership.runs.pop(write.run_id, None)
            raise
        if write.row is not None:
            self._ownership.note(write)

    async def _commit(self, group: Sequence[Member]) -> Sequence[Exception | None]:
        return await self._database.transact(lambda db: self._writer.write(db, group))

    async def control(self, run_id: str, *, since: int, append_id: str, decide: Decide) -> Controlled:
        asker = self._ownership.announced_owner

        def control(db: apsw.Connection) -> tuple[Controlled, Write | None]:
            return self._control(db, run_id, since, append_id, decide, asker)

        answer, write = await self._database.transact(control)
        if write is not None:
            self._ownership.note(write)
        return answer

    def _control(
        self, db: apsw.Connection, run_id: str, since: int, append_id: str, decide: Decide, asker: str
    ) -> tuple[Controlled, Write | None]:
        found = one(db, "run_position", id=run_id, now_us=self._ownership.now_us())
        if found is None:
            raise RunNotFound(run_id)
        head, hash_, status, owner, token, is_expired = found
        position = rows.position_of(run_id, head, hash_)
        answered = find_append(db, run_id, append_id)
        if answered is not None:
            if owner == asker:
                self._ownership.runs[run_id] = token  # a claim of ours whose reply was lost
            return Controlled(position, is_repeat=True, answered=answered), None
        holder = rows.holder_of(owner, token, bool(is_expired), self._ownership.is_alive)
        held = Held(position, rows.status_of(status, f"run {run_id!r}"), holder, asker)
        write = decide(held, read_records(db, run_id, since))
        if write is None:
            return Controlled(position), None
        (refusal,) = self._writer.write(db, [Member(write, (owner, token), append_id)])
        if refusal is not None:
            raise refusal
        return Controlled(write.head), write

    async def take(self, wanted: TakeFilter, *, fold_version: int, decide: DecideLoaded) -> Controlled | None:
        asker, locked = self._ownership.announced_owner, list[str]()
        try:
            answer, write = await self._database.transact(
                lambda db: self._take(db, wanted, fold_version, decide, asker, locked)
            )
        except StoreError as error:
            error.run_id = locked[-1] if locked else None
            raise
        if write is not None:
            self._ownership.note(write)
        return answer

    def _take(
        self,
        db: apsw.Connection,
        wanted: TakeFilter,
        fold_version: int,
        decide: DecideLoaded,
        asker: str,
        locked: list[str],
    ) -> tuple[Controlled | None, Write | None]:
        check_known(schema_number(db))  # a newer version may have migrated the database since it was opened
        run_id = find_due(db, wanted, self._ownership.now_us())
        if run_id is None:
            return None, None
        locked.append(run_id)
        try:
            loaded = self._load(db, run_id, fold_version, wanted.known_of(run_id))
        except (HistoryCorrupt, StoreCorrupt, UnicodeDecodeError) as error:
            raise RunUnreadable(run_id, error) from error
        assert loaded is not None  # it was found in the same transaction
        row = loaded.row
        write = decide(Held(loaded.position, row.status, loaded.holder, asker), loaded)
        if write is None:
            return Controlled(loaded.position), None
        (refusal,) = self._writer.write(db, [Member(write, (row.owner, row.token))])
        if refusal is not None:
            raise refusal
        return Controlled(write.head), write

    async def load(self, run_id: str, *, fold_version: int) -> Loaded | None:
        return await self._database.look(lambda db: self._load(db, run_id, fold_version))

    def _load(
        self, db: apsw.Connection, run_id: str, fold_version: int, known: int | None = None
    ) -> Loaded | None:
        columns = one(db, "run_get", id=run_id, now_us=self._ownership.now_us())
        if columns is None:
            return None
        listed, position = rows.listed_of(columns, self._ownership.is_alive), rows.row_position(columns)
        snapshot = find_snapshot(db, run_id, position.seq, fold_version) if known is None else None
        after = known or (snapshot.seq if snapshot else 0)
        is_cut, is_due = position.seq - after > TAIL_MAX, bool(columns[-2])
        tail = () if is_cut else read_records(db, run_id, after)
        return Loaded(listed.row, position, listed.holder, snapshot, tail, is_cut, is_due)

    async def read(self, run_id: str, *, after: int, limit: int) -> Sequence[StoredEvent]:
        return await self._database.look(lambda db: read_records(db, run_id, after, limit=limit))
