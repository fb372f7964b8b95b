"""Which runs a person wants to see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onward.engine.look import find_run
from onward.engine.view import view_row
from onward.model.run import RunStatus
from onward.store.port import Listed, RunQuery, Store

ALL = 2**31 - 1
INTERRUPTED, RUNNING = RunStatus.INTERRUPTED.value, RunStatus.RUNNING.value


@dataclass(frozen=True, slots=True)
class Wanted:
    """One run, or the newest of those that stand in one of some ways."""

    run: str | None = None
    statuses: tuple[str, ...] = ()
    limit: int = ALL

    async def find(self, store: Store) -> Sequence[Listed]:
        """The runs, newest first."""
        if self.run is not None:
            return [await find_run(store, self.run)]
        if not {INTERRUPTED, RUNNING} & set(self.statuses):
            return await store.list(RunQuery(tuple(map(RunStatus, self.statuses)), limit=self.limit))
        # A running run whose owner died is stored as running until somebody acts on it, and shown as it is.
        asked = {*self.statuses, RUNNING}
        found = await store.list(RunQuery(tuple(map(RunStatus, sorted(asked))), limit=ALL))
        kept = [one for one in found if view_row(one.row, one.holder)["status"] in self.statuses]
        return kept[: self.limit]
