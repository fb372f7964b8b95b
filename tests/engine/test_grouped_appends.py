"""Calls that are written together: each is decided after the one before, and hears only its own refusal."""

from __future__ import annotations

import asyncio

import pytest

from onward.errors import LeaseLost, LimitReached, Refused
from onward.flows.branches import each
from onward.flows.define import flow, step
from onward.handlers.calls import CallAnswer, CallOptions
from onward.handlers.function import FunctionHandler
from onward.handlers.port import StepContext
from onward.model.call import CallFinished, Reserved, Usage
from onward.model.run import Run, RunStatus
from tests.conformance.faults import Fault
from tests.flows.living import Outside, answered, begin, result, serving
from tests.world import Process, World, line

outside = Outside()
others: list[Process] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    outside.done.clear()
    others.clear()


@step
async def page(number: int) -> int:
    outside.do(f"page {number}")
    await asyncio.sleep(0)
    if number == 17 and others:
        await others.pop().engine.steer("run", "faster")
    return number


@flow
async def many() -> int:
    return len(await each(page, range(60), limit=20))


async def test_an_append_of_another_process_in_the_middle_loses_and_repeats_nothing(world: World) -> None:
    process = await serving(world, many)
    others.append(await serving(world, many))
    assert result(await begin(process, many.bind())) == 60
    assert len(set(await answered(process))) == len(await answered(process)) == 60
    assert (await process.load()).run.steering == ("faster",)
    assert await process.is_sound()


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.REFUSE])
async def test_a_failed_append_of_a_group_is_made_again_as_a_whole(world: World, fault: Fault) -> None:
    process = await serving(world, many)
    process.store.fail(fault, within=4, times=2)
    assert result(await begin(process, many.bind())) == 60
    assert sum(outside.done.values()) == 60
    assert await process.is_sound()


async def test_a_process_that_lost_the_run_in_the_middle_writes_nothing_more(world: World) -> None:
    taken: list[Process] = []
    stealing: list[asyncio.Task[Run]] = []

    @step
    async def stolen(number: int) -> int:
        outside.do(f"stolen {number}")
        if number == 5 and taken:
            stealing.append(asyncio.create_task(taken.pop().resume(take_over=True)))
            for _ in range(20):
                await asyncio.sleep(0)
        return number

    @flow
    async def losing() -> int:
        return len(await each(stolen, range(30), limit=10))

    process = await serving(world, losing)
    taken.append(await serving(world, losing))
    with pytest.raises(LeaseLost):
        await begin(process, losing.bind())
    assert result(await stealing[0]) == 30
    assert len(set(await answered(process))) == len(await answered(process)) == 30
    assert await process.is_sound()


async def test_a_limit_in_the_middle_of_a_group_refuses_only_what_does_not_fit(world: World) -> None:
    heard: list[str] = []

    async def work(step_context: StepContext) -> None:
        async def one(number: int) -> None:
            tokens = 100 if number == 3 else 1
            options = CallOptions(reserved=Reserved(scopes=step_context.scopes, tokens=tokens))
            try:
                await step_context.recorder.call(f"call-{number}", done, (), options)
            except LimitReached:
                heard.append(f"call-{number}")

        await asyncio.gather(*map(one, range(10)))

    async def done() -> CallAnswer:
        await asyncio.sleep(0)
        return CallAnswer("yes", usage=Usage(input=1))

    process = await world.process(handlers={"work": FunctionHandler(work)})
    await process.engine.store.limits.change("run/run", {"tokens": 50})
    run = await process.start(line("work", work="type=work"))
    assert run.status is RunStatus.COMPLETED
    assert heard == ["call-3"]
    events = [event for event in await process.events() if isinstance(event, CallFinished)]
    assert len(events) == 9


async def test_a_refusal_in_the_middle_of_a_group_is_its_callers_alone(world: World) -> None:
    refused: list[str] = []

    async def work(step_context: StepContext) -> None:
        async def one(number: int) -> None:
            steering = ("what nobody told it",) if number == 3 else ()
            options = CallOptions(repeatable=False, steering=steering)
            try:
                await step_context.recorder.call(f"call-{number}", done, (), options)
            except Refused as error:
                refused.append(f"call-{number}: {error.code}")

        await asyncio.gather(*map(one, range(10)))

    async def done() -> CallAnswer:
        await asyncio.sleep(0)
        return CallAnswer("yes")

    process = await world.process(handlers={"work": FunctionHandler(work)})
    run = await process.start(line("work", work="type=work"))
    assert run.status is RunStatus.COMPLETED
    assert refused == ["call-3: steering_taken"]
    ended = [event.call for event in await process.events() if isinstance(event, CallFinished)]
    assert sorted(ended) == sorted(f"call-{number}" for number in range(10) if number != 3)
    assert await process.is_sound()
