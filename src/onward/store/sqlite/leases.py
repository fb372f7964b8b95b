"""Leases, workers and effects in SQLite: the kernel tells which processes are alive.

So renewing a lease is mostly looking. `SqliteOwnership` is who this process is to others at the file, what it
holds there, and which owners are alive. An effect is one row, and each call about it one transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import apsw

from onward.clock import Clock
from onward.model.row import Offer, RegisteredWorker
from onward.store import rows
from onward.store.owner import Holdings, owner_name
from onward.store.port.leases import Effect, Lease
from onward.store.sqlite.presence import Presence, is_owner_alive, workers_of
from onward.store.sqlite.statements import QUERIES, one
from onward.store.sqlite.transaction import Transactions


class SqliteOwnership(Holdings):
    """This process as an owner. It announces itself beside the file when its name is first needed."""

    def __init__(self, path: str, now_us: Callable[[], int | None], lease_us: int) -> None:
        super().__init__(now_us, lease_us)
        self.directory = workers_of(path)
        self._presence: Presence | None = None

    @property
    def announced_owner(self) -> str:
        if self._presence is None:
            self._presence = Presence.announce(self.directory)
            self.owner = owner_name(self._presence.worker)
        return self.owner

    def is_alive(self, owner: str, is_expired: bool) -> bool:
        """Whether an owner's process is alive; if that cannot be seen, whether its time is not over."""
        if owner == self.owner:
            return True
        return is_owner_alive(self.directory, owner, is_expired=is_expired)

    def close(self) -> None:
        """Leave. What is still held needs the file, which tells that its process is dead."""
        presence, self._presence = self._presence, None
        if presence is not None:
            is_named = self.runs or self.effects or self.is_registered
            presence.abandon() if is_named else presence.close()


HEARTBEAT_S = 0.25


class SqliteLeases:
    """The leases of this process at one file."""

    def __init__(self, database: Transactions, ownership: SqliteOwnership, clock: Clock) -> None:
        self._database, self._ownership, self._clock = database, ownership, clock
        self._renewed_s = clock.awake_s()

    @property
    def owner(self) -> str:
        return self._ownership.announced_owner

    @property
    def lease_s(self) -> float | None:
        return None  # the kernel tells who is alive; the time limit is only for other machines

    @property
    def heartbeat_s(self) -> float:
        return HEARTBEAT_S

    @property
    def news(self) -> asyncio.Event:
        return asyncio.Event()  # nothing tells; the heartbeat is quick instead

    async def renew(self, leases: Sequence[Lease]) -> Mapping[str, int]:
        # Looking is cheap, writing is not, and the time limit only matters to a machine that cannot see
        # this process's lock.
        now_s = self._clock.awake_s()
        if (now_s - self._renewed_s) * 1_000_000 < self._ownership.lease_us / 3:
            return await self._database.look(lambda db: _heads(db, "lease_head", leases))
        values = {"now_us": self._ownership.now_us(), "lease_us": self._ownership.lease_us}
        heads = await self._database.transact(lambda db: _heads(db, "lease_renew", leases, **values))
        self._renewed_s = now_s
        return heads


class SqliteWorkers:
    """The workers at one file; the lock of each tells whether it is alive."""

    def __init__(self, database: Transactions, ownership: SqliteOwnership) -> None:
        self._database, self._ownership = database, ownership

    @property
    def renew_s(self) -> float:
        return self._ownership.lease_us / 3_000_000

    async def register(self, offer: Offer) -> None:
        owner = self._ownership
        values = {"owner": owner.announced_owner, "now_us": owner.now_us(), "lease_us": owner.lease_us}
        values |= rows.worker_values(offer)
        self._ownership.is_registered = True  # first: if the reply is lost, there may be a row
        await self._database.transact(lambda db: db.execute(QUERIES["worker_put"], values).fetchall())

    async def leave(self) -> None:
        values = {"owner": self._ownership.announced_owner}
        await self._database.transact(lambda db: db.execute(QUERIES["worker_leave"], values).fetchall())
        self._ownership.is_registered = False

    async def read(self) -> Sequence[RegisteredWorker]:
        found = await self._database.look(self._rows)
        return rows.sound(found, lambda columns: rows.worker_of(columns, self._ownership.is_alive))

    async def tidy(self) -> int:
        dead = rows.dead_workers(await self._database.look(self._rows), self._ownership.is_alive)
        if not dead:
            return 0
        return await self._database.transact(
            lambda db: sum(
                one(db, "worker_remove", owner=owner, lease_until_us=until_us) is not None
                for owner, until_us in dead
            )
        )

    def _rows(self, db: apsw.Connection) -> Sequence[Sequence[Any]]:
        return db.execute(QUERIES["worker_read"], {"now_us": self._ownership.now_us()}).fetchall()


def _heads(
    db: apsw.Connection, query: str, leases: Sequence[Lease], **values: int | None
) -> Mapping[str, int]:
    heads: dict[str, int] = {}
    for run_id, owner, token in leases:
        found = one(db, query, id=run_id, owner=owner, token=token, **values)
        if found is not None:
            heads[run_id] = found[0]
    return heads


class SqliteEffects:
    """The effects of one SQLite file."""

    def __init__(self, database: Transactions, ownership: SqliteOwnership) -> None:
        self._database, self._ownership = database, ownership

    async def begin(self, key: str, token: str, *, at_us: int, instead_of: str | None = None) -> Effect:
        values = {"key": key, "token": token, "owner": self._ownership.announced_owner, "at_us": at_us}

        def begin(db: apsw.Connection) -> Effect:
            db.execute(QUERIES["effect_begin"], values | {"instead_of": instead_of} | self._times())
            found = self._find(db, key)
            assert found is not None
            return found

        found = await self._database.transact(begin)
        if found.token == token:
            self._ownership.effects[token] = key
        return found

    async def finish(self, key: str, token: str, result: bytes, *, at_us: int) -> bool:
        values = {"key": key, "token": token, "result": result, "at_us": at_us}

        def finish(db: apsw.Connection) -> bool:
            db.execute(QUERIES["effect_finish"], values)
            found = self._find(db, key)
            return found is not None and found.token == token  # now, or before when the reply was lost

        is_ours = await self._database.transact(finish)
        self._ownership.effects.pop(token, None)
        return is_ours

    async def renew(self, key: str, token: str, *, is_at_it: bool = True) -> bool:
        times = self._times() if is_at_it else {"now_us": 0, "lease_us": 0}
        return await self._database.transact(
            lambda db: one(db, "effect_renew", key=key, token=token, **times) is not None
        )

    async def forget(self, key: str, token: str) -> None:
        values = {"key": key, "token": token}
        await self._database.transact(lambda db: db.execute(QUERIES["effect_forget"], values))
        self._ownership.effects.pop(token, None)

    async def find(self, key: str) -> Effect | None:
        return await self._database.look(lambda db: self._find(db, key))

    async def read(self, under: str, *, limit: int) -> Sequence[Effect]:
        first, behind = rows.keys_below(under)
        values = {"first": first, "behind": behind, "limit": limit, "now_us": self._ownership.now_us()}
        return await self._database.look(
            lambda db: [self._effect(columns) for columns in db.execute(QUERIES["effect_read"], values)]
        )

    def _find(self, db: apsw.Connection, key: str) -> Effect | None:
        found = one(db, "effect_find", key=key, now_us=self._ownership.now_us())
        return None if found is None else self._effect(found)

    def _effect(self, columns: Sequence[object]) -> Effect:
        return rows.effect_of(columns, self._ownership.is_alive)

    def _times(self) -> dict[str, int | None]:
        return {"now_us": self._ownership.now_us(), "lease_us": self._ownership.lease_us}
