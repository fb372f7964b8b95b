"""Finding questions in memory."""

from __future__ import annotations

from collections.abc import Sequence

from onward.model.row import GateRow
from onward.store.memory.state import State
from onward.store.port.gates import GatePlace, GateQuery


class MemoryGates:
    """The questions of a database's runs."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def open(self, query: GateQuery) -> Sequence[GateRow]:
        every = [row for stored in self._state.runs.values() for row in stored.gates.values()]
        found = [
            row
            for row in sorted(every, key=_place)
            if row.closed_at_us is None
            and query.pipeline in (None, row.pipeline)
            and (query.place is None or _place(row) > query.place)
        ]
        return found[: query.limit]

    async def of(self, run_id: str) -> Sequence[GateRow]:
        stored = self._state.runs.get(run_id)
        return [] if stored is None else sorted(stored.gates.values(), key=_place)


def _place(row: GateRow) -> GatePlace:
    return GatePlace(row.opened_at_us, row.run_id, row.gate)
