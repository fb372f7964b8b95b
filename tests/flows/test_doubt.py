"""A payment in doubt in one of three branches: what a person decides is about it alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onward.engine.control.requests import ForkRequest
from onward.errors import InvalidInput, Refused
from onward.flows.branches import gather
from onward.flows.define import flow, step
from onward.model.call import CallFinished
from onward.model.run import RunStatus
from tests.conformance.faults import Died, Fault
from tests.flows.living import answered, begin, live, result, serving
from tests.flows.ways import FORKED, RESUMED, WAYS, Executed
from tests.world import Process, World

executed = Executed()
dying: list[tuple[Process, int]] = []
"""A process that dies while this is paid, once the other branches have come to their ends."""


@pytest.fixture(autouse=True)
def _nothing_executed() -> None:
    executed.done.clear()
    dying.clear()


@step
async def page(name: str) -> str:
    executed.note("page", name)
    await asyncio.sleep(0)
    return name


@step(once=True)
async def pay(number: int) -> int:
    executed.note("pay", number)
    if dying and dying[0][1] == number:
        process, _ = dying.pop()
        while len(await answered(process)) < 8:  # noqa: ASYNC110 - others append it
            await asyncio.sleep(0)
        process.store.is_dead = True
        raise Died("in the middle")
    return number


async def one(number: int) -> list[Any]:
    return [await page(f"before {number}"), await pay(number), await page(f"after {number}")]


@flow
async def three() -> list[Any]:
    await page("first")
    found = await gather(one(0), one(1), one(2))
    return [*found, await page("last")]


def expected(*, doubtful: int, said: int) -> list[Any]:
    numbers = [said if number == doubtful else number for number in range(3)]
    return [*([f"before {n}", paid, f"after {n}"] for n, paid in enumerate(numbers)), "last"]


async def in_doubt(world: World, number: int) -> Process:
    """Another process, once the first has died in the middle of this payment."""
    first = await serving(world, three)
    dying.append((first, number))
    with pytest.raises(Died):
        await begin(first, three.bind())
    await first.die()
    assert sorted(executed.done.values()) == [1] * 9, "all but what follows the payment and the branches"
    process = await serving(world, three)
    with pytest.raises(Refused) as refused:
        await process.resume()
    assert refused.value.details["calls"] == [f"gather.{number}/pay"]
    return process


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("action", ["retry", "continue"])
async def test_doubt_in_one_of_three_branches_is_settled_alone(
    world: World, action: str, number: int
) -> None:
    """F9"""
    process = await in_doubt(world, number)
    answers = {f"gather.{number}/pay": 70} if action == "continue" else {}
    run = await process.resume(action=action, answers=answers)
    said = 70 if action == "continue" else number
    assert result(run) == expected(doubtful=number, said=said)
    assert executed.done.pop(f"pay[{number}]") == (1 if action == "continue" else 2)
    assert set(executed.done.values()) == {1}, executed.done
    assert await process.is_sound()


async def test_a_flow_whose_step_is_in_doubt_can_be_skipped_and_leaves_no_result(world: World) -> None:
    process = await in_doubt(world, 1)
    with pytest.raises(Refused, match="--skip ends the whole flow here without a result"):
        await process.resume()
    run = await process.resume(action="skip")
    assert run.status is RunStatus.COMPLETED
    assert "flow.result" not in run.context
    assert set(executed.done.values()) == {1}
    assert await process.is_sound()


async def test_an_answer_for_a_call_that_is_not_in_doubt_names_the_one_that_is(world: World) -> None:
    """The refusal was about the type of the answer that was missing."""
    process = await in_doubt(world, 1)
    with pytest.raises(InvalidInput, match=r"call 'pya' is not in doubt .*; calls in doubt: gather.1/pay"):
        await process.resume(action="continue", answers={"pya": 70})
    run = await process.resume(action="continue", answers={"gather.1/pay": 70})
    assert result(run) == expected(doubtful=1, said=70)


@pytest.mark.parametrize("action", ["retry", "continue"])
async def test_a_fork_in_the_middle_of_a_payment_is_in_doubt_too(world: World, action: str) -> None:
    """F9: what the other run began may have been done, and whoever forks it decides."""
    process = await in_doubt(world, 1)
    calls = [record.seq for record in await process.log() if record.kind == CallFinished.__name__]
    await process.engine.fork("run", ForkRequest(calls[-1], new_id="fork"))
    run = await process.resume("fork", original=True)
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "in_doubt")
    assert "cut off in gather.1/pay" in run.detail
    assert executed.done["pay[1]"] == 1
    answers = {"gather.1/pay": 70} if action == "continue" else {}
    run = await process.resume("fork", original=True, action=action, answers=answers)
    assert result(run) == expected(doubtful=1, said=70 if action == "continue" else 1)
    assert executed.done.pop("pay[1]") == (1 if action == "continue" else 2)
    assert set(executed.done.values()) == {1}
    assert await process.is_sound("fork")
    with pytest.raises(Refused, match=r"gather\.1/pay"):
        await process.resume("run")


async def test_a_fork_after_what_a_person_answered_keeps_that_and_all_before_it(world: World) -> None:
    """F9: every answer was gone, and all was paid again."""
    process = await in_doubt(world, 1)
    await process.resume(action="continue", answers={"gather.1/pay": 70})
    executed.done.clear()
    await process.engine.fork("run", ForkRequest(from_step="gather.1/page#2", new_id="fork"))
    run = await process.resume("fork", original=True)
    assert result(run) == expected(doubtful=1, said=70)
    assert executed.done == {'page["after 1"]': 1, 'page["last"]': 1}
    assert await process.is_sound("fork")


@pytest.mark.parametrize("fault_at", ["retry", "continue"])
async def test_a_decision_is_kept_if_the_process_dies_after_it(world: World, fault_at: str) -> None:
    """F9"""
    process = await in_doubt(world, 2)
    process.store.fail(Fault.DIE_AFTER, within=2)
    answers = {"gather.2/pay": 70} if fault_at == "continue" else {}
    with pytest.raises(Died):
        await process.resume(action=fault_at, answers=answers)
    await process.die()
    other = await serving(world, three)
    try:
        run = await live(other, three.bind())
    except Refused:
        assert fault_at == "retry"
        run = await other.resume(action="retry")
    assert result(run)[2][1] == (70 if fault_at == "continue" else 2)
    assert executed.done.pop("pay[2]") <= 2
    assert set(executed.done.values()) == {1}


@step(once=True)
async def charge(cents: int) -> str:
    executed.note("charge", cents)
    raise ValueError("declined")


@flow
async def charging() -> str:
    await page("first")
    return await charge(5)


@pytest.mark.parametrize("way", WAYS)
async def test_a_payment_that_failed_is_not_tried_again_by_a_resume(world: World, way: str) -> None:
    """F7, F9: it may have been made; to try again is to fork before it, or to catch the failure."""
    process = await serving(world, charging)
    run = await begin(process, charging.bind())
    if way == RESUMED:
        run = await (await serving(world, charging)).resume()
    if way == FORKED:
        calls = [record.seq for record in await process.log() if record.kind == CallFinished.__name__]
        await process.engine.fork("run", ForkRequest(calls[-1], new_id="fork"))
        run = await process.resume("fork", original=True)
    assert (run.status, run.reason) == (RunStatus.FAILED, "step_failed")
    assert "step 'charge' failed: ValueError: declined" in run.detail
    assert executed.done == {'page["first"]': 1, "charge[5]": 1}
    await process.engine.fork("run", ForkRequest(from_step="charge", new_id="again"))
    await process.resume("again", original=True)
    assert executed.done == {'page["first"]': 1, "charge[5]": 2}
