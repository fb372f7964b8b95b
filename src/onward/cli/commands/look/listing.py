"""Which runs a person wants to see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onward.errors import HistoryCorrupt, RunNotFound, StoreCorrupt
from onward.model.run import RunStatus
from onward.read.lookup import find_run
from onward.read.view import has_lost_owner, known_row, view_row
from onward.store.port.runs import Listed, RunQuery
from onward.store.port.store import Store

ALL = 2**31 - 1
INTERRUPTED, RUNNING = RunStatus.INTERRUPTED.value, RunStatus.RUNNING.value


@dataclass(frozen=True, slots=True)
class Wanted:
    """One run, or the newest of those that stand in one of some ways."""

    run: str | None = None
    statuses: tuple[str, ...] = ()
    limit: int = ALL

    async def find(self, store: Store) -> Sequence[Listed]:
        """The runs, newest first, each as `onward show` tells it."""
        return [await _looked_at(store, listed) for listed in await self._found(store)]

    async def _found(self, store: Store) -> Sequence[Listed]:
        if self.run is not None:
            return [await find_run(store.runs, self.run)]
        if not {INTERRUPTED, RUNNING} & set(self.statuses):
            return await store.runs.list(RunQuery(tuple(map(RunStatus, self.statuses)), limit=self.limit))
        # A running run whose owner died is stored as running until somebody acts on it, and shown as it is.
        asked = {*self.statuses, RUNNING}
        found = await store.runs.list(RunQuery(tuple(map(RunStatus, sorted(asked))), limit=ALL))
        kept = [one for one in found if view_row(one.row, one.holder)["status"] in self.statuses]
        return kept[: self.limit]


async def _looked_at(store: Store, listed: Listed) -> Listed:
    """A row tells all, unless its owner died: whether a step is in doubt is only in the log."""
    if not has_lost_owner(listed.row, listed.holder):
        return listed
    from onward.clock import SystemClock
    from onward.engine.log.journal import Journal

    try:
        run = (await Journal(store.log, SystemClock()).load(listed.row.id)).run
    except (HistoryCorrupt, StoreCorrupt, RunNotFound):
        return listed  # one that cannot be read must not hide the others
    return replace(listed, row=known_row(listed.row, listed.holder, run))
