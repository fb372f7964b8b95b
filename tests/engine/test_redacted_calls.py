"""What a call answered is recorded without secrets, and its caller gets what is recorded."""

from __future__ import annotations

from typing import Any

import pytest

from onward.errors import EffectFailed
from onward.handlers.function import FunctionHandler
from onward.handlers.port import StepContext
from onward.model.call import CallFinished, CallLost
from onward.model.result import Result
from onward.redact.redactor import Redactor
from tests.conformance.faults import Died
from tests.world import Process, World, line

SECRET, MARK = "value-of-a-secret", "[redacted KEY]"
SOURCE = line("work", work="type=work")
ANSWERS = [f"is {SECRET}", {SECRET: [SECRET]}, f"{SECRET} " * 5_000, b"\xff" + SECRET.encode() * 3, b"", None]
CLEAN = [f"is {MARK}", {MARK: [MARK]}, f"{MARK} " * 5_000, b"\xff" + MARK.encode() * 3, b"", None]


async def at(world: World, body: Any) -> Process:
    redactor = Redactor({"KEY": SECRET})
    return await world.process(handlers={"work": FunctionHandler(body)}, redactor=redactor)


async def test_the_answer_of_a_call_is_the_same_now_and_on_resume(world: World) -> None:
    got: list[list[Any]] = []

    async def work(step: StepContext) -> None:
        got.append([await step.call(f"c{n}", lambda n=n: ANSWERS[n]) for n in range(len(ANSWERS))])
        got[-1].append(await step.effect("fetch", lambda: {"token": SECRET}))
        if len(got) == 1:
            raise Died

    first = await at(world, work)
    with pytest.raises(Died):
        await first.start(SOURCE)
    await first.die()
    second = await at(world, work)
    await second.resume()
    assert got == [[*CLEAN, {"token": MARK}]] * 2
    assert SECRET not in str(await second.events())


async def test_a_call_that_failed_says_why_without_secrets(world: World) -> None:
    async def fails() -> None:
        raise ValueError(f"no access with {SECRET}")

    async def work(step: StepContext) -> Any:
        raised = EffectFailed if step.attempt > 1 else ValueError
        with pytest.raises(raised):
            await step.effect("fetch", fails)
        with pytest.raises(ValueError, match=SECRET):
            await step.call("ask", fails)
        return Result.fail("try anew") if step.attempt == 1 else {}

    process = await at(world, work)
    await process.start(line("work", work="type=work, max_retries=1"))
    events = await process.events()
    errors = [event.error for event in events if isinstance(event, CallFinished) and event.error]
    assert errors == [f"ValueError: no access with {MARK}"] * 2
    assert SECRET not in str(events)


async def test_an_answer_that_a_person_states_has_no_secrets(world: World) -> None:
    got: list[Any] = []

    async def dies() -> None:
        raise Died

    async def work(step: StepContext) -> None:
        got.append(await step.call("charge", dies, repeatable=False))

    first = await at(world, work)
    with pytest.raises(Died):
        await first.start(SOURCE)
    await first.die()
    second = await at(world, work)
    await second.resume(action="continue", answers={"charge": {"receipt": SECRET}})
    assert got == [{"receipt": MARK}]
    events = await second.events()
    assert [event for event in events if isinstance(event, CallLost)]
    assert SECRET not in str(events)
