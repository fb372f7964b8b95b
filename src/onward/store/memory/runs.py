"""Finding runs in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from onward.model.run import RunStatus
from onward.store.memory.state import Ownership, StoredRun
from onward.store.port.runs import Listed, RunQuery

FOUND_MAX = 20


class MemoryRuns:
    """The runs of a database, as one process sees their holders."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership, self._runs = ownership, ownership.state.runs

    async def find(self, wanted: str) -> Sequence[Listed]:
        runs = sorted(self._runs.values(), key=_id)
        found = [stored for stored in runs if stored.row.display_id == wanted]
        found = found or [stored for stored in runs if stored.row.id == wanted]
        if not found and wanted:
            found = [s for s in runs if s.row.id.startswith(wanted) or s.row.display_id.startswith(wanted)]
        return self._ownership.listed(found[:FOUND_MAX])

    async def list(self, query: RunQuery) -> Sequence[Listed]:
        found = [
            stored
            for stored in self._runs.values()
            if (not query.statuses or stored.row.status in query.statuses)
            and (query.pipeline is None or stored.row.pipeline == query.pipeline)
        ]
        return self._ownership.listed(sorted(found, key=by_age, reverse=True)[: query.limit])

    async def forks(self, run_id: str) -> Sequence[Listed]:
        found = [stored for stored in self._runs.values() if stored.row.parent == run_id]
        return self._ownership.listed(sorted(found, key=by_age))

    async def held(self) -> Sequence[Listed]:
        found = [stored for stored in self._runs.values() if stored.row.owner is not None]
        return self._ownership.listed(sorted(found, key=_id))

    async def count(self) -> Mapping[RunStatus, int]:
        return Counter(stored.row.status for stored in self._runs.values())


def by_age(stored: StoredRun) -> tuple[int, str]:
    """Sorts the oldest first."""
    return stored.row.created_at_us, stored.row.id


def _id(stored: StoredRun) -> str:
    return stored.row.id
