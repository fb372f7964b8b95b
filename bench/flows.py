"""What a step of a flow costs beside a step of a graph, many at a time beside one by one; a long resume."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from msgspec.structs import astuple

from bench.figure import Figure
from bench.floor import Row
from bench.pipelines import custom_engine
from bench.rates import steps_rate
from onward.engine.control.requests import Resume, StartRequest
from onward.engine.engine import Engine
from onward.flows.branches import each
from onward.flows.define import Flow, flow, step
from onward.flows.handler import FlowHandler
from onward.model.run import RunStatus
from onward.wiring import open_store

CALLS, MANY, LONG = 300, 10_000, 100_000
WARM_STEPS, RESUMES = 600, 5
GROUPED = {"SQLite": 0.12, "PostgreSQL": 0.3}
"""How much of the rate of bare commits of many at a time is wanted."""
LIMIT = 100


@step
async def nothing(number: int) -> int:
    """A step that does nothing: what is left is ours."""
    return number


@step(once=True)
async def nothing_once(number: int) -> int:
    """The same, with its start recorded."""
    return number


@flow
async def one_by_one(count: int) -> int:
    """Steps one after the other."""
    for number in range(count):
        await nothing(number)
    return count


@flow
async def once_by_once(count: int) -> int:
    """The same, with their starts recorded."""
    for number in range(count):
        await nothing_once(number)
    return count


@flow
async def together(count: int) -> int:
    """Steps beside each other."""
    return len(await each(nothing, range(count), limit=LIMIT))


stops = [True]


@flow
async def long(count: int) -> int:
    """Steps beside each other; then it breaks, once."""
    done = len(await each(nothing, range(count), limit=LIMIT))
    if stops[0]:
        raise RuntimeError("once")
    return done


FLOWS: tuple[Flow[[int], int], ...] = (one_by_one, once_by_once, together, long)


Floor = Callable[[list[Row], int], Awaitable[float]]
"""Commits per second of the bare driver, of these rows each, so many of them."""


class Round(NamedTuple):
    """What was measured within seconds of each other: microseconds of a step, each of another kind."""

    graph: float
    alone: float
    once: float
    many: float
    two_commits: float
    """Two bare commits of a row."""
    grouped: float
    """A row of a bare commit of as many as work at a time, each awaited in a task of its own."""


async def _took_us(engine: Engine, one: Flow[[int], int], count: int) -> float:
    """Microseconds per step."""
    pipeline = engine.sources.prepare(one.source, f"<{one.name}>")
    began = time.perf_counter()
    ended = await engine.start(pipeline, StartRequest(inputs={"count": count}))
    took = time.perf_counter() - began
    assert ended.run.status is RunStatus.COMPLETED, ended.run.detail
    return took / count * 1_000_000


async def _round(engine: Engine, floor: Floor, rows: list[Row], number: int) -> Round:
    """Short measurements in turn, since the machine changes its mind within seconds."""
    took: dict[str, float] = {}
    before, _ = await steps_rate(engine, steps=CALLS)
    kinds = (one_by_one, once_by_once) if number % 2 else (once_by_once, one_by_one)
    for kind in kinds:
        took[kind.name] = await _took_us(engine, kind, CALLS)
    after, _ = await steps_rate(engine, steps=CALLS)
    bare = await floor(rows, 2 * CALLS)
    many = await _took_us(engine, together, MANY)
    grouped = await floor(rows * LIMIT, MANY // LIMIT)
    return Round(
        graph=2_000_000 / (before + after),
        alone=took[one_by_one.name],
        once=took[once_by_once.name],
        many=many,
        two_commits=2_000_000 / bare,
        grouped=1_000_000 / grouped / LIMIT + await _awaited_us(),
    )


async def _awaited_us() -> float:
    """Microseconds for which a task waits on average until a loop answers it with as many others."""
    waiting: list[asyncio.Future[None]] = []

    async def work() -> None:
        for _ in range(MANY // LIMIT):
            one = asyncio.get_running_loop().create_future()
            waiting.append(one)
            await one

    began = time.perf_counter()
    tasks = [asyncio.create_task(work()) for _ in range(LIMIT)]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        for one in waiting:
            one.set_result(None)
        waiting.clear()
    return (time.perf_counter() - began) / MANY * 1_000_000


async def flows_cost(name: str, fresh: Callable[[], str], floor: Floor, rounds: int) -> list[Figure]:
    """What steps of flows cost, as ratios, and a long resume."""
    engine = await _engine(fresh())
    try:
        rows = await _warmed(engine)
        took = [await _round(engine, floor, rows, number) for number in range(rounds)]
    finally:
        await engine.close()
    return [
        _ratio(name, "a step of a flow", took, ("alone", "graph"), "a step of a graph", 1.2),
        _ratio(name, "a step with once", took, ("once", "graph"), "a step of a graph", 2.3),
        _ratio(name, "a step with once", took, ("once", "two_commits"), "two bare commits", 1.7),
        _at_least(name, took, "alone", "the rate of one by one", 4),
        _at_least(name, took, "grouped", "bare commits of as many at a time", GROUPED[name]),
        *await _long_run(name, fresh()),
    ]


async def _engine(db: str) -> Engine:
    return custom_engine(await open_store(db), {one.kind: FlowHandler(one) for one in FLOWS})


def _bytes(db: str) -> int | None:
    """The size of a database, if it is a file."""
    return os.path.getsize(db) if os.path.exists(db) else None


async def _long_run(name: str, db: str) -> list[Figure]:
    """A flow of very many steps, alone in a database."""
    engine = await _engine(db)
    try:
        resumed_s, grown_mb = await _long_resume(engine)
    finally:
        await engine.close()
    figures = [
        _at_most(f"{name}: resume after {LONG:,} steps, best of {RESUMES}", resumed_s, "s", 2.0),
        _at_most(f"{name}: memory for that", grown_mb, "MB", 100.0),
    ]
    size = _bytes(db)
    return (
        figures
        if size is None
        else [*figures, _at_most(f"{name}: on disk", size / LONG, "bytes a step", 350)]
    )


def _ratio(
    name: str, what: str, took: Sequence[Round], of: tuple[str, str], beside: str, goal: float
) -> Figure:
    own, other = ([getattr(one, kind) for one in took] for kind in of)
    ratio = statistics.median(a / b for a, b in zip(own, other, strict=True))
    value = f"{ratio:.2f} x {beside} ({statistics.median(own):,.0f} of {statistics.median(other):,.0f} µs)"
    return Figure(f"{name}: {what}", value, f"<= {goal:g} x", ratio <= goal)


def _at_least(name: str, took: Sequence[Round], kind: str, beside: str, goal: float) -> Figure:
    ratio = statistics.median(getattr(one, kind) / one.many for one in took)
    per_s = 1_000_000 / statistics.median(one.many for one in took)
    value = f"{ratio:.2f} x {beside} ({per_s:,.0f}/s)"
    return Figure(f"{name}: each, {MANY:,} steps, {LIMIT} at a time", value, f">= {goal:g} x", ratio >= goal)


async def _warmed(engine: Engine) -> list[Row]:
    """Run everything once, which gives SQLite's log its full size; a row that a step of a flow writes."""
    await steps_rate(engine, steps=WARM_STEPS)
    pipeline = engine.sources.prepare(one_by_one.source, "<warm>")
    ended = await engine.start(pipeline, StartRequest(inputs={"count": CALLS}))
    await _took_us(engine, once_by_once, CALLS)
    return [astuple(record)[:8] for record in await engine.journal.read(ended.run.id, after=50, limit=1)]


def _at_most(what: str, value: float, unit: str, goal: float) -> Figure:
    return Figure(what, f"{value:.2f} {unit}", f"<= {goal:g}", value <= goal)


async def _long_resume(engine: Engine) -> tuple[float, float]:
    """How long a flow of very many steps takes to come to where it was, at best, and the memory for it."""
    pipeline = engine.sources.prepare(long.source, "<long>")
    stops[0] = True
    await engine.start(pipeline, StartRequest(run_id="long", inputs={"count": LONG - 1}))
    times: list[float] = []
    for _ in range(RESUMES):
        began = time.perf_counter()
        await engine.resume("long", Resume(original=True))
        times.append(time.perf_counter() - began)
    stops[0] = False
    tracemalloc.start()
    ended = await engine.resume("long", Resume(original=True))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ended.run.status is RunStatus.COMPLETED
    return min(times), peak / 1_000_000
