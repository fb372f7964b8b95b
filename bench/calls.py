"""What a recorded call inside a step costs, beside a step that does nothing, in the same round."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from bench.figure import Figure
from bench.pipelines import custom_engine, line
from bench.rates import steps_rate
from onward.engine.control.requests import StartRequest
from onward.engine.engine import Engine
from onward.handlers.calls import CallAnswer, CallOptions
from onward.handlers.function import FunctionHandler
from onward.handlers.port import StepContext
from onward.model.call import Reserved, Usage
from onward.model.run import RunStatus
from onward.store.port.store import Store
from onward.wiring import open_store

CALLS = 100
WARM_STEPS = 600
"""So many that SQLite's log has its full size: while it grows, a commit takes half as long again."""
WARM_CALLS = 10
"""PostgreSQL plans the first five uses of a statement on a connection anew; steps have warmed only theirs."""
KINDS = ("one", "started", "reserved")
ONE_APPEND, STARTED, RESERVED = "one append", "started first", "reserved"
GOALS = ((ONE_APPEND, "step", 1.3), (STARTED, "step", 2.3), (RESERVED, STARTED, 1.3))


async def answer() -> CallAnswer:
    """A call that does nothing: what is left is ours."""
    return CallAnswer("yes", usage=Usage(input=10, output=5), cost_micro=1)


def options_of(kind: str, step: StepContext) -> CallOptions:
    """How a call of this kind is recorded."""
    if kind == RESERVED:
        scopes = (*step.scopes, "day/2026-01-01")
        return CallOptions(reserved=Reserved(scopes=scopes, tokens=100, cost_micro=10))
    return CallOptions(repeatable=kind == ONE_APPEND)


def calling_engine(store: Store, took_us: dict[str, float]) -> Engine:
    """An engine with steps that make calls of a kind, and note how long one took."""

    def making(kind: str) -> FunctionHandler:
        async def make(step: StepContext) -> None:
            options = options_of(kind, step)
            for number in range(WARM_CALLS):
                await step.recorder.call(f"warm-{number}", answer, (), options)
            began = time.perf_counter()
            for number in range(CALLS):
                await step.recorder.call(f"call-{number}", answer, (), options)
            took_us[kind] = (time.perf_counter() - began) * 1_000_000 / CALLS

        return FunctionHandler(make)

    kinds = {"one": ONE_APPEND, "started": STARTED, "reserved": RESERVED}
    return custom_engine(store, {name: making(kind) for name, kind in kinds.items()})


async def round_of(db: str, number: int) -> dict[str, float]:
    """Microseconds of a step and of each kind of call, in turn; each round begins with another."""
    took_us: dict[str, float] = {}
    store = await open_store(db)
    engine = calling_engine(store, took_us)
    await steps_rate(engine, steps=WARM_STEPS)
    before, _ = await steps_rate(engine, steps=CALLS)
    first = number % len(KINDS)
    for kind in KINDS[first:] + KINDS[:first]:
        ended = await engine.start(
            engine.sources.prepare(line(1, kind), f"<{kind}>"), StartRequest(project="p")
        )
        assert ended.run.status is RunStatus.COMPLETED
    # Before and after the calls, since the machine changes its mind within seconds.
    after, _ = await steps_rate(engine, steps=CALLS)
    took_us["step"] = 2_000_000 / (before + after)
    await engine.close()
    return took_us


async def calls_cost(name: str, fresh: Callable[[], str], rounds: int) -> list[Figure]:
    """Calls with one append, with two, and with a reservation."""
    found = [
        await round_of(fresh(), number) for number in range(4 * rounds)
    ]  # short ones: a busy disk changes quickly
    figures = []
    for kind, beside, goal in GOALS:
        ratio = statistics.median(took[kind] / took[beside] for took in found)
        own, other = (statistics.median(took[one] for took in found) for one in (kind, beside))
        of = "a step" if beside == "step" else "one that is started first"
        figures.append(
            Figure(
                f"{name}: a call, {kind}",
                f"{ratio:.2f} x {of} ({own:,.0f} µs of {other:,.0f} µs)",
                f"<= {goal} x",
                ratio <= goal,
            )
        )
    return figures
