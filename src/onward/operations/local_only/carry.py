"""Whole runs out of a database and into one, as a stream of bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, closing
from typing import BinaryIO, cast

from msgspec.structs import asdict

from onward.carry.exporting import Exporter, with_parents
from onward.carry.importing import Checked, Importer
from onward.carry.spool import GIB, Limits, Spool
from onward.clock import Clock
from onward.model.row import RunRow
from onward.model.run import RunStatus
from onward.operations.local_only.replies import Exported, Imported
from onward.operations.local_only.requests import ExportRuns, ImportRuns
from onward.operations.requests.lists import ALL
from onward.read.lookup import find_run
from onward.store.port.runs import RunQuery, Runs
from onward.store.port.store import Store

Target = AbstractContextManager[Callable[[bytes], object]]
# In these statuses another process may continue the run while its copy goes elsewhere.
AT_WORK = (RunStatus.RUNNING, RunStatus.QUEUED, RunStatus.WAITING)


async def export_runs(store: Store, request: ExportRuns, target: Target) -> Exported:
    """Write the runs as they stand at one moment. `target` is opened when all of them were found."""
    chosen = await with_parents(
        store.runs, await _rows(store.runs, request.runs), may_add=request.with_parents
    )
    with target as write:
        carried = await Exporter(store, write).export(chosen)
    at_work = [
        {"display_id": row.display_id, "status": row.status.value} for row in chosen if row.status in AT_WORK
    ]
    return cast("Exported", {**asdict(carried), "at_work": at_work})


async def _rows(runs: Runs, names: Sequence[str]) -> list[RunRow]:
    if names:
        return [(await find_run(runs, name)).row for name in names]
    return [listed.row for listed in reversed(await runs.list(RunQuery(limit=ALL)))]


def spool_of(source: BinaryIO, request: ImportRuns) -> Spool:
    """A copy of what comes in, so that what is checked is what is written."""
    limits = None if request.unpacked_max is None else Limits(free=request.unpacked_max * GIB, ratio=0)
    return Spool(source, request.name, limits)


async def import_runs(
    request: ImportRuns, spool: Spool, store: AbstractAsyncContextManager[Store], clock: Clock
) -> Imported:
    """Take in each run whole. The store is opened after all checks, so that a bad file makes no database."""
    with closing(spool):
        checked = Checked(spool, is_paused=request.paused)
        async with store as opened:
            brought = await Importer(opened, clock, checked).bring()
    return {
        "imported": [one.run for one in brought if one.is_new],
        "runs": [
            {"run": one.run, "imported": one.is_new, "status": one.status, "says": one.says}
            for one in brought
        ],
    }
