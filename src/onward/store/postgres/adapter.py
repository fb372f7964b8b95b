"""PostgreSQL: one statement per step, one connection for the writes of a process, a few for all else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Self

from onward.clock import Clock, SystemClock, SystemIds
from onward.errors import (
    HistoryCorrupt,
    LeaseLost,
    RunNotFound,
    RunUnreadable,
    StoreCorrupt,
    StoreError,
)
from onward.host import host_identity
from onward.model.identity import Identity
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
from onward.store.postgres import carrying, forgetting
from onward.store.postgres.checks import check_database
from onward.store.postgres.effects import EffectTable
from onward.store.postgres.identity import read_identity
from onward.store.postgres.link.binary import numbers, texts
from onward.store.postgres.link.connection import Address
from onward.store.postgres.link.listening import Listener
from onward.store.postgres.link.pool import Pool
from onward.store.postgres.link.server import Server
from onward.store.postgres.link.wire import Wire
from onward.store.postgres.living import is_owner_alive
from onward.store.postgres.measuring import measure_database
from onward.store.postgres.migrate import NEWEST, check_known, migrate, schema_number
from onward.store.postgres.reading import (
    Reader,
    count_runs,
    events_call,
    find_due,
    read_blobs,
    read_records,
    with_values,
)
from onward.store.postgres.statements import BEGIN, COMMIT, UNSYNCED, call
from onward.store.postgres.writing import Writer
from onward.store.retention import Expiry, Kin, Swept

LEASE_S = 10.0
PATIENCE_S = 10.0
CONNECTIONS_MAX = 4
CLOSE_S_MAX = 2.0


class PostgresStore:
    """Runs in one PostgreSQL database; made by `open`.

    `lease_s` is how long a claim or renewal is good for, `now_us` replaces the database's clock where leases
    are judged, and `patience_s` is how long to wait for a server that went away.
    """

    def __init__(
        self,
        address: Address,
        *,
        lease_s: float,
        now_us: Callable[[], int | None],
        clock: Clock,
        patience_s: float,
    ) -> None:
        self._lease_s, self._clock = lease_s, clock
        self.identity = Identity("")  # until it is opened
        # The nonce tells the stores of one process apart.
        self._me = owner_name(f"{SystemIds().unique()}/{host_identity().text()}")
        self._held: dict[str, int] = {}
        self._begun: dict[str, str] = {}
        self._now_us, self._lease_us = now_us, int(lease_s * 1_000_000)
        self._reader = Reader(now_us, self._is_alive)
        self._writer = Writer(now_us, self._lease_us)
        self._effects = EffectTable(now_us, self._lease_us, self._is_alive)
        self._server = Server(address, patience_s)
        self._writing = Pool(self._server, 1)
        self._renewing = Pool(self._server, 1)
        self._reading = Pool(self._server, CONNECTIONS_MAX)
        self._group: GroupCommit[Member] = GroupCommit(self._commit)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        lease_s: float = LEASE_S,
        now_us: Callable[[], int | None] = lambda: None,
        clock: Clock | None = None,
        patience_s: float = PATIENCE_S,
    ) -> Self:
        """A store at the database that `url` names, its schema up to date."""
        address, clock = Address.parse(url), clock or SystemClock()
        store = cls(address, lease_s=lease_s, now_us=now_us, clock=clock, patience_s=patience_s)
        try:
            await store._reading.open()
            found = await store._reading.use(schema_number)
            check_known(found)
            if found < NEWEST:
                await migrate(address)
            store.identity = await store._reading.use(read_identity)
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def me(self) -> str:
        return self._me

    @property
    def lease_s(self) -> float | None:
        return self._lease_s

    @property
    def heartbeat_s(self) -> float:
        return self._lease_s / 3

    def _is_alive(self, owner: str, is_expired: bool) -> bool:
        if is_expired or owner == self._me:
            return not is_expired
        return is_owner_alive(owner, is_expired=is_expired)

    async def create(self, write: Write, append_id: str | None = None) -> None:
        await self._group.add(Member(write, None, append_id))
        self._note_holding(write)

    async def append(self, write: Write, lease: Lease) -> None:
        try:
            await self._group.add(Member(write, (lease.owner, lease.token)))
        except LeaseLost:
            self._held.pop(write.run_id, None)
            raise
        if write.row is not None:
            self._note_holding(write)

    async def _commit(self, group: Sequence[Member]) -> Sequence[Exception | None]:
        return await self._writing.use(lambda wire: self._writer.commit(wire, group))

    async def control(self, run_id: str, *, since: int, append_id: str, decide: Decide) -> Controlled:
        answer, write = await self._reading.use(
            lambda wire: self._control(wire, run_id, since, append_id, decide)
        )
        if write is not None:
            self._note_holding(write)
        return answer

    async def _control(
        self, wire: Wire, run_id: str, since: int, append_id: str, decide: Decide
    ) -> tuple[Controlled, Write | None]:
        _, found, noted, own = await wire.run(
            BEGIN,
            call("run_position", id=run_id, now_us=self._now_us()),
            call("append_find", run_id=run_id, append_id=append_id),
            events_call(run_id, since),
        )
        if not found:
            raise RunNotFound(run_id)
        head, hash_, status, owner, token, is_expired = found[0]
        position = rows.position_of(run_id, head, hash_)
        if noted:
            if owner == self._me:
                self._held[run_id] = token  # a claim of ours whose reply was lost
            return Controlled(position, is_repeat=True), None
        holder = rows.holder_of(owner, token, is_expired, self._is_alive)
        held = Held(position, rows.status_of(status, f"run {run_id!r}"), holder, self._me)
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

    async def take(self, wanted: Wanted, *, fold_version: int, decide: DecideLoaded) -> Controlled | None:
        locked: list[str] = []
        try:
            answer, write = await self._reading.use(
                lambda wire: self._take(wire, wanted, fold_version, decide, locked)
            )
        except StoreError as error:
            error.run_id = locked[-1] if locked else None
            raise
        if write is not None:
            self._note_holding(write)
        return answer

    async def _take(
        self, wire: Wire, wanted: Wanted, fold_version: int, decide: DecideLoaded, locked: list[str]
    ) -> tuple[Controlled | None, Write | None]:
        locked.clear()
        _, ((found,),) = await wire.run(BEGIN, call("migration_newest"))
        check_known(found)  # a newer version may have migrated the database since it was opened
        run_id = await find_due(wire, wanted, self._now_us())
        if run_id is None:
            return None, None
        locked.append(run_id)
        try:
            loaded = await self._reader.load(wire, run_id, fold_version, wanted.known_of(run_id))
        except (HistoryCorrupt, StoreCorrupt) as error:
            raise RunUnreadable(run_id, error) from error
        assert loaded is not None  # it was found, and locked, in the same transaction
        row = loaded.row
        write = decide(Held(loaded.position, row.status, loaded.holder, self._me), loaded)
        if write is None:
            return Controlled(loaded.position), None
        (refusal,) = await self._writer.write(wire, [Member(write, (row.owner, row.token))], COMMIT)
        if refusal is not None:
            raise refusal
        return Controlled(write.head), write

    async def held(self) -> Sequence[Listed]:
        return await self._reading.use(self._reader.held)

    def _note_holding(self, write: Write) -> None:
        if write.row is not None and write.row.owner == self._me:
            self._held[write.run_id] = write.row.token
        else:
            self._held.pop(write.run_id, None)

    async def renew(self, leases: Sequence[Lease]) -> Mapping[str, int]:
        return await self._renew(leases, self._now_us(), self._lease_us)

    async def _renew(self, leases: Sequence[Lease], now_us: int | None, lease_us: int) -> Mapping[str, int]:
        if not leases:
            return {}
        renewal = call(
            "lease_renew",
            id=texts([lease.run_id for lease in leases]),
            owner=texts([lease.owner for lease in leases]),
            token=numbers([lease.token for lease in leases]),
            now_us=now_us,
            lease_us=lease_us,
        )
        # A renewal that a power cut undoes is a lease that ends sooner.
        _, heads = await self._renewing.use(lambda wire: wire.run(UNSYNCED, renewal))
        return dict(heads)

    async def load(self, run_id: str, *, fold_version: int) -> Loaded | None:
        return await self._reading.use(lambda wire: self._reader.load(wire, run_id, fold_version))

    async def read(self, run_id: str, *, after: int, limit: int) -> Sequence[Record]:
        return await self._reading.use(lambda wire: read_records(wire, run_id, after, limit=limit))

    async def blob(self, hash: str) -> bytes | None:
        found = await self._reading.use(lambda wire: read_blobs(wire, (hash,)))
        return found.get(hash)

    async def begin_effect(
        self, key: str, token: str, *, at_us: int, instead_of: str | None = None
    ) -> Effect:
        found: Effect | None = None
        while found is None:  # forgotten by somebody just after it was in our way
            found = await self._reading.use(
                lambda wire: self._effects.begin(wire, key, token, self._me, at_us, instead_of)
            )
        if found.token == token:
            self._begun[token] = key
        return found

    async def finish_effect(self, key: str, token: str, result: bytes, *, at_us: int) -> bool:
        is_ours = await self._reading.use(lambda wire: self._effects.finish(wire, key, token, result, at_us))
        self._begun.pop(token, None)
        return is_ours

    async def renew_effect(self, key: str, token: str, *, is_at_it: bool = True) -> bool:
        return await self._renewing.use(lambda wire: self._effects.renew(wire, key, token, is_at_it))

    async def forget_effect(self, key: str, token: str) -> None:
        await self._reading.use(lambda wire: self._effects.forget(wire, key, token))
        self._begun.pop(token, None)

    async def find_effect(self, key: str) -> Effect | None:
        return await self._reading.use(lambda wire: self._effects.find(wire, key))

    async def read_effects(self, under: str, *, limit: int) -> Sequence[Effect]:
        return await self._reading.use(lambda wire: self._effects.read(wire, under, limit))

    async def find(self, wanted: str) -> Sequence[Listed]:
        return await self._reading.use(lambda wire: self._reader.find(wire, wanted))

    async def forks(self, run_id: str) -> Sequence[Listed]:
        return await self._reading.use(lambda wire: self._reader.forks(wire, run_id))

    async def list(self, query: RunQuery) -> Sequence[Listed]:
        return await self._reading.use(lambda wire: self._reader.list(wire, query))

    async def count(self) -> Mapping[RunStatus, int]:
        return await self._reading.use(count_runs)

    async def measure(self) -> Measured:
        return await self._reading.use(lambda wire: measure_database(wire, self._now_us(), self._is_alive))

    async def note_stuck(self, run_id: str, why: str) -> None:
        note = call("stuck_put", run_id=run_id, why=why, now_us=self._now_us())
        await self._reading.use(lambda wire: wire.run(note))

    async def expired(self, expiry: Expiry) -> Sequence[Kin]:
        return await self._reading.use(lambda wire: forgetting.expired(wire, expiry))

    async def attached(self) -> Sequence[Kin]:
        return await self._reading.use(forgetting.attached)

    async def delete(self, runs: Sequence[Kin]) -> Sequence[str]:
        return await self._reading.use(lambda wire: forgetting.delete(wire, runs))

    async def sweep_blobs(self, before_us: int, limit: int) -> Swept:
        return await self._reading.use(lambda wire: forgetting.sweep_blobs(wire, before_us, limit))

    async def keep_blobs(self, blobs: Mapping[str, bytes], *, at_us: int) -> None:
        await self._reading.use(lambda wire: self._writer.keep(wire, blobs, at_us))

    async def receive(self, arrival: Arrival) -> None:
        await self._reading.use(lambda wire: carrying.receive(wire, self._writer, arrival))

    async def watch(self, on_due: Callable[[], None]) -> Unwatch:
        listener = Listener(self._server, on_due)
        await listener.start()
        return listener.stop

    async def check(self) -> Sequence[tuple[str, bool, str]]:
        return await self._writing.use(lambda wire: check_database(wire, self._clock))

    async def close(self) -> None:
        leases = [Lease(run_id, self._me, token) for run_id, token in self._held.items()]
        # Nobody needs to wait for our leases to run out; if we cannot say so any more, they do run out.
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(CLOSE_S_MAX):
                await self._renew(leases, 0, 0)
                for token, key in self._begun.items():
                    await self.renew_effect(key, token, is_at_it=False)
        for pool in (self._writing, self._renewing, self._reading):
            pool.close()
