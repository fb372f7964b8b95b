"""The runs of a storm: submitted before it, tended like a person would, and counted until all have ended."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from onward.clock import SystemClock, SystemDice, SystemIds
from onward.engine.control.requests import Resume, StartRequest
from onward.engine.engine import Engine
from onward.errors import Refused, StoreError
from onward.handlers.function import FunctionHandler
from onward.machine.decide.calls import calls_in_doubt
from onward.model.row import RunRow
from onward.model.run import RunStatus
from onward.store.codec import unseal
from onward.store.port.runs import RunQuery
from onward.wiring import open_store
from tests.crash.chaos_agents import PROJECT, chat_of
from tests.crash.chaos_tools import STEP, Traces, decided, uses_tools

ENDED = (RunStatus.COMPLETED, RunStatus.FAILED)
GIVEN_UP = RunQuery(reasons=("crash_loop",), limit=100)
"""Runs that failed because their holders died five times in a row. Nothing else is wrong with them."""
ASKING = RunQuery(statuses=(RunStatus.WAITING,), limit=100)
IN_DOUBT = RunQuery(reasons=("in_doubt",), limit=100)
LOOK_AFTER_US = 1_000_000
"""A person looks what came of a use when its process is gone with all that it started."""
RESUMED, ALLOWED, SETTLED = "resumed", "allowed", "settled"


def run_id_of(number: int) -> str:
    return f"run-{number:04}"


async def submit(url: str, runs: int, source: str) -> None:
    """Create the runs; workers will take them."""
    async with _engine(url) as engine:
        pipeline = engine.sources.prepare(source, "<chaos>")
        await engine.store.limits.change("chat", {"tokens": 0})  # many runs share a few chats
        for number in range(runs):
            run_id = run_id_of(number)
            start = StartRequest(
                run_id=run_id,
                on_owner_loss="requeue",
                chat=chat_of(number),
                project=PROJECT,
                inputs={"me": run_id, "tools": "yes" if uses_tools(number) else "no"},
            )
            await engine.submit(pipeline, start)


async def tend(url: str, traces: Traces, done: Counter[str]) -> int | None:
    """Do what a person does, and count it: how many runs have not ended.

    Runs whose holders died too often are resumed, uses of tools are allowed, and of those in doubt the person
    looks what came of them and says so. None when the storm keeps this from the database, too: the next look
    finds what is left.
    """
    try:
        async with _engine(url) as engine:
            for one in await engine.store.runs.list(GIVEN_UP):
                done[RESUMED] += await _resumed(engine, one.row.id)
            for one in await engine.store.runs.list(ASKING):
                done[ALLOWED] += await _allowed(engine, one.row.id)
            for one in await engine.store.runs.list(IN_DOUBT):
                done[SETTLED] += await _settled(engine, one.row, traces)
            found = await engine.store.runs.count()
    except StoreError:
        return None
    return sum(number for status, number in found.items() if status not in ENDED)


async def _resumed(engine: Engine, run_id: str) -> bool:
    return (await engine.resume(run_id, Resume(run=False))).run.status is RunStatus.QUEUED


async def _allowed(engine: Engine, run_id: str) -> bool:
    try:
        await engine.answer(run_id, "yes", by="ann", run=False)
    except Refused:
        return False  # it waits for something else
    return True


async def _settled(engine: Engine, row: RunRow, traces: Traces) -> bool:
    """Say what came of the uses in doubt, unless their process may just have died."""
    if row.updated_at_us > time.time_ns() // 1_000 - LOOK_AFTER_US:
        return False
    opened = (await engine.journal.load(row.id)).run.open_steps.get(STEP)
    calls = [*calls_in_doubt(opened)] if opened is not None else []
    if not calls:
        return False
    events = [unseal(record) for record in await engine.store.log.read(row.id, after=0, limit=2**31)]
    answers = decided(row.id, events, calls, traces)
    try:
        await engine.resume(row.id, Resume(action="continue", answers=answers, run=False, by="ann"))
    except Refused:
        return False  # it has changed meanwhile
    return True


@asynccontextmanager
async def _engine(url: str) -> AsyncIterator[Engine]:
    store = await open_store(url)
    handlers = {kind: FunctionHandler(lambda step: None) for kind in ("work", "tool", "codergen")}
    engine = Engine(store, clock=SystemClock(), ids=SystemIds(), dice=SystemDice(), handlers=handlers)
    try:
        yield engine
    finally:
        await engine.close()
