"""Steps and runs per second."""

from __future__ import annotations

import asyncio
import time

from bench.pipelines import line
from onward.engine.control.requests import StartRequest
from onward.engine.engine import Engine
from onward.model.run import RunStatus

STEPS, RUNS, AT_A_TIME = 1_000, 2_000, 50


async def steps_rate(engine: Engine, files: str = "", steps: int = STEPS) -> tuple[float, str]:
    """Steps per second of one run of no-op steps in a line, and the run's id."""
    pipeline = engine.sources.prepare(line(steps, files=files), "<line>")
    await engine.start(engine.sources.prepare(line(40, files=files), "<warm>"), StartRequest())
    began = time.perf_counter()
    ended = await engine.start(pipeline, StartRequest())
    rate = steps / (time.perf_counter() - began)
    assert ended.run.status is RunStatus.COMPLETED
    return rate, ended.run.id


async def runs_rate(engine: Engine, files: str = "", runs: int = RUNS) -> float:
    """Runs of three steps per second, so many at a time."""
    pipeline = engine.sources.prepare(line(3, files=files), "<three>")

    async def in_turn(runs: int) -> None:
        for _ in range(runs):
            assert (await engine.start(pipeline, StartRequest())).run.status is RunStatus.COMPLETED

    await asyncio.gather(*(in_turn(1) for _ in range(AT_A_TIME)))
    began = time.perf_counter()
    await asyncio.gather(*(in_turn(runs // AT_A_TIME) for _ in range(AT_A_TIME)))
    return runs / (time.perf_counter() - began)
