"""Async functions that swallow their cancellation are waited for with an end, and nothing overlaps them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from onward.engine.stop import StopSwitch
from onward.errors import Refused
from onward.handlers.function import FunctionHandler
from onward.handlers.port import StepContext
from onward.handlers.user_functions import PATIENCE_S
from onward.model.run import RunStatus
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.store import Store
from onward.testing.clock import ManualClock
from tests.world import Process, World, line, until

PATIENT = line("a", a='type=work, timeout="1h"')
LIMITED = line("a", "b", a='type=work, timeout="5s", max_retries=3', b="type=work")


class Stubborn:
    """An async function that charges a card and hears no cancellation until it is let through."""

    def __init__(self) -> None:
        self.ledger: list[str] = []
        self.cancels = 0
        self.door = asyncio.Event()

    async def charge(self, step: StepContext) -> dict[str, int]:
        self.ledger.append("begun")
        while not self.door.is_set():
            try:
                await self.door.wait()
            except asyncio.CancelledError:
                self.cancels += 1
        self.ledger.append("ended")
        return {"charged": 1}


@pytest.fixture
async def stubborn() -> AsyncIterator[Stubborn]:
    stubborn = Stubborn()
    yield stubborn
    stubborn.door.set()
    await until(lambda: len(stubborn.ledger) % 2 == 0)
    await asyncio.sleep(0)


@pytest.fixture
async def process(stubborn: Stubborn) -> AsyncIterator[Process]:
    database = MemoryDatabase()

    async def connect() -> Store:
        return database.connect()

    world = World(connect, "memory")
    handlers = {"work": FunctionHandler(stubborn.charge)}
    yield await world.process(clock=ManualClock(autojump=False), handlers=handlers)
    await world.close()


async def pass_time(process: Process, seconds: float) -> None:
    """Let time pass in small steps, as a clock does, so that whoever begins to wait is not left behind."""
    for _ in range(round(seconds)):
        process.clock.advance(1)
        for _ in range(20):
            await asyncio.sleep(0)


async def test_one_that_outlives_all_patience_stops_the_run_in_doubt(
    process: Process, stubborn: Stubborn
) -> None:
    driving = asyncio.create_task(process.start(LIMITED))
    await until(lambda: stubborn.ledger == ["begun"])
    await pass_time(process, PATIENCE_S)
    assert (driving.done(), stubborn.cancels) == (False, 1)
    await pass_time(process, 10)
    assert driving.done(), "nothing is waited for without end"
    run = await driving
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "in_doubt")
    assert stubborn.ledger == ["begun"], "nothing of the run begins beside it"
    for said in ("a#1", "timed out after 5 s", "Stubborn.charge", f"process {os.getpid()}"):
        assert said in run.detail
    with pytest.raises(Refused) as refused:
        await process.resume()
    assert refused.value.code == "in_doubt"
    assert await process.is_sound()


async def test_its_late_result_counts(process: Process, stubborn: Stubborn) -> None:
    driving = asyncio.create_task(process.start(LIMITED))
    await until(lambda: stubborn.ledger == ["begun"])
    await pass_time(process, 30)
    stubborn.door.set()
    run = await driving
    assert (run.status, run.context["charged"]) == (RunStatus.COMPLETED, 1)
    assert stubborn.ledger == ["begun", "ended"] * 2


async def test_a_retry_in_the_same_process_waits_for_it(process: Process, stubborn: Stubborn) -> None:
    driving = asyncio.create_task(process.start(LIMITED))
    await until(lambda: stubborn.ledger == ["begun"])
    await pass_time(process, PATIENCE_S + 10)
    await driving
    again = asyncio.create_task(process.resume(action="retry"))
    await pass_time(process, PATIENCE_S / 2)
    assert (stubborn.ledger, again.done()) == (["begun"], False)
    stubborn.door.set()
    assert (await again).status is RunStatus.COMPLETED
    assert stubborn.ledger == ["begun", "ended"] * 3


async def test_a_pause_now_leaves_it_in_doubt(process: Process, stubborn: Stubborn) -> None:
    driving = asyncio.create_task(process.start(PATIENT))
    await until(lambda: stubborn.ledger == ["begun"])
    await process.engine.pause("run", after="now", by="ann")
    await pass_time(process, process.store.leases.heartbeat_s + PATIENCE_S + 5)
    assert driving.done()
    assert (await driving).status is RunStatus.PAUSED
    with pytest.raises(Refused) as refused:
        await process.resume()
    assert refused.value.code == "in_doubt"
    assert "paused by ann, and " in str(refused.value)


async def test_a_cancel_and_a_stop_now_wait_for_it_with_an_end(process: Process, stubborn: Stubborn) -> None:
    stop = StopSwitch()
    first = asyncio.create_task(process.start(PATIENT, "first", stop=stop))
    second = asyncio.create_task(process.start(PATIENT, "second"))
    await until(lambda: stubborn.ledger == ["begun", "begun"])
    stop.request("signal", now=True)
    await process.engine.cancel("second", by="ann")
    await pass_time(process, process.store.leases.heartbeat_s + PATIENCE_S + 5)
    assert first.done()
    assert second.done()
    assert ((await first).status, (await second).status) == (RunStatus.PAUSED, RunStatus.CANCELLED)
    assert stubborn.ledger == ["begun", "begun"]


def test_the_event_loop_of_a_program_ends_although_one_still_runs() -> None:
    """`asyncio.run` waits for every task that it knows, without end."""
    ended: list[RunStatus] = []

    async def main() -> None:
        stubborn, database = Stubborn(), MemoryDatabase()

        async def connect() -> Store:
            return database.connect()

        world = World(connect, "memory")
        handlers = {"work": FunctionHandler(stubborn.charge)}
        process = await world.process(clock=ManualClock(autojump=False), handlers=handlers)
        driving = asyncio.create_task(process.start(LIMITED))
        await until(lambda: stubborn.ledger == ["begun"])
        await pass_time(process, PATIENCE_S + 10)
        ended.append((await driving).status)
        await world.close()

    asyncio.run(main())
    assert ended == [RunStatus.INTERRUPTED]


async def test_one_that_exits_fails_its_step_and_not_the_process() -> None:
    """Out of a task of its own, a SystemExit would end the event loop."""

    async def leave(step: StepContext) -> None:
        raise SystemExit(3)

    database = MemoryDatabase()

    async def connect() -> Store:
        return database.connect()

    world = World(connect, "memory")
    process = await world.process(handlers={"work": FunctionHandler(leave)})
    run = await process.start(PATIENT)
    assert (run.status, run.detail) == (RunStatus.FAILED, "step a#1: SystemExit: 3")
    await world.close()


async def test_a_call_with_a_time_limit_that_outlives_all_patience_stops_the_run_in_doubt(
    stubborn: Stubborn,
) -> None:
    async def work(step: StepContext) -> None:
        await step.call("charge", stubborn.charge, step, time_limit_s=5)

    database = MemoryDatabase()

    async def connect() -> Store:
        return database.connect()

    world = World(connect, "memory")
    process = await world.process(clock=ManualClock(autojump=False), handlers={"work": FunctionHandler(work)})
    running = asyncio.create_task(process.start(line("a", a="type=work, max_retries=3")))
    await until(lambda: stubborn.ledger == ["begun"])
    await pass_time(process, 5 + PATIENCE_S + 2)
    run = await running
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "in_doubt")
    assert (
        "took longer than its time limit of 5 s, and its async function charge is still running" in run.detail
    )
    assert stubborn.ledger == ["begun"]
    await world.close()
