"""Lists over all runs, from the rows of a store. `onward status` must be quick, so this imports little."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from onward.errors import HistoryCorrupt, InvalidInput, RunNotFound, StoreCorrupt
from onward.model.run import RunStatus
from onward.operations.replies import GateListed, RunList, RunListed, Stats, WorkerListed
from onward.operations.requests import ALL, GetStats, ListGates, ListRuns, ListWorkers
from onward.read.lookup import completed_of, find_run
from onward.read.view import has_lost_owner, known_row, view_gate, view_row
from onward.store.owner import owner_label
from onward.store.port.runs import Listed, RunQuery
from onward.store.port.store import Store

if TYPE_CHECKING:
    from onward.model.run import Run

NOT_YET = ("reasons", "parent", "text", "cursor")
"""Filters that no store has yet."""
EITHER = {RunStatus.RUNNING, RunStatus.INTERRUPTED}


@dataclass(frozen=True, slots=True)
class LocalLists:
    """Looks over the runs of one store."""

    store: Store

    async def list_runs(self, request: ListRuns) -> RunList:
        """Runs, each as `onward show` tells it."""
        wanted = [name for name in NOT_YET if getattr(request, name)]
        if wanted:
            raise InvalidInput(f"runs cannot be listed by {', '.join(wanted)} yet; leave that out.")
        found = await self._found(request)
        runs = [await self._listed(one, completed=request.completed) for one in found]
        return {"runs": runs, "older": await self._older(request, len(runs))}

    async def _found(self, request: ListRuns) -> Sequence[Listed]:
        if request.run is not None:
            return [await find_run(self.store.runs, request.run)]
        asked = set(request.statuses)
        if len(asked & EITHER) != 1:
            query = RunQuery(request.statuses, request.pipeline, request.limit)
            return await self.store.runs.list(query)
        # A running run whose owner died is stored as running until somebody acts on it, and shown as it is.
        query = RunQuery(tuple(sorted({*asked, RunStatus.RUNNING})), request.pipeline, ALL)
        found = await self.store.runs.list(query)
        kept = [one for one in found if view_row(one.row, one.holder)["status"] in asked]
        return kept[: request.limit]

    async def _older(self, request: ListRuns, listed: int) -> int:
        is_filtered = request.run or request.statuses or request.pipeline
        if not request.older or is_filtered or listed < request.limit:
            return 0
        return sum((await self.store.runs.count()).values()) - listed

    async def _listed(self, listed: Listed, *, completed: bool) -> RunListed:
        """A row tells all, unless its owner died: whether a step is in doubt is only in the log."""
        row, holder = listed.row, listed.holder
        if has_lost_owner(row, holder):
            # One that cannot be read must not hide the others.
            with suppress(HistoryCorrupt, StoreCorrupt, RunNotFound):
                row = known_row(row, holder, await self._run(row.id))
        finished = await completed_of(self.store.log, row.id) if completed else None
        return cast("RunListed", view_row(row, holder, finished))

    async def list_gates(self, request: ListGates) -> list[GateListed]:
        """Open questions, those of the newest run first."""
        if request.run is not None:
            found: Sequence[Listed] = [await find_run(self.store.runs, request.run)]
        else:
            found = await self.store.runs.list(RunQuery((RunStatus.WAITING,), limit=request.limit))
        gates: list[GateListed] = []
        for row in (listed.row for listed in found):
            about = {"run": row.id, "display_id": row.display_id, "pipeline": row.pipeline}
            asked = (gate for gate in (await self._run(row.id)).gates.values() if gate.decided is None)
            gates += [cast("GateListed", {**about, **view_gate(gate)}) for gate in asked]
        return gates[: request.limit]

    async def list_workers(self, request: ListWorkers) -> list[WorkerListed]:
        """The processes that hold runs, and whether they are alive."""
        found: dict[str, WorkerListed] = {}
        for listed in await self.store.runs.held():
            if listed.holder is not None:
                owner, is_alive = listed.holder.owner, listed.holder.is_alive
                known = found.setdefault(
                    owner, {"worker": owner_label(owner), "is_alive": is_alive, "runs": []}
                )
                known["runs"].append(listed.row.display_id)
        return list(found.values())

    async def get_stats(self, request: GetStats) -> Stats:
        """One consistent look; exact, and cheap however many runs are over."""
        from onward.observe.figures import view_measured

        return dict(view_measured(await self.store.measures.measure()))

    async def _run(self, run_id: str) -> Run:
        from onward.clock import SystemClock
        from onward.engine.log.journal import Journal

        return (await Journal(self.store.log, SystemClock()).load(run_id)).run
