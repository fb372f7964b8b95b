"""Filling in what a migration could not: what only the fold of a log knows about runs that are not final."""

from __future__ import annotations

import logging

from onward.errors import HistoryCorrupt
from onward.machine.decide.calls import doubtful_step
from onward.machine.fold.changes import IllegalEvent
from onward.machine.fold.steps import note_gates
from onward.machine.lifecycle import apply
from onward.machine.ticks import ticks_text
from onward.model.row import GateRow
from onward.model.run import Run
from onward.read.lookup import log_pages
from onward.store.codec import check_chain, unseal
from onward.store.port.log import ORIGIN, RunLog
from onward.store.port.retention import Filling
from onward.store.port.store import Store

log = logging.getLogger("onward.store")
TRIES_MAX = 5


async def fill_in(store: Store) -> None:
    """Fill in every run that is on the store's list; one that others write all the time stays on it."""
    for run_id in await store.backfill.missing():
        for _ in range(TRIES_MAX):
            try:
                filling = await _filling(store.log, run_id)
            except (HistoryCorrupt, IllegalEvent) as error:
                log.error("run %s has no rows for its open questions: %s", run_id, error)
                await store.backfill.skip(run_id)
                break
            if await store.backfill.fill(filling):
                break


async def _filling(log: RunLog, run_id: str) -> Filling:
    run: Run | None = None
    position, gates = ORIGIN, dict[str, GateRow]()
    async for page in log_pages(log, run_id):
        for record in page:
            position, event = check_chain(position, (record,)), unseal(record)
            before, run = run, apply(run, event, run_id=run_id, at_us=record.at_us, token=record.token)
            note_gates(gates, before, event, run, record.at_us)
    rows = tuple(gates.values())
    if run is None:
        return Filling(run_id, position, None, rows)
    return Filling(run_id, position, doubtful_step(run), rows, run.tokens, run.cost_micro, ticks_text(run))
