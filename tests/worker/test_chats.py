"""Workers and chats: what a sender left is taken up, cheaply, and at once when a run of a chat ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onward.chats.dispatch import Dispatcher, Inbox, NewMessage
from onward.clock import SystemClock, SystemIds
from onward.engine.stop import StopSwitch
from onward.errors import StoreUnavailable
from onward.machine.plan.planner import DRAIN
from onward.model.run import Run, RunStatus
from onward.worker import Shift
from tests.chats.desk import PLAIN, Desk
from tests.conformance.handlers import Doorway
from tests.worker.test_registration import until_so
from tests.worker.test_worker import at_work, real, submitted, worker
from tests.world import Process, World

pytestmark = pytest.mark.anyio


async def desk(world: World, script: Any = None) -> Desk:
    found = Desk(await real(world, script))
    await found.register(PLAIN)
    return found


def chats(process: Process) -> Dispatcher:
    return Dispatcher(process.engine, SystemClock())


async def stored(process: Process, *texts: str) -> None:
    """Messages whose sender died before it did anything about them."""
    sending = Inbox(process.store.intakes, process.engine.saying, process.clock, SystemIds())
    for text in texts:
        await sending.put(NewMessage(chat="talk", text=text))


async def test_a_worker_takes_up_what_a_dead_sender_left_one_run_after_the_other(world: World) -> None:
    here = await desk(world)
    await stored(here.process, "build me a site", "add a footer", "add a header")
    shift = await at_work(here.process, chats=chats(here.process))
    assert shift == Shift(3, 0)
    assert await here.statuses() == [("completed", "")] * 3
    assert world.ledger.steps == ["work#1", "finish#1"] * 3


async def test_the_next_message_has_its_turn_as_soon_as_a_run_of_the_chat_ends_here(world: World) -> None:
    """Not at the next poll, which may be far."""
    here = await desk(world)
    await stored(here.process, "build me a site", "add a footer")
    stop = StopSwitch()
    hand = worker(here.process, stop, chats=chats(here.process), poll_s=3_600)
    working = asyncio.create_task(hand.run())

    async def are_done() -> bool:
        return await here.statuses() == [("completed", "")] * 2

    await until_so(are_done)
    stop.request(DRAIN)
    await working


class Counting:
    """Chats that nobody speaks in."""

    def __init__(self, error: Exception | None = None) -> None:
        self.looks, self.error = 0, error

    async def take_up(self) -> int:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return 0

    async def tell_stop(self, run: Run) -> None:
        raise AssertionError("no run of a chat")


async def test_a_worker_looks_once_in_a_poll_however_many_runs_end(world: World) -> None:
    here = await desk(world)
    looked = Counting()
    for number in range(5):
        await submitted(here.process, PLAIN, f"run-{number}")
    stop = StopSwitch()
    working = asyncio.create_task(worker(here.process, stop, chats=looked, poll_s=3_600, concurrency=1).run())

    async def are_done() -> bool:
        found = [(await here.process.load(f"run-{number}")).run.status for number in range(5)]
        return set(found) == {RunStatus.COMPLETED}

    await until_so(are_done)
    stop.request(DRAIN)
    await working
    assert looked.looks == 1


async def test_a_failed_look_is_told_and_stops_no_run(world: World) -> None:
    here = await desk(world)
    await submitted(here.process, PLAIN, "run")
    told: list[str] = []
    looked = Counting(StoreUnavailable("the server is away."))
    shift = await at_work(here.process, chats=looked, warn=told.append)
    assert shift == Shift(1, 0)
    assert told[0] == "cannot look for messages in chats: the server is away."


async def test_a_worker_says_in_the_chat_why_a_run_stopped(world: World) -> None:
    door = Doorway()
    here = await desk(world, {"work": [door]})
    await here.say("build me a site")
    stop = StopSwitch()
    working = asyncio.create_task(worker(here.process, stop, chats=chats(here.process)).run())
    await door.entered()
    (run,) = await here.runs()
    await here.process.engine.pause(run.id)
    door.open()

    async def is_told() -> bool:
        return any("is paused (operator" in text for text in await here.spoken())

    await until_so(is_told)
    stop.request(DRAIN)
    await working
