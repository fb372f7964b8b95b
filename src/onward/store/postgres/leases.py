"""Leases and workers in PostgreSQL: time limits by the server's clock, renewed over their own connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onward.model.worker import Offer, RegisteredWorker
from onward.store import rows
from onward.store.port.leases import Lease
from onward.store.postgres.link.binary import numbers, texts
from onward.store.postgres.link.pool import Pool
from onward.store.postgres.link.wire import Rows
from onward.store.postgres.ownership import Ownership
from onward.store.postgres.statements import UNSYNCED, call


class PostgresLeases:
    """The leases of this process at one database."""

    def __init__(self, renewing: Pool, ownership: Ownership, lease_s: float) -> None:
        self._renewing, self._ownership, self._lease_s = renewing, ownership, lease_s

    @property
    def owner(self) -> str:
        return self._ownership.owner

    @property
    def lease_s(self) -> float | None:
        return self._lease_s

    @property
    def heartbeat_s(self) -> float:
        return self._lease_s / 3

    async def renew(self, leases: Sequence[Lease]) -> Mapping[str, int]:
        return await self._renew(leases, self._ownership.now_us(), self._ownership.lease_us)

    async def end(self) -> None:
        """End the leases of all runs that this process holds: no other has to wait for their time limit."""
        held = self._ownership.runs.items()
        await self._renew([Lease(run_id, self.owner, token) for run_id, token in held], 0, 0)

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


class PostgresWorkers:
    """The workers at one database; each is alive as long as it renews its row, by the server's clock."""

    def __init__(self, connections: Pool, ownership: Ownership) -> None:
        self._connections, self._ownership = connections, ownership

    @property
    def renew_s(self) -> float:
        return self._ownership.lease_us / 3_000_000

    async def register(self, offer: Offer) -> None:
        owner = self._ownership
        values = {"owner": owner.owner, "now_us": owner.now_us(), "lease_us": owner.lease_us}
        put = call("worker_put", **values, **rows.worker_values(offer))
        self._ownership.is_registered = True  # first: if the reply is lost, there may be a row
        await self._connections.use(lambda wire: wire.run(UNSYNCED, put))

    async def leave(self) -> None:
        leave = call("worker_leave", owner=self._ownership.owner)
        await self._connections.use(lambda wire: wire.run(UNSYNCED, leave))
        self._ownership.is_registered = False

    async def end(self) -> None:
        """Leave, if others know this process as a worker."""
        if self._ownership.is_registered:
            await self.leave()

    async def read(self) -> Sequence[RegisteredWorker]:
        return rows.sound(
            await self._rows(), lambda columns: rows.worker_of(columns, self._ownership.is_alive)
        )

    async def tidy(self) -> int:
        dead = rows.dead_workers(await self._rows(), self._ownership.is_alive)
        removals = [call("worker_remove", owner=owner, lease_until_us=until_us) for owner, until_us in dead]
        removed = await self._connections.use(lambda wire: wire.run(*removals)) if removals else ()
        return sum(map(len, removed))

    async def _rows(self) -> Rows:
        read = call("worker_read", now_us=self._ownership.now_us())
        (found,) = await self._connections.use(lambda wire: wire.run(read))
        return found
