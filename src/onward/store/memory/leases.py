"""Leases and workers in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from onward.model.worker import Offer, RegisteredWorker
from onward.store.memory.state import Ownership
from onward.store.port.leases import Lease

HEARTBEAT_S = 0.05
RENEW_S = 20.0


class MemoryLeases:
    """The leases of one process."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership

    @property
    def owner(self) -> str:
        return self._ownership.owner

    @property
    def lease_s(self) -> float | None:
        return self._ownership.lease_s

    @property
    def heartbeat_s(self) -> float:
        return HEARTBEAT_S

    async def renew(self, leases: Sequence[Lease]) -> Mapping[str, int]:
        heads: dict[str, int] = {}
        for run_id, owner, token in leases:
            stored = self._ownership.state.runs.get(run_id)
            if stored is not None and (stored.row.owner, stored.row.token) == (owner, token):
                stored.lease_until_us = self._ownership.lease_end()
                heads[run_id] = stored.position.seq
        return heads


class MemoryWorkers:
    """The workers at a database, as one process sees them."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership, self._workers = ownership, ownership.state.workers

    @property
    def renew_s(self) -> float:
        return (self._ownership.lease_s or RENEW_S * 3) / 3

    async def register(self, offer: Offer) -> None:
        owner, known = self._ownership.owner, self._workers.get(self._ownership.owner)
        started_at_us = self._ownership.state.now_us() if known is None else known[0].started_at_us
        worker = RegisteredWorker(owner, offer, started_at_us, is_alive=True)
        self._workers[owner] = worker, self._ownership.lease_end()

    async def leave(self) -> None:
        self._workers.pop(self._ownership.owner, None)

    async def read(self) -> Sequence[RegisteredWorker]:
        found = [
            replace(worker, is_alive=self._ownership.is_alive(worker.owner, until_us))
            for worker, until_us in self._workers.values()
        ]
        return sorted(found, key=lambda worker: (worker.started_at_us, worker.owner))

    async def tidy(self) -> int:
        dead = [worker.owner for worker in await self.read() if not worker.is_alive]
        for owner in dead:
            del self._workers[owner]
        return len(dead)
