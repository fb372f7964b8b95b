"""Retries of steps: a long wait before the next try holds no process, and a crash forgets no try."""

from __future__ import annotations

from typing import Any

import pytest

from onward.errors import RunNotFound, StepFailed
from onward.flows.branches import gather
from onward.flows.define import flow, step
from onward.flows.waits import ask
from onward.model.call import CallFinished, CallStatus
from onward.model.run import Run, RunStatus
from onward.testing.flows import FlowTest
from tests.conformance.faults import WRITES, Died, Fault, FaultyStore
from tests.flows.living import Outside, begin, result, serving
from tests.world import Process, World

outside = Outside()
SHORT_US = 5_000_000


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    outside.done.clear()


@step
async def page(name: str) -> str:
    outside.do(f"page {name}")
    return name.upper()


@step(retries=9)
async def shaky() -> str:
    if outside.do("shaky") < 8:
        raise ValueError("not yet")
    return "at last"


@step(retries=6)
async def broken() -> str:
    outside.do("broken")
    raise ValueError("never")


@step(retries=9, once=True)
async def pay() -> int:
    if outside.do("pay") < 8:
        raise ValueError("declined")
    return outside.done["pay"]


@flow
async def patient() -> list[str]:
    return [await page("before"), await shaky(), await page("after")]


async def to_its_end(process: Process, run: Run) -> Run:
    """The run when it waits for no time any more."""
    while run.status is RunStatus.WAITING and run.wake_at_us is not None:
        process.clock.advance(max(0.0, (run.wake_at_us - process.clock.now_us()) / 1_000_000) + 0.001)
        run = await process.resume(run.id)
    return run


async def test_a_long_wait_before_the_next_try_holds_no_process_and_says_until_when(world: World) -> None:
    process = await serving(world, patient)
    run = await begin(process, patient.bind())
    assert (run.status, run.worker) == (RunStatus.WAITING, None)
    assert run.wake_at_us is not None
    tries = outside.done["shaky"]
    assert 0 < tries < 8
    assert run.wake_at_us - process.clock.now_us() >= SHORT_US
    assert "to try shaky again (ValueError: not yet)" in run.detail
    assert await process.is_sound()
    run = await to_its_end(process, run)
    assert result(run) == ["BEFORE", "at last", "AFTER"]
    assert outside.done == {"page before": 1, "shaky": 8, "page after": 1}
    failed = [one for one in await process.events() if isinstance(one, CallFinished) and one.error]
    assert [one.number for one in failed] == list(range(1, 8))
    assert all(one.retry_at_us for one in failed)


async def test_no_step_gets_more_tries_because_its_flow_gave_its_process_up(memory: World) -> None:
    @flow
    async def failing() -> str:
        return await broken()

    process = await serving(memory, failing)
    run = await to_its_end(process, await begin(process, failing.bind()))
    assert (run.status, run.reason) == (RunStatus.FAILED, "step_failed")
    assert outside.done["broken"] == 7
    run = await to_its_end(process, await process.resume())  # a person asks for all of them again
    assert run.status is RunStatus.FAILED
    assert outside.done["broken"] == 14


async def test_a_failure_after_all_tries_is_caught_as_any_other(memory: World) -> None:
    @flow
    async def careful() -> str:
        try:
            return await broken()
        except StepFailed as error:
            return f"{error.text} {await page('after')}"

    process = await serving(memory, careful)
    assert result(await to_its_end(process, await begin(process, careful.bind()))) == "never AFTER"
    assert outside.done["broken"] == 7


async def test_a_step_that_must_not_be_repeated_is_tried_again_after_it_failed(memory: World) -> None:
    @flow
    async def paying() -> int:
        return await pay()

    process = await serving(memory, paying)
    run = await begin(process, paying.bind())
    assert run.status is RunStatus.WAITING
    assert result(await to_its_end(process, run)) == 8


async def test_other_branches_go_on_while_one_waits_for_its_next_try(memory: World) -> None:
    @flow
    async def both() -> list[Any]:
        async def asked() -> str:
            return (await ask("Ship it?")).choice

        return list(await gather(shaky(), asked(), page("beside")))

    process = await serving(memory, both)
    run = await begin(process, both.bind())
    assert run.status is RunStatus.WAITING
    assert run.wake_at_us is not None
    assert outside.done["page beside"] == 1
    run = (await process.engine.answer("run", "yes", by="ann")).run
    assert result(await to_its_end(process, run)) == ["at last", "yes", "BESIDE"]
    assert outside.done["shaky"] == 8


async def test_days_of_retries_pass_in_no_time_in_a_test() -> None:
    test = FlowTest()
    assert await test.run(patient.bind()) == ["BEFORE", "at last", "AFTER"]
    assert outside.done["shaky"] == 8


@pytest.mark.parametrize("fault", [Fault.DIE_BEFORE, Fault.DIE_AFTER])
@pytest.mark.slow
async def test_a_flow_killed_at_every_append_of_its_retries_counts_them_on(
    world: World, fault: Fault
) -> None:
    whole = await serving(world, patient, wrap=writes)
    await to_its_end(whole, await begin(whole, patient.bind(), "whole"))
    for at in range(1, len(whole.store.calls) + 1):
        outside.done.clear()
        run_id = f"run-{at}"
        dying = await serving(world, patient, wrap=writes)
        dying.store.fail(fault, within=at)
        try:
            await to_its_end(dying, await begin(dying, patient.bind(), run_id))
        except Died:
            await dying.die()
        process = await serving(world, patient)
        try:
            run = (await process.load(run_id)).run
        except RunNotFound:
            run = await begin(process, patient.bind(), run_id)
        while not run.is_final:
            if run.status is RunStatus.WAITING:
                run = await to_its_end(process, run)
            else:
                run = await process.resume(run_id, take_over=run.status is RunStatus.RUNNING)
        assert result(run) == ["BEFORE", "at last", "AFTER"]
        failed = [one for one in await process.events(run_id) if _has_failed(one)]
        # The process may have died before it wrote how one try ended: that one is not counted.
        assert outside.done["shaky"] - len(failed) - 1 in (0, 1)
        assert len(failed) <= 9
        assert await process.is_sound(run_id)


def _has_failed(event: object) -> bool:
    return isinstance(event, CallFinished) and event.status is CallStatus.ERROR


def writes(store: Any) -> FaultyStore:
    return FaultyStore(store, counted=WRITES)
