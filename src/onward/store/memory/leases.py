"""Leases in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onward.store.memory.state import Ownership
from onward.store.port.leases import Lease

HEARTBEAT_S = 0.05


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
