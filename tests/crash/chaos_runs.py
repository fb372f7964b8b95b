"""The runs of a storm: submitted before it, tended like a person would, and counted until all have ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from onward.clock import SystemClock, SystemDice, SystemIds
from onward.engine.control.requests import Resume, Start
from onward.engine.engine import Engine
from onward.errors import StoreError
from onward.handlers.function import FunctionHandler
from onward.model.run import RunStatus
from onward.store.port.runs import RunQuery
from onward.wiring import open_store
from tests.crash.chaos_agents import PROJECT, chat_of

ENDED = (RunStatus.COMPLETED, RunStatus.FAILED)
GIVEN_UP = RunQuery(reasons=("crash_loop",), limit=100)
"""Runs that failed because their holders died five times in a row. Nothing else is wrong with them."""


def run_id_of(number: int) -> str:
    return f"run-{number:04}"


async def submit(url: str, runs: int, source: str) -> None:
    """Create the runs; workers will take them."""
    async with _engine(url) as engine:
        pipeline = engine.sources.prepare(source, "<chaos>")
        for number in range(runs):
            start = Start(
                run_id=run_id_of(number), on_owner_loss="requeue", chat=chat_of(number), project=PROJECT
            )
            await engine.submit(pipeline, start)


async def tend(url: str) -> tuple[int, int] | None:
    """Resume the runs whose holders died too often: how many, and how many runs have not ended.

    None when the storm keeps this from the database, too: the next look finds what is left.
    """
    try:
        async with _engine(url) as engine:
            resumed = [await _resumed(engine, one.row.id) for one in await engine.store.runs.list(GIVEN_UP)]
            found = await engine.store.runs.count()
    except StoreError:
        return None
    return sum(resumed), sum(number for status, number in found.items() if status not in ENDED)


async def _resumed(engine: Engine, run_id: str) -> bool:
    return (await engine.resume(run_id, Resume(run=False))).run.status is RunStatus.QUEUED


@asynccontextmanager
async def _engine(url: str) -> AsyncIterator[Engine]:
    store = await open_store(url)
    handlers = {kind: FunctionHandler(lambda step: None) for kind in ("work", "tool", "codergen")}
    engine = Engine(store, clock=SystemClock(), ids=SystemIds(), dice=SystemDice(), handlers=handlers)
    try:
        yield engine
    finally:
        await engine.close()
