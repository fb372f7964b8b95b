"""What a flow waits for, times and answers, alone and beside working branches; it holds no process then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onward.engine.control.requests import StartRequest
from onward.engine.stop import StopSwitch
from onward.errors import StepFailed
from onward.flows.branches import gather
from onward.flows.define import flow, step
from onward.flows.values import now, patch
from onward.flows.waits import ask, sleep
from onward.model.run import RunStatus
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.store import Store
from onward.testing.clock import ManualClock
from tests.conformance.faults import Died, Fault
from tests.flows.living import Outside, answered, begin, live, result, serving
from tests.world import Process, World

outside = Outside()
DAY_S = 86_400


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    outside.done.clear()


@step
async def page(name: str) -> str:
    outside.do(f"page {name}")
    return name.upper()


@step
async def shaky() -> str:
    if outside.do("shaky") < 2:
        raise ValueError("not yet")
    return "at last"


@flow
async def nap() -> str:
    await page("before")
    await sleep("2d")
    return await page("after")


async def test_a_flow_that_sleeps_holds_no_process_and_wakes_in_time(memory: World) -> None:
    process = await serving(memory, nap)
    run = await begin(process, nap.bind())
    began_us = process.clock.now_us()
    assert run.status is RunStatus.WAITING
    assert run.worker is None
    assert run.wake_at_us is not None
    assert abs(run.wake_at_us - began_us - 2 * DAY_S * 1_000_000) < 1_000_000
    process.clock.advance(2 * DAY_S + 1)
    assert result(await process.resume()) == "AFTER"
    assert outside.done == {"page before": 1, "page after": 1}


async def test_a_short_sleep_is_waited_for_in_memory(memory: World) -> None:
    @flow
    async def short() -> str:
        began = now()
        await sleep("2s")
        return str((now() - began).total_seconds() >= 2)

    process = await serving(memory, short)
    assert result(await begin(process, short.bind())) == "True"


async def test_a_flow_asks_a_person_and_gets_the_answer(memory: World) -> None:
    @flow
    async def asking() -> str:
        await page("front")
        decision = await ask("Ship it?", about="the front page")
        return f"{decision.choice} by {decision.by}"

    process = await serving(memory, asking)
    run = await begin(process, asking.bind())
    assert run.status is RunStatus.WAITING
    assert [gate.text for gate in run.gates.values()] == ["Ship it?"]
    assert await process.is_sound()
    run = (await process.engine.answer("run", "yes", by="ann")).run
    assert result(run) == "yes by ann"
    assert outside.done == {"page front": 1}


async def test_a_question_is_open_while_another_branch_works(world: World) -> None:
    open_gates: list[int] = []
    going = asyncio.Event()

    @step
    async def slow() -> str:
        await going.wait()
        return "slow"

    @flow
    async def both() -> list[str]:
        found = await gather(slow(), ask("Ship it?"))
        return [found[0], found[1].choice]

    process = await serving(world, both)
    other = await serving(world, both)
    running = asyncio.create_task(begin(process, both.bind()))

    async def asked() -> bool:
        try:
            return bool((await other.load()).run.gates)
        except Exception:
            return False

    while not await asked():  # noqa: ASYNC110 - another process appends it
        await asyncio.sleep(0)
    open_gates.append(len((await other.load()).run.gates))
    await other.engine.answer("run", "yes", by="ann", run=False)
    going.set()
    assert result(await running) == ["slow", "yes"]
    assert open_gates == [1]


async def test_a_question_stays_open_when_the_process_dies_beside_it(world: World) -> None:
    @step
    async def deadly() -> str:
        if outside.do("deadly") == 1:
            for _ in range(50):
                await asyncio.sleep(0)
            dying.store.fail(Fault.DIE_BEFORE)
        return "survived"

    @flow
    async def both() -> list[str]:
        found = await gather(deadly(), ask("Ship it?"))
        return [found[0], found[1].choice]

    dying = await serving(world, both)
    with pytest.raises(Died):
        await begin(dying, both.bind())
    await dying.die()
    process = await serving(world, both)
    gates = (await process.load()).run.gates
    assert len(gates) == 1
    run = await process.resume()
    assert run.status is RunStatus.WAITING
    assert run.gates.keys() == gates.keys()
    run = (await process.engine.answer("run", "yes", by="ann")).run
    assert result(run) == ["survived", "yes"]
    opened = [kind for kind in await process.kinds() if kind in ("GateOpened", "GateWithdrawn")]
    assert opened == ["GateOpened"]


@pytest.mark.parametrize("first", ["time", "answer"])
async def test_a_sleep_and_a_question_wake_the_flow_whichever_comes_first(memory: World, first: str) -> None:
    @flow
    async def both() -> list[Any]:
        async def later() -> str:
            await sleep("1d")
            return await page("morning")

        async def approval() -> str:
            decision = await ask("Ship it?")
            return await page(decision.choice)

        return list(await gather(later(), approval()))

    process = await serving(memory, both)
    run = await begin(process, both.bind())
    assert run.status is RunStatus.WAITING
    assert run.wake_at_us is not None
    if first == "time":
        process.clock.advance(DAY_S + 1)
        run = await process.resume()
        assert run.status is RunStatus.WAITING
        assert outside.done == {"page morning": 1}
        run = (await process.engine.answer("run", "yes", by="ann")).run
    else:
        run = (await process.engine.answer("run", "yes", by="ann")).run
        assert run.status is RunStatus.WAITING
        assert outside.done == {"page yes": 1}
        process.clock.advance(DAY_S + 1)
        run = await process.resume()
    assert result(run) == ["MORNING", "YES"]


async def test_a_question_with_half_of_a_character_is_asked_without_it(memory: World) -> None:
    """As from the name of a file that is no UTF-8."""

    @flow
    async def asking() -> str:
        return (await ask("Delete a\udcff?")).choice

    process = await serving(memory, asking)
    run = await begin(process, asking.bind())
    assert [gate.text for gate in run.gates.values()] == ["Delete a??"]
    assert result((await process.engine.answer("run", "yes", by="ann")).run) == "yes"


async def test_a_failure_that_was_caught_before_a_question_stays_history(memory: World) -> None:
    @flow
    async def careful() -> str:
        try:
            return await shaky()
        except StepFailed as error:
            return f"{error.text}: {(await ask('What now?')).choice}"

    process = await serving(memory, careful)
    run = await begin(process, careful.bind())
    assert run.status is RunStatus.WAITING
    run = (await process.engine.answer("run", "yes", by="ann")).run
    assert result(run) == "not yet: yes"
    assert outside.done["shaky"] == 1


async def test_a_patch_before_a_question_holds_when_the_flow_wakes(memory: World) -> None:
    @flow
    async def patched() -> bool:
        is_new = patch("new")
        await ask("Ship it?")
        return is_new

    process = await serving(memory, patched)
    await begin(process, patched.bind())
    run = (await process.engine.answer("run", "yes", by="ann")).run
    assert result(run) is True


async def test_a_question_whose_deadline_passes_is_answered_by_its_rule(memory: World) -> None:
    @flow
    async def late() -> list[Any]:
        decision = await ask("Ship it?", timeout="1h", on_timeout="reject")
        return [decision.rejected, decision.expired]

    process = await serving(memory, late)
    await begin(process, late.bind())
    process.clock.advance(3_700)
    assert result(await process.resume()) == [True, True]


@pytest.mark.parametrize("fault", [Fault.DIE_BEFORE, Fault.DIE_AFTER])
@pytest.mark.slow
async def test_a_flow_that_waits_killed_at_every_append(memory: World, fault: Fault) -> None:
    @flow
    async def waiting() -> list[str]:
        async def approval() -> str:
            decision = await ask("Ship it?")
            return await page(decision.choice)

        front, choice = await gather(page("front"), approval())
        await sleep("3s")
        return [front, choice, await page("end")]

    whole = await serving(memory, waiting)
    await live(whole, waiting.bind(), "whole")
    for at in range(1, len(whole.store.calls) + 1):
        outside.done.clear()
        run_id = f"run-{at}"
        dying = await serving(memory, waiting)
        dying.store.fail(fault, within=at)
        try:
            await live(dying, waiting.bind(), run_id)
        except Died:
            await dying.die()
        process = await serving(memory, waiting)
        assert result(await live(process, waiting.bind(), run_id)) == ["FRONT", "YES", "END"]
        keys = await answered(process, run_id)
        assert len(set(keys)) == len(keys)
        assert await process.is_sound(run_id)


async def test_a_worker_wakes_a_flow_that_slept() -> None:
    clock = ManualClock(autojump=False)
    database = MemoryDatabase(now_us=clock.now_us)

    async def connect() -> Store:
        return database.connect(None)

    process = await serving(World(connect, "memory"), nap, clock=clock)
    await process.engine.submit(process.pipeline(nap.source), StartRequest(run_id="run"))
    stop = StopSwitch()
    assert await _taken(process, stop)
    assert (await process.load()).run.status is RunStatus.WAITING
    process.clock.advance(2 * DAY_S + 1)
    assert await _taken(process, stop)
    assert result((await process.load()).run) == "AFTER"


async def _taken(process: Process, stop: StopSwitch) -> bool:
    taken = await process.engine.take(stop)
    if taken is None:
        await process.engine.sweep()
        taken = await process.engine.take(stop)
    if taken is None:
        return False
    await taken[1]
    return True


@step
async def failing() -> str:
    if outside.do("failing") < 2:
        raise ValueError("not yet")
    return "fine"


async def test_a_flow_that_waits_is_cancelled_and_its_question_is_gone(memory: World) -> None:
    @flow
    async def both() -> None:
        async def later() -> None:
            await sleep("1d")

        await gather(later(), ask("Ship it?"))

    process = await serving(memory, both)
    await begin(process, both.bind())
    run = (await process.engine.cancel("run")).run
    assert run.status is RunStatus.CANCELLED
    assert run.gates == {}
    assert await process.is_sound()


async def test_a_flow_that_waits_is_paused_and_continues_where_it_was(memory: World) -> None:
    @flow
    async def asking() -> str:
        await page("front")
        return (await ask("Ship it?")).choice

    process = await serving(memory, asking)
    await begin(process, asking.bind())
    run = (await process.engine.pause("run")).run
    assert run.status is RunStatus.PAUSED
    run = await process.resume()
    assert run.status is RunStatus.WAITING
    run = (await process.engine.answer("run", "yes", by="ann")).run
    assert result(run) == "yes"
    assert outside.done == {"page front": 1}


async def test_a_branch_that_fails_waits_for_the_answer_beside_it(memory: World) -> None:
    @flow
    async def both() -> list[str]:
        found = await gather(failing(), ask("Ship it?"))
        return [found[0], found[1].choice]

    process = await serving(memory, both)
    run = await begin(process, both.bind())
    assert run.status is RunStatus.WAITING
    run = (await process.engine.answer("run", "yes", by="ann")).run
    while run.status is RunStatus.FAILED:
        run = await process.resume()
    assert result(run) == ["fine", "yes"]
    assert await process.is_sound()
