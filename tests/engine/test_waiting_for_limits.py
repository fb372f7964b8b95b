"""A call that waits until others have settled: it holds nothing, and its attempt's time stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from onward.handlers.calls import CallOptions
from onward.handlers.function import FunctionHandler
from onward.handlers.port import StepContext
from onward.model.call import CallFinished, Reserved
from onward.model.run import Run, RunStatus
from onward.testing.clock import ManualClock
from tests.conformance.limits import begun, ended, used, working
from tests.world import Process, World, line, until

SCOPE = "project/shared"
SOURCE = line("work", work="type=work, timeout=5s")
YESTERDAY, TODAY = "day/2023-11-14", "day/2023-11-15"
EVENING_S = 6_390
"""From the time of a manual clock, to ten seconds before midnight."""
LOOKS_AGAIN_S = 20
"""It looks every second; a busy machine may have little done in one."""


class Work:
    """A step whose one call reserves 60 tokens; it hangs if it is told to."""

    def __init__(self, *, hangs: bool = False, scope: str = SCOPE) -> None:
        self.made, self._hangs, self._scope = 0, hangs, scope

    async def __call__(self, step: StepContext) -> dict[str, Any]:
        options = CallOptions(reserved=Reserved(scopes=(self._scope,), tokens=60))
        return {"got": await step.recorder.call("ask", self._ask, (), options)}

    async def _ask(self) -> str:
        self.made += 1
        if self._hangs:
            await asyncio.Event().wait()
        return "answered"


async def at(
    world: World, work: Callable[[StepContext], Awaitable[Any]], scope: str = SCOPE, tokens: int = 100
) -> Process:
    clock = ManualClock(autojump=False)
    process = await world.process(handlers={"work": FunctionHandler(work)}, clock=clock)
    await process.store.limits.change(scope, {"tokens": tokens})
    return process


async def pass_time(process: Process, running: asyncio.Task[Run], seconds: int) -> None:
    """Let time pass, a second at a time, for whoever waits."""
    for _ in range(seconds):
        for _ in range(50):
            await asyncio.sleep(0)
            await process.clock.until_idle()
        process.clock.advance(1)
        if running.done():
            return


async def test_waiting_for_what_others_have_reserved_spends_no_time_limit(world: World) -> None:
    """A step with a time limit of 5 seconds waits for 30, and then has its 5 seconds."""
    other = await world.process()
    busy = await begun(other.store, await working(other.store, "other"), SCOPE, tokens=60)
    process = await at(world, work := Work())
    running = asyncio.ensure_future(process.start(SOURCE))
    await pass_time(process, running, 30)
    assert (running.done(), work.made) == (False, 0)
    await ended(other.store, busy, usage=used(10))
    await pass_time(process, running, LOOKS_AGAIN_S)
    assert running.done(), "it does not look again"
    assert ((await running).status, work.made) == (RunStatus.COMPLETED, 1)


async def test_a_call_that_waits_keeps_no_other_call_of_its_run_from_being_made(world: World) -> None:
    """It holds nothing while it waits, not even its turn to write."""
    other = await world.process()
    busy = await begun(other.store, await working(other.store, "other"), SCOPE, tokens=60)
    asks = Work()

    async def work(step: StepContext) -> None:
        waiting = asyncio.create_task(asks(step))
        await until(lambda: process.engine.waiting.number == 1)
        await step.call("beside", asyncio.sleep, 0, repeatable=False)
        await waiting

    process = await at(world, work)
    running = asyncio.ensure_future(process.start(SOURCE))
    await pass_time(process, running, 2)
    ends = [event.call for event in await process.events() if isinstance(event, CallFinished)]
    assert (ends, asks.made) == (["beside"], 0)
    await ended(other.store, busy, usage=used(10))
    await pass_time(process, running, LOOKS_AGAIN_S)
    assert ((await running).status, asks.made) == (RunStatus.COMPLETED, 1)


async def test_the_time_that_a_step_works_after_a_wait_counts(world: World) -> None:
    other = await world.process()
    busy = await begun(other.store, await working(other.store, "other"), SCOPE, tokens=60)
    process = await at(world, work := Work(hangs=True))
    running = asyncio.ensure_future(process.start(SOURCE))
    await pass_time(process, running, 30)
    await ended(other.store, busy, usage=used(10))
    while not running.done():
        await pass_time(process, running, 1)
    run = await running
    assert (run.status, work.made) == (RunStatus.FAILED, 1)
    assert "timed out after 5 s" in run.detail


async def test_a_call_that_waits_past_midnight_counts_on_the_new_day(world: World) -> None:
    """What others have reserved yesterday is not in its way today."""
    other = await world.process()
    await begun(other.store, await working(other.store, "other"), YESTERDAY, tokens=60)
    process = await at(world, work := Work(scope=YESTERDAY), "day")
    process.clock.advance(EVENING_S)
    running = asyncio.ensure_future(process.start(SOURCE))
    await pass_time(process, running, 5)
    assert (running.done(), work.made) == (False, 0)
    await pass_time(process, running, LOOKS_AGAIN_S)
    assert running.done(), "it waits for the limit of a day that is over"
    assert ((await running).status, work.made) == (RunStatus.COMPLETED, 1)
    yesterday, today = await process.store.limits.read([YESTERDAY, TODAY])
    assert (yesterday.reserved.tokens, yesterday.spent.calls, today.spent.calls) == (60, 0, 1)


async def test_a_call_that_was_prepared_before_midnight_is_not_stopped_by_yesterdays_limit(
    world: World,
) -> None:
    process = await at(world, work := Work(scope=YESTERDAY), YESTERDAY, tokens=10)
    process.clock.advance(EVENING_S + 10)
    running = asyncio.ensure_future(process.start(SOURCE))
    await pass_time(process, running, 5)
    assert ((await running).status, work.made) == (RunStatus.COMPLETED, 1)
    (today,) = await process.store.limits.read([TODAY])
    assert today.spent.calls == 1


async def test_a_waiter_settles_what_the_dead_had_reserved(world: World) -> None:
    """A dead owner is in the way: whoever waits takes over its run, which settles what it had reserved."""
    other = await world.process()
    await begun(other.store, await working(other.store, "other"), SCOPE, tokens=30)
    await other.die()
    process = await at(world, work := Work())
    await process.store.limits.change(SCOPE, {"tokens": 90})
    alive = await world.process()
    busy = await begun(alive.store, await working(alive.store, "alive"), SCOPE, tokens=30)
    running = asyncio.ensure_future(process.start(SOURCE))
    await pass_time(process, running, 5)
    assert (await process.load("other")).run.status is RunStatus.INTERRUPTED
    assert await process.store.limits.abandoned(SCOPE) == []
    await ended(alive.store, busy, usage=used(0))
    while not running.done():
        await pass_time(process, running, 1)
    assert ((await running).status, work.made) == (RunStatus.COMPLETED, 1)
