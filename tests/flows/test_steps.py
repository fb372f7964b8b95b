"""Steps of a flow: keys, the history that they are compared with, values, failures, and `once`."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from onward.errors import InvalidInput, Refused, StepFailed
from onward.flows.define import flow, step
from onward.model.run import RunStatus
from tests.conformance.faults import Died, Fault
from tests.flows.living import Outside, begin, called, live, result, serving
from tests.world import Process, World


@dataclass
class Notes:
    topic: str
    tone: str = "dry"


outside = Outside()


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    outside.done.clear()


@step
async def research(topic: str) -> Notes:
    outside.do(f"research {topic}")
    return Notes(topic)


@step
def shorten(text: str) -> str:
    outside.do("shorten")
    return text[:3]


@step(once=True)
async def pay(cents: int) -> str:
    return f"paid {cents}, {outside.do('pay')}"


@step
async def shaky() -> str:
    if outside.do("shaky") < 2:
        raise ValueError("not yet")
    return "at last"


@flow
async def article(topic: str) -> Notes:
    notes = await research(topic)
    again = await research("more")
    return Notes(await shorten(notes.topic + again.topic), tone=await pay(5))


async def test_a_flow_returns_what_its_steps_gave_it(memory: World) -> None:
    process = await serving(memory, article)
    run = await begin(process, article.bind("durable"))
    assert result(run) == {"topic": "dur", "tone": "paid 5, 1"}
    assert await called(process) == ["research", "research#2", "shorten", "pay"]
    assert await process.is_sound()


async def test_a_finished_step_never_runs_again_whenever_its_process_dies(memory: World) -> None:
    whole = await serving(memory, article)
    await begin(whole, article.bind("x"), "whole")
    writes = len(whole.store.calls)
    for fault in (Fault.DIE_BEFORE, Fault.DIE_AFTER):
        for at in range(1, writes + 1):
            outside.done.clear()
            run_id = f"run-{at}-{'before' if fault is Fault.DIE_BEFORE else 'after'}"
            dying = await serving(memory, article)
            dying.store.fail(fault, within=at)
            try:
                await begin(dying, article.bind("x"), run_id)
            except Died:
                await dying.die()
            recovering = await serving(memory, article)
            try:
                run = await live(recovering, article.bind("x"), run_id)
            except Refused:  # the payment is in doubt
                run = await recovering.resume(run_id, action="continue", answers={"pay": "paid by hand"})
            assert result(run)["topic"] == "xmo"
            assert outside.done["pay"] <= 1
            ran = await called(recovering, run_id)
            assert len(ran) == len(set(ran))


async def test_a_step_that_failed_is_tried_again_by_a_resume_and_nothing_else(memory: World) -> None:
    @flow
    async def two() -> str:
        await research("x")
        return await shaky()

    process = await serving(memory, two)
    run = await begin(process, two.bind())
    assert (run.status, run.reason) == (RunStatus.FAILED, "step_failed")
    assert "step 'shaky' failed: ValueError: not yet" in run.detail
    assert result(await process.resume()) == "at last"
    assert outside.done == {"research x": 1, "shaky": 2}


async def test_a_retry_that_a_person_asks_for_keeps_what_was_answered(memory: World) -> None:
    @flow
    async def retried() -> str:
        await research("x")
        return await shaky()

    process = await serving(memory, retried)
    await begin(process, retried.bind())
    assert result(await process.resume(action="retry")) == "at last"
    assert outside.done["research x"] == 1


async def test_a_failure_that_the_flow_caught_is_history(memory: World) -> None:
    @flow
    async def catching() -> str:
        caught = ""
        try:
            await shaky()
        except StepFailed as error:
            caught = f"{error.key} {error.type} {error.text}"
        await research("x")
        if outside.done["again"] == 0:
            outside.do("again")
            raise RuntimeError("the flow itself breaks once")
        return caught

    process = await serving(memory, catching)
    run = await begin(process, catching.bind())
    assert run.status is RunStatus.FAILED
    other = await serving(memory, catching)
    assert result(await other.resume()) == "shaky ValueError not yet"
    assert outside.done["shaky"] == 1


async def test_retries_of_a_step_are_used_before_it_fails(memory: World) -> None:
    @step(retries=2)
    async def flaky() -> int:
        if outside.do("flaky") < 3:
            raise OSError("away")
        return 7

    @flow
    async def retrying() -> int:
        return await flaky()

    process = await serving(memory, retrying)
    assert result(await begin(process, retrying.bind())) == 7


async def test_a_changed_call_is_refused_and_nothing_is_written(memory: World) -> None:
    names = ["first"]

    @flow
    async def clocked() -> str:
        await research("x")
        await research(names[0])
        return await shaky()

    process = await serving(memory, clocked)
    await begin(process, clocked.bind())
    before = await called(process)
    names[0] = "second"
    run = await process.resume()
    assert (run.status, run.reason) == (RunStatus.FAILED, "flow_changed")
    assert "'research#2' was called with [\"first\"] (event " in run.detail
    assert 'and is now called with ["second"]' in run.detail
    assert "onward replay run --from research#2" in run.detail
    assert await called(process) == before
    names[0] = "first"
    assert result(await process.resume()) == "at last"


async def test_another_step_in_its_place_is_refused(memory: World) -> None:
    is_changed = [False]

    @flow
    async def swapped() -> str:
        if is_changed[0]:
            await shorten("abcd")
        else:
            await research("x")
        return await shaky()

    process = await serving(memory, swapped)
    await begin(process, swapped.bind())
    is_changed[0] = True
    run = await process.resume()
    assert "the history has 'research' (event 5) here, and the code now calls 'shorten'." in run.detail


async def test_an_answer_that_the_code_leaves_over_is_refused(memory: World) -> None:
    is_changed = [False]

    @flow
    async def shorter() -> str:
        await research("x")
        return "done" if is_changed[0] else await shaky()

    process = await serving(memory, shorter)
    await begin(process, shorter.bind())
    is_changed[0] = True
    run = await process.resume()
    assert (run.status, run.reason) == (RunStatus.FAILED, "flow_changed")
    assert "and the flow ended without calling it" in run.detail


async def test_no_except_exception_swallows_a_mismatch(memory: World) -> None:
    is_changed = [False]

    @flow
    async def stubborn() -> str:
        try:
            await research("y" if is_changed[0] else "x")
        except Exception:
            outside.do("refund")
        try:
            return await shaky()
        except BaseException:
            if is_changed[0]:
                return "swallowed"
            raise

    process = await serving(memory, stubborn)
    await begin(process, stubborn.bind())
    is_changed[0] = True
    run = await process.resume()
    assert (run.status, run.reason) == (RunStatus.FAILED, "flow_changed")
    assert outside.done["refund"] == 0


async def test_a_step_in_doubt_is_settled_by_a_person_and_the_history_still_fits(memory: World) -> None:
    dying = await serving(memory, article)
    kinds: list[str] = []

    @flow
    async def paying() -> str:
        await research("x")
        paid = await pay(5)
        return paid + await shaky()

    dying = await serving(memory, paying)

    async def die(cents: int) -> str:
        outside.do("pay")
        dying.store.is_dead = True
        raise Died("in the middle")

    paying_handler = pay.function
    pay.function = die
    try:
        with pytest.raises(Died):
            await begin(dying, paying.bind())
    finally:
        pay.function = paying_handler
    await dying.die()
    process = await serving(memory, paying)
    with pytest.raises(Refused) as refused:
        await process.resume()
    assert refused.value.code == "in_doubt"
    assert "pay" in str(refused.value)
    run = await process.resume(action="continue", answers={"pay": "by hand, "})
    assert run.status is RunStatus.FAILED  # of the step after it
    kinds = await called(process)
    assert result(await process.resume()) == "by hand, at last"
    assert outside.done["pay"] == 1
    assert kinds == ["research", "pay", "shaky"]


async def test_a_step_in_doubt_is_repeated_alone_with_retry(memory: World) -> None:
    @flow
    async def paying() -> str:
        await research("x")
        return await pay(5)

    dying = await serving(memory, paying)

    async def die(cents: int) -> str:
        dying.store.is_dead = True
        raise Died("in the middle")

    function, pay.function = pay.function, die
    try:
        with pytest.raises(Died):
            await begin(dying, paying.bind())
    finally:
        pay.function = function
    await dying.die()
    process = await serving(memory, paying)
    assert result(await process.resume(action="retry")) == "paid 5, 1"
    assert outside.done["research x"] == 1


async def test_a_call_from_a_task_of_asyncios_gather_is_refused(memory: World) -> None:
    @flow
    async def tangled() -> list[Notes]:
        return list(await asyncio.gather(research("a"), research("b")))

    process = await serving(memory, tangled)
    run = await begin(process, tangled.bind())
    assert run.status is RunStatus.FAILED
    assert "step 'research' was called from a task that the flow did not start; use `await gather(…)`" in (
        run.detail
    )


async def test_a_time_limit_of_asyncio_around_a_step_is_refused(memory: World) -> None:
    @step
    async def endless() -> None:
        await asyncio.Event().wait()

    @flow
    async def hurried() -> str:
        try:
            async with asyncio.timeout(0.01):
                await endless()
        except TimeoutError:
            await research("x")
        return "done"

    process = await serving(memory, hurried)
    run = await begin(process, hurried.bind())
    assert run.status is RunStatus.FAILED
    assert "step 'endless' was cancelled by the flow itself (asyncio.timeout?)" in run.detail
    assert outside.done["research x"] == 0


@dataclass
class Everything:
    price: Decimal
    at: datetime
    id: UUID
    place: Path
    parts: dict[int, set[str]]


async def test_values_come_back_as_their_types_the_first_time_too(memory: World) -> None:
    whole = Everything(
        Decimal("1.10"), datetime(2026, 11, 18), UUID(int=7), Path("a/b"), {1: {"x"}, 2: set()}
    )
    seen: list[Any] = []

    @step
    async def make() -> Everything:
        return whole

    @flow
    async def typed() -> str:
        seen.append(await make())
        return await shaky()

    process = await serving(memory, typed)
    await begin(process, typed.bind())
    await process.resume()
    assert seen == [whole, whole]


async def test_a_result_that_is_not_what_the_step_declares_fails_the_step(memory: World) -> None:
    @step
    async def wrong() -> int:
        return "three"  # type: ignore[return-value]

    @flow
    async def trusting() -> int:
        return await wrong()

    process = await serving(memory, trusting)
    run = await begin(process, trusting.bind())
    assert "the result of step 'wrong' is not what it declares: Expected `int`, got `str`." in run.detail


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (float("nan"), "is nan, which JSON cannot represent"),
        (object(), "is a object, which cannot be stored"),
        ("a\ud83d", "contains a lone surrogate"),
        ("three", "is not what it declares: Expected `int`, got `str`"),
    ],
)
async def test_a_payment_whose_result_cannot_be_kept_has_not_failed_but_is_in_doubt(
    world: World, returned: Any, told: str
) -> None:
    """A flow that was told of a failure would pay in another way."""

    @step(once=True)
    async def pay_odd() -> int:
        outside.do("pay")
        return returned  # type: ignore[no-any-return]

    @flow
    async def paying() -> int:
        try:
            return await pay_odd()
        except StepFailed:
            outside.do("pay in another way")
            return 0

    process = await serving(world, paying)
    run = await begin(process, paying.bind())
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "in_doubt")
    assert told in run.detail
    with pytest.raises(Refused) as refused:
        await process.resume()
    assert refused.value.code == "in_doubt"
    run = await process.resume(action="continue", answers={"pay_odd": 7})
    assert result(run) == 7
    assert outside.done == {"pay": 1}
    assert await process.is_sound()


async def test_arguments_with_half_of_a_character_are_compared_as_others_are(memory: World) -> None:
    """As names of files that are no UTF-8."""

    @step
    async def size(path: str) -> int:
        outside.do("size")
        return len(path)

    names = ["a\udcff", "b\udcff"]

    @flow
    async def sizes() -> int:
        sizes = [await size(name) for name in names]
        await shaky()
        return sum(sizes)

    process = await serving(memory, sizes)
    assert "not yet" in (await begin(process, sizes.bind())).detail
    names.reverse()
    assert (await process.resume()).reason == "flow_changed"
    names.reverse()
    assert result(await process.resume()) == 4
    assert outside.done["size"] == 2


class Panic(BaseException):
    """What libraries in other languages raise: not an Exception."""


async def test_a_step_that_exits_has_failed_like_any_other(memory: World) -> None:
    @step
    async def exits() -> str:
        outside.do("exits")
        sys.exit(3)

    @flow
    async def careful() -> str:
        try:
            return await exits()
        except StepFailed as failed:
            return await shorten(failed.text)

    run = await begin(await serving(memory, careful), careful.bind())
    assert result(run) == "the"
    assert outside.done == {"exits": 1, "shorten": 1}


async def test_a_step_that_ends_with_no_exception_ends_the_attempt_whatever_the_flow_does_about_it(
    memory: World,
) -> None:
    """It has no recorded end, so a flow that went on would have a history without it."""

    @step
    async def panics() -> str:
        if outside.do("panics") == 1:
            raise Panic
        return "done"

    @flow
    async def careless() -> str:
        try:
            answered = await panics()
        except BaseException:
            answered = "swallowed"
        return answered + await shorten("text")

    first = await serving(memory, careless)
    with pytest.raises(Panic):
        await begin(first, careless.bind())
    await first.die()
    assert outside.done == {"panics": 1}
    assert result(await live(await serving(memory, careless), careless.bind())) == "donetex"


async def test_a_pause_is_no_failure_for_the_code_of_the_flow(memory: World) -> None:
    pausing: list[Process] = []

    @step
    async def pause() -> None:
        await pausing[0].engine.pause("run", after="call")

    @flow
    async def careful() -> str:
        try:
            await pause()
            await research("x")
        except Exception:
            outside.do("refund")
        return "done"

    pausing.append(await serving(memory, careful))
    run = await begin(pausing[0], careful.bind())
    assert run.status is RunStatus.PAUSED
    assert outside.done == {}
    assert result(await pausing[0].resume()) == "done"
    assert outside.done == {"research x": 1}


async def test_a_flow_inside_a_flow_has_keys_of_its_own(memory: World) -> None:
    @flow
    async def audit(topic: str) -> str:
        return (await research(topic)).topic

    @flow
    async def outer() -> list[str]:
        found = [await audit("a"), (await research("b")).topic, await audit("c")]
        await shaky()
        return found

    process = await serving(memory, outer)
    await begin(process, outer.bind())
    assert result(await process.resume()) == ["a", "b", "c"]
    assert await called(process) == ["audit/research", "research", "audit#2/research", "shaky", "shaky"]


async def test_outside_a_flow_a_step_is_its_function_and_a_flow_is_refused() -> None:
    assert (await research("x")).topic == "x"
    with pytest.raises(InvalidInput, match=r"use `await app\.call\(article\.bind\(…\)\)`"):
        await article("x")


def test_a_plain_step_needs_no_loop_outside_a_flow() -> None:
    assert shorten("abcd") == "abc"  # type: ignore[comparison-overlap]


def test_what_cannot_be_a_flow_or_a_step_is_refused_where_it_is_defined() -> None:
    with pytest.raises(InvalidInput, match="is not async"):
        flow(lambda: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(InvalidInput, match="such names are reserved for an agent's own calls"):

        @step(name="m1")
        async def m() -> None: ...

    with pytest.raises(InvalidInput, match="a thread cannot be stopped"):

        @step(timeout="10m")
        def plain() -> None: ...


async def test_a_step_inside_a_step_is_a_function(memory: World) -> None:
    @step
    async def outer_step() -> str:
        return (await research("inner")).topic

    @flow
    async def nested() -> str:
        return await outer_step()

    process = await serving(memory, nested)
    assert result(await begin(process, nested.bind())) == "inner"
    assert await called(process) == ["outer_step"]
