"""What a step of a flow costs beside a step of a graph, many at a time beside one by one; a long resume."""

from __future__ import annotations

import statistics
import time
import tracemalloc
from collections.abc import Callable

from bench.figure import Figure
from bench.pipelines import custom_engine
from bench.rates import steps_rate
from onward.engine.control.requests import Resume, StartRequest
from onward.engine.engine import Engine
from onward.flows.branches import each
from onward.flows.define import Flow, flow, step
from onward.flows.handler import FlowHandler
from onward.model.run import RunStatus
from onward.wiring import open_store

CALLS, MANY, LONG = 300, 5_000, 100_000
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


async def _rate(engine: Engine, one: Flow[[int], int], count: int) -> float:
    """Steps per second."""
    pipeline = engine.sources.prepare(one.source, f"<{one.name}>")
    began = time.perf_counter()
    ended = await engine.start(pipeline, StartRequest(inputs={"count": count}))
    took = time.perf_counter() - began
    assert ended.run.status is RunStatus.COMPLETED, ended.run.detail
    return count / took


async def flows_cost(name: str, fresh: Callable[[], str], rounds: int) -> list[Figure]:
    """What steps of flows cost, as ratios, and a long resume."""
    store = await open_store(fresh())
    engine = custom_engine(store, {one.kind: FlowHandler(one) for one in FLOWS})
    try:
        took: list[tuple[float, float, float]] = []
        await _rate(engine, one_by_one, CALLS)
        for _ in range(rounds):
            graph = (await steps_rate(engine))[0]
            alone = await _rate(engine, one_by_one, CALLS)
            once, many = await _rate(engine, once_by_once, CALLS), await _rate(engine, together, MANY)
            took.append((graph / alone, graph / once, many / alone))
        resumed_s, grown_mb = await _long_resume(engine)
    finally:
        await engine.close()
    ratios = [statistics.median(one) for one in zip(*took, strict=True)]
    of = "a step of a graph"
    return [
        _at_most(f"{name}: a step of a flow", ratios[0], f"x {of}", 1.2),
        _at_most(f"{name}: a step with once", ratios[1], f"x {of}", 2.3),
        Figure(
            f"{name}: each, {LIMIT} at a time",
            f"{ratios[2]:.1f} x the rate of one by one",
            ">= 4 x",
            ratios[2] >= 4,
        ),
        _at_most(f"{name}: resume after {LONG:,} steps", resumed_s, "s", 2.0),
        _at_most(f"{name}: memory for that", grown_mb, "MB", 100.0),
    ]


def _at_most(what: str, value: float, unit: str, goal: float) -> Figure:
    return Figure(what, f"{value:.2f} {unit}", f"<= {goal:g}", value <= goal)


async def _long_resume(engine: Engine) -> tuple[float, float]:
    """How long a flow of very many steps takes to come to where it was, and the memory for it."""
    pipeline = engine.sources.prepare(long.source, "<long>")
    stops[0] = True
    await engine.start(pipeline, StartRequest(run_id="long", inputs={"count": LONG - 1}))
    times: list[float] = []
    for _ in range(3):
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
