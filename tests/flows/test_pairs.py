"""Two branches that wait, for times and for answers: either may come first, and processes die meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from onward.engine.control.requests import ForkRequest
from onward.errors import RunNotFound
from onward.flows.branches import gather
from onward.flows.define import flow, step
from onward.flows.waits import ask, sleep
from onward.model.run import Run, RunStatus
from tests.chance import places
from tests.conformance.faults import Died, Fault
from tests.flows.living import Outside, answered, begin, live, result, serving
from tests.flows.ways import FORKED, RESUMED, STRIDE, WAYS
from tests.world import Process, World

outside = Outside()


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    outside.done.clear()


@step
async def page(name: str) -> str:
    outside.do(f"page {name}")
    return name.upper()


@step
async def noted(name: str) -> str:
    outside.do(f"noted {name}")
    return name


WAITS = ("sleep", "ask")


@flow
async def pair(first: str, second: str) -> list[str]:
    async def waiting(kind: str, number: int) -> str:
        if kind == "sleep":
            await sleep(f"{number + 1}h")
            return await noted(f"slept {number}")
        decision = await ask(f"Question {number}?")
        return await noted(f"{decision.choice} {number}")

    before = await page("before")
    found = await gather(waiting(first, 0), waiting(second, 1))
    return [before, *found]


def expected(kinds: tuple[str, str]) -> list[str]:
    said = {"sleep": "slept", "ask": "yes"}
    return ["BEFORE", *(f"{said[kind]} {number}" for number, kind in enumerate(kinds))]


async def ready(process: Process, run_id: str, kind: str, number: int) -> Run:
    """Let what a branch of the pair waits for come; the run, executed as far as it goes."""
    if kind == "ask":
        gate = f"flow#1:gather.{number}/ask"
        return (await process.engine.answer(run_id, "yes", by="ann", gate=gate)).run
    due_us = (await process.load(run_id)).run.created_at_us + (number + 1) * 3_600_000_000
    process.clock.advance(max(0, due_us - process.clock.now_us()) / 1_000_000 + 60)
    return await process.resume(run_id)


@pytest.mark.parametrize("turn", [(0, 1), (1, 0)], ids=["the first comes first", "the second comes first"])
@pytest.mark.parametrize("second", WAITS)
@pytest.mark.parametrize("first", WAITS)
@pytest.mark.parametrize("way", WAYS)
async def test_of_two_that_wait_either_comes_first(
    world: World, way: str, first: str, second: str, turn: tuple[int, int]
) -> None:
    """F13: the process may be killed while both wait, and while one does; a fork waits for the same."""
    kinds = (first, second)
    if kinds == ("sleep", "sleep") and turn == (1, 0):
        turn = (0, 1)  # the longer one is over with the shorter, at the same time
    process, run_id = await serving(world, pair), "run"
    run = await begin(process, pair.bind(*kinds))
    if way == FORKED:
        place = next(record.seq for record in await process.log() if record.kind == "CallFinished")
        run_id = "fork"
        await process.engine.fork("run", ForkRequest(place, new_id=run_id))
        run = await process.resume(run_id, original=True)
    for number, is_last in zip(turn, (False, True), strict=True):
        assert run.status is RunStatus.WAITING, run.detail
        assert run.worker is None
        if way == RESUMED:
            await process.die()
            process = await serving(world, pair, clock=process.clock)
        run = await ready(process, run_id, kinds[number], number)
        assert outside.done[f"noted {expected(kinds)[number + 1]}"] == 1
        assert run.is_final is is_last
    assert result(run) == expected(kinds)
    assert set(outside.done.values()) == {1}
    assert await process.is_sound(run_id)


@pytest.mark.parametrize("kinds", [("sleep", "ask"), ("ask", "ask"), ("sleep", "sleep")], ids="-".join)
@pytest.mark.parametrize("fault", [Fault.DIE_BEFORE, Fault.DIE_AFTER])
@pytest.mark.slow
async def test_two_that_wait_killed_at_every_write(
    world: World, fault: Fault, kinds: tuple[str, str]
) -> None:
    """F13"""
    for at in places(STRIDE[world.kind]):
        outside.done.clear()
        dying = await serving(world, pair)
        dying.store.fail(fault, within=at)
        try:
            await live(dying, pair.bind(*kinds), f"run-{at}")
        except Died:
            await dying.die()
        else:
            break
        process = await serving(world, pair)
        assert result(await live(process, pair.bind(*kinds), f"run-{at}")) == expected(kinds)
        keys = await answered(process, f"run-{at}")
        assert len(set(keys)) == len(keys)
        assert await process.is_sound(f"run-{at}")


async def test_an_answer_beside_a_branch_that_works_is_kept_when_the_process_dies(world: World) -> None:
    """F13"""
    going = asyncio.Event()

    @step
    async def slow() -> str:
        if outside.do("slow") == 1:
            await going.wait()
            dying.store.fail(Fault.DIE_BEFORE)
        return "slow"

    @flow
    async def both() -> list[str]:
        found = await gather(slow(), ask("Ship it?"))
        return [found[0], await page(found[1].choice)]

    dying, other = await serving(world, both), await serving(world, both)
    running = asyncio.create_task(begin(dying, both.bind()))

    async def is_asked() -> bool:
        try:
            return bool((await other.load()).run.gates)
        except RunNotFound:
            return False

    while not await is_asked():  # noqa: ASYNC110 - another process appends it
        await asyncio.sleep(0)
    await other.engine.answer("run", "yes", by="ann", run=False)
    going.set()
    with pytest.raises(Died):
        await running
    await dying.die()
    process = await serving(world, both)
    assert result(await process.resume()) == ["slow", "YES"]
    assert (await process.kinds()).count("GateOpened") == 1
    assert await process.is_sound()
