"""SQLite: one file, one writer connection per process, a commit in the calling thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import apsw

from onward.clock import Clock, SystemClock
from onward.errors import HistoryCorrupt, LeaseLost, RunNotFound, RunUnreadable, StoreCorrupt, StoreError
from onward.model.run import RunStatus
from onward.store import rows
from onward.store.carrying import Arrival
from onward.store.group import GroupCommit
from onward.store.measures import Measured
from onward.store.member import Member
from onward.store.owner import owner_name
from onward.store.port import (
    Controlled,
    Decide,
    DecideLoaded,
    Effect,
    Held,
    Lease,
    Listed,
    Loaded,
    Record,
    RunQuery,
    Unwatch,
    Wanted,
    Write,
)
from onward.store.retention import DELETED_AT_ONCE, NOTHING, Expiry, Kin, Swept, batched, new_mark
from onward.store.sqlite import carrying, forgetting
from onward.store.sqlite.checks import check_database
from onward.store.sqlite.connection import Connect
from onward.store.sqlite.effects import EffectTable
from onward.store.sqlite.file.presence import Presence, is_owner_alive, workers_of
from onward.store.sqlite.identity import read_identity
from onward.store.sqlite.measuring import measure_file
from onward.store.sqlite.migrate import check_known, schema_number
from onward.store.sqlite.reading import Reader, count_runs, find_due, one, read_blobs, read_records
from onward.store.sqlite.statements import QUERIES
from onward.store.sqlite.tidying import dead_files, remove_unneeded
from onward.store.sqlite.transaction import Transactions
from onward.store.sqlite.writing import Writer, has_append
from onward.store.tallies import measured
from onward.threads import in_thread

BUSY_S_MAX = 30.0
LEASE_S = 60.0
HEARTBEAT_S = 0.25
TIDY_EVERY_S = 60.0


class SqliteStore:
    """Runs in one SQLite file.

    `busy_s` is how long to wait for another process's lock, `now_us` replaces the database's clock where
    leases are judged, and `connect` opens the file.
    """

    def __init__(
        self,
        path: str,
        *,
        clock: Clock | None = None,
        now_us: Callable[[], int | None] = lambda: None,
        lease_s: float = LEASE_S,
        busy_s: float = BUSY_S_MAX,
        connect: Connect = apsw.Connection,
    ) -> None:
        self.path = path
        self._clock = clock or SystemClock()
        self._now_us, self._lease_us = now_us, int(lease_s * 1_000_000)
        self._presence_directory = workers_of(path)
        self._presence: Presence | None = None
        self._me = ""
        self._held: set[str] = set()
        self._begun: set[str] = set()
        self._renewed_s = self._clock.awake_s()
        self._tidied_s: float | None = None
        self._reader = Reader(now_us, self._is_alive)
        self._writer = Writer(now_us, self._lease_us)
        self._effects = EffectTable(now_us, self._lease_us, self._is_alive)
        self._database = Transactions(path, clock=self._clock, busy_s=busy_s, connect=connect)
        try:
            self.identity = self._database.at_once(lambda db: read_identity(db, path))
        except BaseException:
            self._database.close()
            raise
        self._group: GroupCommit[Member] = GroupCommit(self._commit)

    @property
    def me(self) -> str:
        if self._presence is None:
            self._presence = Presence.announce(self._presence_directory)
            self._me = owner_name(self._presence.worker)
        return self._me

    @property
    def lease_s(self) -> float | None:
        return None  # the kernel tells who is alive; the time limit is only for strangers

    @property
    def heartbeat_s(self) -> float:
        return HEARTBEAT_S

    def _is_alive(self, owner: str, is_expired: bool) -> bool:
        if owner == self._me:
            return True
        return is_owner_alive(self._presence_directory, owner, is_expired=is_expired)

    async def create(self, write: Write, append_id: str | None = None) -> None:
        await self._group.add(Member(write, None, append_id))
        self._note_holding(write)

    async def append(self, write: Write, lease: Lease) -> None:
        try:
            await self._group.add(Member(write, (lease.owner, lease.token)))
        except LeaseLost:
            self._held.discard(write.run_id)
            raise
        if write.row is not None:
            self._note_holding(write)

    async def _commit(self, group: Sequence[Member]) -> Sequence[Exception | None]:
        return await self._database.transact(lambda db: self._writer.write(db, group))

    async def control(self, run_id: str, *, since: int, append_id: str, decide: Decide) -> Controlled:
        me = self.me

        def control(db: apsw.Connection) -> tuple[Controlled, Write | None]:
            return self._control(db, run_id, since, append_id, decide, me)

        answer, write = await self._database.transact(control)
        if write is not None:
            self._note_holding(write)
        return answer

    def _control(
        self, db: apsw.Connection, run_id: str, since: int, append_id: str, decide: Decide, me: str
    ) -> tuple[Controlled, Write | None]:
        found = one(db, "run_position", id=run_id, now_us=self._now_us())
        if found is None:
            raise RunNotFound(run_id)
        head, hash_, status, owner, token, is_expired = found
        position = rows.position_of(run_id, head, hash_)
        if has_append(db, run_id, append_id):
            if owner == me:
                self._held.add(run_id)  # a claim of ours whose reply was lost
            return Controlled(position, is_repeat=True), None
        holder = rows.holder_of(owner, token, bool(is_expired), self._is_alive)
        held = Held(position, rows.status_of(status, f"run {run_id!r}"), holder, me)
        write = decide(held, read_records(db, run_id, since))
        if write is None:
            return Controlled(position), None
        (refusal,) = self._writer.write(db, [Member(write, (owner, token), append_id)])
        if refusal is not None:
            raise refusal
        return Controlled(write.head), write

    async def take(self, wanted: Wanted, *, fold_version: int, decide: DecideLoaded) -> Controlled | None:
        me, locked = self.me, list[str]()
        try:
            answer, write = await self._database.transact(
                lambda db: self._take(db, wanted, fold_version, decide, me, locked)
            )
        except StoreError as error:
            error.run_id = locked[-1] if locked else None
            raise
        if write is not None:
            self._note_holding(write)
        return answer

    def _take(
        self,
        db: apsw.Connection,
        wanted: Wanted,
        fold_version: int,
        decide: DecideLoaded,
        me: str,
        locked: list[str],
    ) -> tuple[Controlled | None, Write | None]:
        check_known(schema_number(db))  # a newer version may have migrated the database since it was opened
        run_id = find_due(db, wanted, self._now_us())
        if run_id is None:
            return None, None
        locked.append(run_id)
        try:
            loaded = self._reader.load(db, run_id, fold_version, wanted.known_of(run_id))
        except (HistoryCorrupt, StoreCorrupt, UnicodeDecodeError) as error:
            raise RunUnreadable(run_id, error) from error
        assert loaded is not None  # it was found in the same transaction
        row = loaded.row
        write = decide(Held(loaded.position, row.status, loaded.holder, me), loaded)
        if write is None:
            return Controlled(loaded.position), None
        (refusal,) = self._writer.write(db, [Member(write, (row.owner, row.token))])
        if refusal is not None:
            raise refusal
        return Controlled(write.head), write

    async def held(self) -> Sequence[Listed]:
        await self._tidy()
        return await self._database.look(self._reader.held)

    async def _tidy(self) -> None:
        """Now and then, by whoever looks for the dead: their files go when nothing names them any more."""
        now_s = self._clock.awake_s()
        if self._tidied_s is not None and now_s - self._tidied_s < TIDY_EVERY_S:
            return
        self._tidied_s = now_s
        names = dead_files(self._presence_directory)
        if names:
            await self._database.look(lambda db: remove_unneeded(db, self._presence_directory, names))

    def _note_holding(self, write: Write) -> None:
        if write.row is not None and write.row.owner == self._me:
            self._held.add(write.run_id)
        else:
            self._held.discard(write.run_id)

    async def renew(self, leases: Sequence[Lease]) -> Mapping[str, int]:
        # Looking is cheap, writing is not, and the time limit only matters to a machine that cannot see
        # this process's lock.
        now_s = self._clock.awake_s()
        if (now_s - self._renewed_s) * 1_000_000 < self._lease_us / 3:
            return await self._database.look(lambda db: _heads(db, "lease_head", leases))
        values = {"now_us": self._now_us(), "lease_us": self._lease_us}
        heads = await self._database.transact(lambda db: _heads(db, "lease_renew", leases, **values))
        self._renewed_s = now_s
        return heads

    async def load(self, run_id: str, *, fold_version: int) -> Loaded | None:
        return await self._database.look(lambda db: self._reader.load(db, run_id, fold_version))

    async def read(self, run_id: str, *, after: int, limit: int) -> Sequence[Record]:
        return await self._database.look(lambda db: read_records(db, run_id, after, limit=limit))

    async def blob(self, hash: str) -> bytes | None:
        return await self._database.look(lambda db: read_blobs(db, (hash,)).get(hash))

    async def begin_effect(
        self, key: str, token: str, *, at_us: int, instead_of: str | None = None
    ) -> Effect:
        me = self.me
        found = await self._database.transact(
            lambda db: self._effects.begin(db, key, token, me, at_us, instead_of)
        )
        if found.token == token:
            self._begun.add(token)
        return found

    async def finish_effect(self, key: str, token: str, result: bytes, *, at_us: int) -> bool:
        is_ours = await self._database.transact(
            lambda db: self._effects.finish(db, key, token, result, at_us)
        )
        self._begun.discard(token)
        return is_ours

    async def renew_effect(self, key: str, token: str, *, is_at_it: bool = True) -> bool:
        return await self._database.transact(lambda db: self._effects.renew(db, key, token, is_at_it))

    async def forget_effect(self, key: str, token: str) -> None:
        await self._database.transact(lambda db: self._effects.forget(db, key, token))
        self._begun.discard(token)

    async def find_effect(self, key: str) -> Effect | None:
        return await self._database.look(lambda db: self._effects.find(db, key))

    async def read_effects(self, under: str, *, limit: int) -> Sequence[Effect]:
        return await self._database.look(lambda db: self._effects.read(db, under, limit))

    async def find(self, wanted: str) -> Sequence[Listed]:
        return await self._database.look(lambda db: self._reader.find(db, wanted))

    async def forks(self, run_id: str) -> Sequence[Listed]:
        return await self._database.look(lambda db: self._reader.forks(db, run_id))

    async def list(self, query: RunQuery) -> Sequence[Listed]:
        return await self._database.look(lambda db: self._reader.list(db, query))

    async def count(self) -> Mapping[RunStatus, int]:
        return await self._database.look(count_runs)

    async def measure(self) -> Measured:
        # On a connection and in a thread of its own: counting a million runs must not stop this process.
        found = await in_thread(measure_file, self.path, self._now_us())
        return measured(found, self._is_alive)

    async def note_stuck(self, run_id: str, why: str) -> None:
        values = {"run_id": run_id, "why": why, "now_us": self._now_us()}
        await self._database.transact(lambda db: db.execute(QUERIES["stuck_put"], values).fetchall())

    async def expired(self, expiry: Expiry) -> Sequence[Kin]:
        return await self._database.look(lambda db: forgetting.expired(db, expiry))

    async def attached(self) -> Sequence[Kin]:
        return await self._database.look(forgetting.attached)

    async def delete(self, runs: Sequence[Kin]) -> Sequence[str]:
        return await self._database.transact(lambda db: forgetting.delete(db, runs))

    async def sweep_blobs(self, before_us: int, limit: int) -> Swept:
        # Looking blocks no writer, so it may take its time; marking and deleting is done a few at a time.
        mark, swept = new_mark(), NOTHING
        names = await self._database.look(lambda db: forgetting.unused_blobs(db, before_us, limit))
        for batch in batched(names, DELETED_AT_ONCE):
            marking = partial(forgetting.mark_blobs, names=batch, before_us=before_us, mark=mark)
            await self._database.transact(marking)
        unused = await self._database.look(lambda db: forgetting.unused_blobs(db, 0, limit)) if names else ()
        for batch in batched(unused, DELETED_AT_ONCE):
            deleting = partial(forgetting.delete_blobs, names=batch, mark=mark)
            swept = swept.plus(await self._database.transact(deleting))
        return swept

    async def keep_blobs(self, blobs: Mapping[str, bytes], *, at_us: int) -> None:
        await self._database.transact(lambda db: self._writer.keep(db, blobs, at_us))

    async def receive(self, arrival: Arrival) -> None:
        await self._database.transact(lambda db: carrying.receive(db, self._writer, arrival))

    async def watch(self, on_due: Callable[[], None]) -> Unwatch:
        """Nothing tells one process of another's write to a file; whoever waits looks often instead."""

        async def unwatch() -> None:
            return None

        return unwatch

    async def check(self) -> Sequence[tuple[str, bool, str]]:
        return await self._database.look(lambda db: check_database(db, self.path))

    async def close(self) -> None:
        self._database.close()
        presence, self._presence = self._presence, None
        if presence is not None:
            presence.abandon() if self._held or self._begun else presence.close()


def _heads(
    db: apsw.Connection, query: str, leases: Sequence[Lease], **values: int | None
) -> Mapping[str, int]:
    heads: dict[str, int] = {}
    for run_id, owner, token in leases:
        found = one(db, query, id=run_id, owner=owner, token=token, **values)
        if found is not None:
            heads[run_id] = found[0]
    return heads
