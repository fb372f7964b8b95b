"""Waiting for a run, whichever process executes it."""

from __future__ import annotations

import asyncio

from onward.clock import Clock
from onward.engine.engine import Engine
from onward.engine.log.journal import Journal
from onward.engine.log.reader import Folded
from onward.errors import StillGoing
from onward.model.run import RunStatus
from onward.model.values.bounds import WAIT
from onward.read.lookup import find_run
from onward.store.port.store import Store

POLL_S = 0.1
GOING = (RunStatus.QUEUED, RunStatus.RUNNING)
MAY_GO_ON = (RunStatus.QUEUED, RunStatus.WAITING)


async def has_stopped(store: Store, clock: Clock, run_id: str) -> bool:
    """Whether nothing more comes from a run unless someone resumes it."""
    folded = await Journal(store.log, clock).load(run_id)
    run, holder = folded.run, folded.holder
    if run.status is not RunStatus.RUNNING:
        return run.status not in MAY_GO_ON
    is_dead = holder is None or not holder.is_alive
    return is_dead and run.on_owner_loss != "requeue"


async def wait_stopped(engine: Engine, clock: Clock, wanted: str, timeout_s: float | None = None) -> Folded:
    """The run when it has stopped: at its end, at a question, or because it failed or was asked to.

    Of a run that a loop_restart ended, the run that continues it is awaited. If the process that holds it has
    died, it is stopped or requeued as its policy says, as a worker would do. StillGoing when time is over.
    """
    until_s = None if timeout_s is None else clock.awake_s() + WAIT.check(timeout_s, "timeout")
    never = asyncio.Event()
    listed = await find_run(engine.store.runs, wanted)
    while True:
        row, holder = listed.row, listed.holder
        if row.restarted_as is not None:
            listed = await find_run(engine.store.runs, row.restarted_as)
            continue
        if row.status not in GOING:
            return await engine.journal.load(row.id)
        left_s = POLL_S if until_s is None else until_s - clock.awake_s()
        if timeout_s is not None and left_s <= 0:
            raise StillGoing(row.id, row.status.value, timeout_s)
        if holder is not None and not holder.is_alive:
            await engine.sweep()
        await clock.wait_s(min(POLL_S, left_s), never)
        listed = await find_run(engine.store.runs, row.id)
