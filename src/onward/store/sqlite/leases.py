"""Leases and workers in SQLite: the kernel tells which processes are alive, so renewing is mostly looking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from onward.clock import Clock
from onward.model.worker import Offer, RegisteredWorker
from onward.store import rows
from onward.store.port.leases import Lease
from onward.store.sqlite.file.transaction import Transactions
from onward.store.sqlite.ownership import Ownership
from onward.store.sqlite.reading import one
from onward.store.sqlite.statements import QUERIES

HEARTBEAT_S = 0.25


class SqliteLeases:
    """The leases of this process at one file."""

    def __init__(self, database: Transactions, ownership: Ownership, clock: Clock) -> None:
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

    def __init__(self, database: Transactions, ownership: Ownership) -> None:
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
