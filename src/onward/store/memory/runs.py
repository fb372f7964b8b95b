"""Finding runs in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from onward.model.row import RunRow
from onward.model.run import RunStatus
from onward.model.values.tags import tags_in
from onward.store.memory.state import Ownership, StoredRun
from onward.store.port.runs import RELATIVES_MAX, Listed, RunQuery, lowered

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
        found = [stored for stored in self._runs.values() if _fits(stored.row, query)]
        return self._ownership.listed(sorted(found, key=by_age, reverse=True)[: query.limit])

    async def relatives(self, run_id: str) -> Sequence[Listed]:
        found = [
            stored for stored in self._runs.values() if run_id in (stored.row.parent, stored.row.managed_by)
        ]
        return self._ownership.listed(sorted(found, key=by_age)[:RELATIVES_MAX])

    async def held(self) -> Sequence[Listed]:
        found = [stored for stored in self._runs.values() if stored.row.owner is not None]
        return self._ownership.listed(sorted(found, key=_id))

    async def count(self) -> Mapping[RunStatus, int]:
        return Counter(stored.row.status for stored in self._runs.values())


def _fits(row: RunRow, query: RunQuery) -> bool:
    text = lowered(query.text or "")
    return (
        (not query.statuses or row.status in query.statuses)
        and (not query.reasons or row.reason in query.reasons)
        and query.pipeline in (None, row.pipeline)
        and query.parent in (None, row.parent)
        and query.chat in (None, row.chat)
        and set(query.tags) <= set(tags_in(row.tags))
        and (query.place is None or (row.created_at_us, row.id) < query.place)
        and any(text in lowered(said) for said in (row.id, row.display_id, row.pipeline, row.detail))
    )


def by_age(stored: StoredRun) -> tuple[int, str]:
    """Sorts the oldest first."""
    return stored.row.created_at_us, stored.row.id


def _id(stored: StoredRun) -> str:
    return stored.row.id
