"""Memory has no past: no run in it is from before a migration."""

from __future__ import annotations

from collections.abc import Sequence

from onward.store.port.backfill import Filling


class MemoryBackfill:
    """An empty list."""

    async def missing(self) -> Sequence[str]:
        return ()

    async def fill(self, filling: Filling) -> bool:
        return True

    async def skip(self, run_id: str) -> None:
        return None
