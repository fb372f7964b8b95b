"""Sixteen workers whose calls all reserve in one scope, against calls that have scopes of their own."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable

from bench.figure import Figure
from bench.pipelines import engine_on, line
from bench.workers import Crew, Rates, crew_of
from onward.engine.control.requests import StartRequest
from onward.wiring import open_store

WORKERS, RUNS_EACH, CALLS = 16, 4, 10
RATIO_MIN = 0.7


async def submitted(db: str, projects: list[str]) -> None:
    """Runs that wait for workers, one in each of these projects."""
    store = await open_store(db)
    engine = engine_on(store)
    pipeline = engine.sources.prepare(line(CALLS, "ask"), "<ask>")
    starts = [StartRequest(project=project, on_owner_loss="requeue") for project in projects]
    await asyncio.gather(*(engine.submit(pipeline, start) for start in starts))
    await engine.close()


async def shift(db: str, crew: Crew, projects: list[str], rates: Rates) -> None:
    """Let the crew drive a run in each of these projects, and note its calls per second."""
    await submitted(db, projects)
    took_s = await asyncio.to_thread(crew.shift_s, len(projects))
    rates.per_s.append(len(projects) * CALLS / took_s)


async def hot_scope(fresh: Callable[[], str], rounds: int) -> Figure:
    """Calls per second in one scope and in separate ones, in turns."""
    db, hot, separate = fresh(), Rates(), Rates()
    await (await open_store(db)).close()
    runs = WORKERS * RUNS_EACH
    with crew_of(db, WORKERS, at_once=1) as crew:
        await shift(db, crew, ["warm"] * 2 * WORKERS, Rates())  # what is done once is done now
        for number in range(rounds):
            await shift(db, crew, [f"own-{number}-{run}" for run in range(runs)], separate)
            await shift(db, crew, ["hot"] * runs, hot)
    ratio = statistics.median(one / other for one, other in zip(hot.per_s, separate.per_s, strict=True))
    return Figure(
        f"PostgreSQL: {WORKERS} workers, calls of 50 ms in one scope",
        f"{ratio:.2f} of separate scopes ({hot.median:,.0f} of {separate.median:,.0f} calls/s)",
        f">= {RATIO_MIN}",
        ratio >= RATIO_MIN,
    )
