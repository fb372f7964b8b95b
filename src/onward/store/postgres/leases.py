"""Leases in PostgreSQL: a time limit by the server's clock, renewed over a connection of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onward.store.port.leases import Lease
from onward.store.postgres.link.binary import numbers, texts
from onward.store.postgres.link.pool import Pool
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
