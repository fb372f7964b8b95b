"""Plain steps of flows run in threads, which nobody can end: what outlives its attempt is one call of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from onward.engine.stop import StopSwitch
from onward.errors import Refused, StepFailed
from onward.flows.branches import gather
from onward.flows.define import flow, step
from onward.flows.values import patch
from onward.flows.waits import sleep
from onward.model.run import RunStatus
from onward.testing.clock import ManualClock
from tests.engine.test_plain_functions import ending, pass_time
from tests.flows.living import Outside, answered, begin, result, serving
from tests.world import Process, World, until

outside = Outside()
doors: list[threading.Event] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> Iterator[None]:
    outside.done.clear()
    doors.clear()
    yield
    release()


def release() -> None:
    """Let all that stand inside through, and wait until their threads have ended."""
    for door in doors:
        door.set()
    for thread in threading.enumerate():
        if thread.name.startswith("onward "):
            thread.join()


@step
async def page(name: str) -> str:
    outside.do(f"page {name}")
    return name.upper()


@step
def charge(card: str) -> str:
    """Stands still until it is let through."""
    door = threading.Event()
    outside.do("charge")
    doors.append(door)
    door.wait()
    return f"charged {card}"


@flow
async def shop() -> list[str]:
    async def quick() -> str:
        return await page("front") + await page("back")

    found = await gather(quick(), charge("visa"))
    return [*found, await page("last")]


async def standing(world: World) -> Process:
    return await serving(world, shop, clock=ManualClock(autojump=False))


async def test_a_plain_step_that_outlives_a_pause_now_is_in_doubt_alone(memory: World) -> None:
    process = await standing(memory)
    driving = asyncio.create_task(begin(process, shop.bind()))
    await until(lambda: len(doors) == 1)
    await process.engine.pause("run", after="now", by="ann")
    await pass_time(process, process.store.leases.heartbeat_s + 10)
    assert not driving.done()
    run = await ending(process, driving)
    assert (run.status, run.reason) == (RunStatus.PAUSED, "operator")
    other = await serving(memory, shop)
    with pytest.raises(Refused) as refused:
        await other.resume()
    assert (refused.value.code, refused.value.details["calls"]) == ("in_doubt", ["gather.1/charge"])
    assert 'in doubt: gather.1/charge: charge ["visa"]' in str(refused.value)
    assert "thread 'onward run/flow#1:gather.1/charge'" in str(refused.value)
    release()
    retrying = asyncio.create_task(other.resume(action="retry"))
    await until(lambda: len(doors) == 2)
    release()
    assert result(await retrying) == ["FRONTBACK", "charged visa", "LAST"]
    assert outside.done == {"page front": 1, "page back": 1, "charge": 2, "page last": 1}
    assert await other.is_sound()


async def test_a_person_says_what_a_step_answered_that_outlived_its_attempt(memory: World) -> None:
    @flow
    async def patched() -> list[str]:
        new = patch("new")
        paid = await charge("visa")
        await sleep("3s")
        return [paid, str(new)]

    process = await serving(memory, patched, clock=ManualClock(autojump=False))
    driving = asyncio.create_task(begin(process, patched.bind()))
    await until(lambda: len(doors) == 1)
    await process.engine.pause("run", after="now", by="ann")
    await ending(process, driving)
    other = await serving(memory, patched)
    run = await other.resume(action="continue", answers={"charge": "by hand"})
    assert result(run) == ["by hand", "True"]
    assert outside.done["charge"] == 1


async def test_the_next_attempt_goes_on_beside_a_step_that_still_runs_and_never_overlaps_it(
    memory: World,
) -> None:
    process = await standing(memory)
    stop = StopSwitch(clock=process.clock, grace_s=None)
    driving = asyncio.create_task(begin(process, shop.bind(), stop=stop))
    await until(lambda: len(doors) == 1)
    stop.request("signal", now=True)
    assert (await driving).status is RunStatus.PAUSED
    before = await answered(process)
    resuming = asyncio.create_task(process.resume())
    await pass_time(process, 5)
    assert await answered(process) != before or before == ["gather.0/page", "gather.0/page#2"]
    assert outside.done == {"page front": 1, "page back": 1, "charge": 1}
    release()
    await until(lambda: len(doors) == 2)
    release()
    assert result(await resuming) == ["FRONTBACK", "charged visa", "LAST"]
    assert outside.done == {"page front": 1, "page back": 1, "charge": 2, "page last": 1}


async def test_a_call_whose_earlier_thread_never_ends_is_in_doubt_and_no_other(memory: World) -> None:
    process = await standing(memory)
    stop = StopSwitch(clock=process.clock, grace_s=None)
    driving = asyncio.create_task(begin(process, shop.bind(), stop=stop))
    await until(lambda: len(doors) == 1)
    stop.request("signal", now=True)
    await driving
    run = await ending(process, asyncio.create_task(process.resume()))
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "in_doubt")
    assert "gather.1/charge" in run.detail
    release()
    resuming = asyncio.create_task(process.resume(action="retry"))
    await until(lambda: len(doors) == 2)
    release()
    assert result(await resuming) == ["FRONTBACK", "charged visa", "LAST"]
    assert outside.done["page front"] == 1
    assert await process.is_sound()


async def test_a_step_that_does_not_end_at_its_time_limit_keeps_the_flow_from_nothing(
    memory: World,
) -> None:
    """It swallows its cancellation, and is left running; the flow goes on, and may give its process up."""
    ended = asyncio.Event()

    @step(timeout="1s")
    async def stubborn() -> None:
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError:
                continue

    @flow
    async def patient() -> str:
        try:
            await stubborn()
        except StepFailed as error:
            found = error.type
            await sleep("1d")
            return found
        return ""

    process = await serving(memory, patient)
    run = await begin(process, patient.bind())
    assert run.status is RunStatus.WAITING
    ended.set()
    process.clock.advance(86_401)
    assert result(await process.resume()) == "CallTimedOut"
