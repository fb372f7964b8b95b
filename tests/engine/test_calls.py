"""Calls inside a step: made once, answered from the log ever after, whatever dies in between."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from onward.engine.stop import StopSwitch
from onward.errors import CallTimedOut, InvalidInput, Refused, RunNotFound
from onward.handlers.function import FunctionHandler
from onward.handlers.port import StepContext
from onward.handlers.user_functions import running
from onward.machine.decide.calls import calls_in_doubt
from onward.model.call import CallFinished, CallLost, CallStarted
from onward.model.result import Result
from onward.model.run import AttemptState, RunStatus
from onward.operations.here.verify import verify_run
from tests.cli.shell import wait_until
from tests.conformance.faults import Died, Fault, FaultyStore
from tests.world import Process, World, line, until

Body = Callable[[StepContext], Awaitable[Any]]
SOURCE = line("work", "after", work="type=work", after="type=after")


class Outside:
    """The world: it counts how often each thing was done."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()

    async def do(self, what: str) -> str:
        self.done[what] += 1
        return f"{what} {self.done[what]}"

    def do_plainly(self, what: str) -> str:
        self.done[what] += 1
        return f"{what} {self.done[what]}"


@pytest.fixture(autouse=True)
async def _no_thread_is_left() -> AsyncIterator[None]:
    """The runs of all these tests have one name: a thread of one must not be there for the next."""
    yield
    await asyncio.to_thread(wait_until, lambda: not running.has("run/work#1"))


async def _nothing(step: StepContext) -> None:
    return None


async def at(world: World, body: Callable[[StepContext], Any], **more: Any) -> Process:
    """A process whose step `work` is this function."""
    handlers = {"work": FunctionHandler(body), "after": FunctionHandler(_nothing)}
    return await world.process(handlers=handlers, **more)


async def answers(process: Process) -> list[CallFinished]:
    return [event for event in await process.events() if isinstance(event, CallFinished)]


async def test_a_call_returns_what_its_function_returns_and_is_recorded_once(world: World) -> None:
    outside = Outside()

    async def work(step: StepContext) -> dict[str, Any]:
        first = await step.call("a", outside.do, "a")
        again = await step.call("a", outside.do, "a")
        return {"got": [first, again]}

    process = await at(world, work)
    run = await process.start(SOURCE)
    assert run.status is RunStatus.COMPLETED
    assert run.context["got"] == ["a 1", "a 1"]
    assert outside.done == {"a": 1}
    assert [event.call for event in await answers(process)] == ["a"]
    assert await process.is_sound()


async def test_a_step_that_runs_again_gets_the_answers_of_its_calls(world: World) -> None:
    """S2-16, B2-4: what a dead attempt had been answered is not asked again."""
    outside, deaths = Outside(), [Died()]

    async def work(step: StepContext) -> dict[str, Any]:
        a = await step.call("a", outside.do, "a")
        b = await step.call("b", outside.do, "b")
        if deaths:
            raise deaths.pop()
        return {"got": [a, b, await step.call("c", outside.do, "c")]}

    first = await at(world, work)
    with pytest.raises(Died):
        await first.start(SOURCE)
    await first.die()
    second = await at(world, work)
    run = await second.resume()
    assert run.status is RunStatus.COMPLETED
    assert run.context["got"] == ["a 1", "b 1", "c 1"]
    assert outside.done == {"a": 1, "b": 1, "c": 1}


async def test_values_of_every_json_type_large_ones_and_bytes_come_back(world: World) -> None:
    values = [None, True, 3, 0.5, "x", ["y", {"z": None}], {"k": "v" * 10_000}, b"\x00\xff" * 5_000, b""]
    got: list[list[Any]] = []

    async def answer(number: int) -> Any:  # async: the thread of a plain one may outlive its dead process
        return values[number]

    async def work(step: StepContext) -> None:
        got.append([await step.call(f"v{n}", answer, n) for n in range(len(values))])
        if len(got) == 1:
            raise Died

    first = await at(world, work)
    with pytest.raises(Died):
        await first.start(SOURCE)
    await first.die()
    await (second := await at(world, work)).resume()
    assert got == [values, values]
    assert (await verify_run(second.store, "run")).problems == ()


async def test_a_call_that_raises_is_made_again_when_its_step_is(world: World) -> None:
    """I30."""
    outside = Outside()

    async def fails_once() -> str:
        outside.done["tries"] += 1
        if outside.done["tries"] == 1:
            raise ValueError("declined")
        return "fine"

    async def work(step: StepContext) -> dict[str, Any]:
        await step.call("before", outside.do, "before")
        return {"got": await step.call("pay", fails_once)}

    process = await at(world, work)
    run = await process.start(line("work", "after", work="type=work, max_retries=1", after="type=after"))
    assert run.context["got"] == "fine"
    assert outside.done == {"before": 1, "tries": 2}
    tries = [(event.call, event.number, event.status.value) for event in await answers(process)]
    assert tries == [("before", 1, "ok"), ("pay", 1, "error"), ("pay", 2, "ok")]
    assert [event.error for event in await answers(process)][1] == "ValueError: declined"


async def test_retries_of_a_call_are_made_inside_the_attempt(world: World) -> None:
    made: list[int] = []

    async def flaky() -> int:
        made.append(1)
        if len(made) < 3:
            raise OSError("not yet")
        return len(made)

    async def work(step: StepContext) -> dict[str, Any]:
        return {"got": await step.call("flaky", flaky, retries=2), "attempt": step.attempt}

    process = await at(world, work)
    run = await process.start(SOURCE)
    assert (run.context["got"], run.context["attempt"]) == (3, 1)


async def test_a_handler_that_says_fail_begins_a_new_generation_but_never_charges_twice(world: World) -> None:
    """Design §11: answers are forgotten when the handler itself fails; a finished effect is not. I30."""
    outside = Outside()

    async def work(step: StepContext) -> Result | dict[str, Any]:
        charged = await step.call("charge", outside.do, "charge", repeatable=False)
        asked = await step.call("ask", outside.do, "ask")
        return Result.fail("try anew") if step.attempt == 1 else {"got": [charged, asked]}

    process = await at(world, work)
    run = await process.start(line("work", "after", work="type=work, max_retries=1", after="type=after"))
    assert run.context["got"] == ["charge 1", "ask 2"]
    assert outside.done == {"charge": 1, "ask": 2}


async def test_a_call_that_must_not_be_repeated_is_in_doubt_when_its_process_dies_in_it(world: World) -> None:
    outside = Outside()

    async def dies() -> None:
        outside.done["charge"] += 1
        raise Died

    async def work(step: StepContext) -> dict[str, Any]:
        await step.call("before", outside.do, "before")
        return {"got": await step.call("charge", dies, repeatable=False)}

    first = await at(world, work)
    with pytest.raises(Died):
        await first.start(SOURCE)
    await first.die()
    second = await at(world, work)
    with pytest.raises(Refused, match="charge") as refused:
        await second.resume()
    assert refused.value.code == "in_doubt"
    assert refused.value.details["calls"] == ["charge"]
    assert outside.done == {"before": 1, "charge": 1}


async def _in_doubt(world: World, work: Body) -> Process:
    first = await at(world, work)
    with pytest.raises(Died):
        await first.start(SOURCE)
    await first.die()
    return await at(world, work)


def _charging(outside: Outside) -> Body:
    async def charge() -> str:
        outside.done["charge"] += 1
        if outside.done["charge"] == 1:
            raise Died
        return "charged"

    async def work(step: StepContext) -> dict[str, Any]:
        asked = await step.call("ask", outside.do, "ask")
        return {"got": [asked, await step.call("charge", charge, repeatable=False)]}

    return work


async def test_a_retry_makes_a_lost_call_again_and_asks_nothing_else(world: World) -> None:
    outside = Outside()
    process = await _in_doubt(world, _charging(outside))
    run = await process.resume(action="retry")
    assert run.context["got"] == ["ask 1", "charged"]
    assert outside.done == {"ask": 1, "charge": 2}
    assert await process.is_sound()


async def test_a_retry_that_is_to_be_fresh_starts_the_step_anew(world: World) -> None:
    outside = Outside()
    process = await _in_doubt(world, _charging(outside))
    run = await process.resume(action="retry", fresh=True)
    assert run.context["got"] == ["ask 2", "charged"]
    assert outside.done == {"ask": 2, "charge": 2}


async def test_the_refusal_says_what_the_choices_mean(world: World) -> None:
    process = await _in_doubt(world, _charging(Outside()))
    with pytest.raises(Refused, match=r"--retry repeats charge and keeps.*charge=VALUE"):
        await process.resume()


async def test_a_retry_of_a_step_in_doubt_as_a_whole_keeps_its_answers(world: World) -> None:
    outside, deaths = Outside(), [Died()]

    async def work(step: StepContext) -> dict[str, Any]:
        asked = await step.call("ask", outside.do, "ask")
        if deaths:
            raise deaths.pop()
        return {"got": asked}

    first = await at(world, work)
    with pytest.raises(Died):
        await first.start(line("work", work="type=work, repeatable=false"))
    await first.die()
    run = await (await at(world, work)).resume(action="retry")
    assert run.context["got"] == "ask 1"
    assert outside.done == {"ask": 1}


async def test_what_a_person_answered_before_a_doubt_is_not_asked_again_by_its_retry(world: World) -> None:
    outside = Outside()

    async def charge() -> str:
        outside.done["charge"] += 1
        if outside.done["charge"] == 1:
            raise Died
        return "charged"

    async def work(step: StepContext) -> dict[str, Any]:
        answer = await step.ask("approve", "Charge it?")
        return {"got": [answer.by, await step.call("charge", charge, repeatable=False)]}

    first = await at(world, work)
    assert (await first.start(SOURCE)).status is RunStatus.WAITING
    with pytest.raises(Died):
        await first.engine.answer("run", "yes", by="ann")
    await first.die()
    run = await (await at(world, work)).resume(action="retry")
    assert (run.status, run.context["got"]) == (RunStatus.COMPLETED, ["ann", "charged"])


async def test_continue_gives_a_lost_call_the_answer_that_a_person_states(world: World) -> None:
    outside = Outside()
    process = await _in_doubt(world, _charging(outside))
    run = await process.resume(action="continue", answers={"charge": "receipt 17"})
    assert run.context["got"] == ["ask 1", "receipt 17"]
    assert outside.done == {"ask": 1, "charge": 1}


async def test_continue_without_an_answer_means_that_the_call_answered_nothing(world: World) -> None:
    outside = Outside()
    process = await _in_doubt(world, _charging(outside))
    run = await process.resume(action="continue")
    assert run.context["got"] == ["ask 1", None]
    assert outside.done["charge"] == 1


async def test_an_answer_for_a_call_that_is_not_in_doubt_is_refused(world: World) -> None:
    process = await _in_doubt(world, _charging(Outside()))
    with pytest.raises(InvalidInput, match=r"'chrge' is not in doubt.*charge"):
        await process.resume(action="continue", answers={"chrge": 1})
    with pytest.raises(InvalidInput, match="--continue"):
        await process.resume(action="retry", answers={"charge": 1})


async def test_an_answered_call_that_must_not_be_repeated_is_repeated_only_if_a_person_names_it(
    world: World,
) -> None:
    """I30."""
    outside = Outside()

    async def work(step: StepContext) -> Any:
        got = await step.call("charge", outside.do, "charge", repeatable=False)
        return {"got": got} if step.attempt == 3 else Result.fail("no", retryable=False)

    process = await at(world, work)
    assert (await process.start(SOURCE)).status is RunStatus.FAILED
    assert (await process.resume(action="retry")).status is RunStatus.FAILED
    assert outside.done == {"charge": 1}
    run = await process.resume(action="retry", repeats=("charge",))
    assert run.context["got"] == "charge 2"


async def test_skip_and_abort_leave_a_lost_call_alone(world: World) -> None:
    outside = Outside()
    process = await _in_doubt(world, _charging(outside))
    run = await process.resume(action="skip")
    assert run.status is RunStatus.COMPLETED
    assert "got" not in run.context
    assert outside.done["charge"] == 1


# -- at the same time, nested, from threads ----------------------------------------------------------


async def test_calls_at_the_same_time_are_all_recorded(world: World) -> None:
    outside = Outside()

    async def work(step: StepContext) -> dict[str, Any]:
        got = await asyncio.gather(*(step.call(f"c{n}", outside.do, f"c{n}") for n in range(20)))
        if step.attempt == 1 and outside.done["died"] == 0:
            outside.done["died"] += 1
            raise Died
        return {"got": list(got)}

    first = await at(world, work)
    with pytest.raises(Died):
        await first.start(SOURCE)
    await first.die()
    run = await (await at(world, work)).resume()
    assert run.context["got"] == [f"c{n} 1" for n in range(20)]


async def test_the_same_key_twice_at_once_is_refused(world: World) -> None:
    entered, gate = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        entered.set()
        await gate.wait()

    async def work(step: StepContext) -> dict[str, Any]:
        first = asyncio.create_task(step.call("a", wait))
        await entered.wait()
        with pytest.raises(Refused) as refused:
            await step.call("a", gate.wait)
        gate.set()
        await first
        return {"code": refused.value.code}

    assert (await (await at(world, work)).start(SOURCE)).context["code"] == "call_under_way"


async def test_a_call_inside_a_call_is_remembered_when_the_outer_one_is_entered_again(world: World) -> None:
    outside, deaths = Outside(), [Died()]

    async def work(step: StepContext) -> dict[str, Any]:
        async def outer() -> str:
            outside.done["outer"] += 1
            inner = await step.call("inner", outside.do, "inner")
            if deaths:
                raise deaths.pop()
            return f"outer of {inner}"

        return {"got": await step.call("outer", outer)}

    first = await at(world, work)
    with pytest.raises(Died):
        await first.start(SOURCE)
    await first.die()
    run = await (await at(world, work)).resume()
    assert run.context["got"] == "outer of inner 1"
    assert outside.done == {"outer": 2, "inner": 1}


async def test_a_call_that_must_not_be_repeated_cannot_contain_another(world: World) -> None:
    outside = Outside()

    async def work(step: StepContext) -> None:
        async def outer() -> None:
            await step.call("inner", outside.do, "inner")

        await step.call("outer", outer, repeatable=False)

    run = await (await at(world, work)).start(SOURCE)
    assert run.status is RunStatus.FAILED
    assert "'outer' must not be repeated, so it cannot contain call 'inner'" in run.detail
    assert outside.done == {}


async def test_a_plain_function_makes_calls_from_its_thread(world: World) -> None:
    outside = Outside()

    def work(step: StepContext) -> dict[str, Any]:
        def outer() -> str:
            return f"{step.call_sync('inner', outside.do_plainly, 'inner')}!"

        return {"got": [step.call_sync("a", outside.do, "a"), step.call_sync("outer", outer)]}

    run = await (await at(world, work)).start(SOURCE)
    assert run.context["got"] == ["a 1", "inner 1!"]


async def test_call_sync_in_an_async_function_says_what_to_write(world: World) -> None:
    async def work(step: StepContext) -> None:
        step.call_sync("a", lambda: 1)

    run = await (await at(world, work)).start(SOURCE)
    assert "await step.call" in run.detail


# -- ends --------------------------------------------------------------------------------------------


async def test_a_late_call_of_an_attempt_that_is_over_does_nothing(world: World) -> None:
    outside, late = Outside(), []

    async def work(step: StepContext) -> None:
        late.append(step)

    process = await at(world, work)
    await process.start(SOURCE)
    with pytest.raises(Refused) as refused:
        await late[0].call("a", outside.do, "a")
    assert refused.value.code == "attempt_over"
    assert outside.done == {}


async def test_a_thread_that_calls_late_does_nothing(memory: World) -> None:
    """I33: a plain function that outlives its attempt raises before anything is written or done."""
    outside, gate, came = Outside(), threading.Event(), list[object]()
    threads: list[threading.Thread] = []

    def late(step: StepContext) -> None:
        gate.wait(30)
        try:
            came.append(step.call_sync("late", outside.do, "late"))
        except Refused as refused:
            came.append(refused.code)

    def work(step: StepContext) -> None:
        threads.append(threading.Thread(target=late, args=(step,)))
        threads[0].start()

    process = await at(memory, work)
    run = await process.start(SOURCE)
    gate.set()
    await asyncio.to_thread(threads[0].join)
    assert came == ["attempt_over"]
    assert outside.done == {}
    assert (await process.load()).run.head == run.head


async def test_every_start_of_a_call_has_a_number_of_its_own_in_the_life_of_the_step(world: World) -> None:
    """I30: also after a death, and in a new generation; the idempotency key of a key of the user stays."""
    deaths, keys = [Died()], list[str]()

    async def work(step: StepContext) -> None:
        keys.append(step.recorder.key_of("charge"))
        await step.call("charge", partial(_dying, deaths), repeatable=False)

    first = await at(world, work)
    with pytest.raises(Died):
        await first.start(SOURCE)
    await first.die()
    second = await at(world, work)
    assert (await second.resume(action="retry")).status is RunStatus.COMPLETED
    begun = [(e.call, e.number) for e in await second.events() if isinstance(e, CallStarted)]
    assert begun == [("charge", 1), ("charge", 2)]
    assert len(set(keys)) == 1


async def _dying(deaths: list[Died]) -> str:
    if deaths:
        raise deaths.pop()
    return "charged"


async def test_a_handler_that_returns_with_a_call_open_loses_it(world: World) -> None:
    """I33."""
    gate = asyncio.Event()
    tasks: list[asyncio.Task[Any]] = []

    async def work(step: StepContext) -> None:
        tasks.append(asyncio.create_task(step.call("charge", gate.wait, repeatable=False)))
        await until(lambda: step.recorder._parts.appender.run.open_calls == 1)  # type: ignore[attr-defined]

    process = await at(world, work)
    run = await process.start(SOURCE)
    assert run.status is RunStatus.COMPLETED
    assert [type(event) for event in await process.events() if isinstance(event, CallStarted | CallLost)] == [
        CallStarted,
        CallLost,
    ]
    gate.set()
    with pytest.raises(Refused, match="has ended"):
        await tasks[0]
    assert await answers(process) == []


async def test_a_call_that_takes_too_long_fails_and_its_step_is_tried_again(world: World) -> None:
    made: list[int] = []

    async def slow() -> str:
        made.append(1)
        if len(made) == 1:
            await asyncio.Event().wait()
        return "fine"

    async def work(step: StepContext) -> dict[str, Any]:
        try:
            return {"got": await step.call("slow", slow, time_limit_s=5)}
        except CallTimedOut as late:
            return {"got": str(late)}

    process = await at(world, work)
    assert (await process.start(SOURCE)).context[
        "got"
    ] == "call 'slow' took longer than its time limit of 5 s."


async def test_a_call_that_must_not_be_repeated_and_takes_too_long_is_in_doubt(world: World) -> None:
    began = asyncio.Event()

    async def slow() -> None:
        began.set()
        await asyncio.Event().wait()

    async def work(step: StepContext) -> None:
        await step.call("charge", slow, repeatable=False, time_limit_s=5)

    process = await at(world, work)
    run = await process.start(SOURCE)
    assert began.is_set()
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "in_doubt")
    assert "charge" in run.detail


async def test_a_handler_that_swallows_a_lost_call_cannot_make_it_again(world: World) -> None:
    """I31: it may have done its work; only a person can say that it is to be made again."""
    made, codes = list[int](), list[str]()

    async def charge() -> None:
        made.append(1)
        await asyncio.Event().wait()

    async def work(step: StepContext) -> None:
        with contextlib.suppress(CallTimedOut):
            await step.call("charge", charge, repeatable=False, time_limit_s=5)
        try:
            await step.call("charge", charge, repeatable=False, time_limit_s=5)
        except Refused as refused:
            codes.append(refused.code)
            raise

    process = await at(world, work)
    run = await process.start(SOURCE)
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "in_doubt")
    assert (made, codes) == ([1], ["call_in_doubt"])


async def test_a_time_limit_on_a_plain_function_is_refused(world: World) -> None:
    async def work(step: StepContext) -> None:
        await step.call("a", lambda: 1, time_limit_s=5)

    run = await (await at(world, work)).start(SOURCE)
    assert "a thread cannot be stopped" in run.detail


@pytest.mark.parametrize("key", ["", "m3", "m1.t2", "x" * 201, "a\nb", 7])
async def test_a_key_that_cannot_be_one_is_refused(world: World, key: Any) -> None:
    async def work(step: StepContext) -> None:
        await step.call(key, lambda: 1)

    run = await (await at(world, work)).start(SOURCE)
    assert "cannot be the key of a call" in run.detail


async def test_a_value_that_json_cannot_hold_fails_the_call(world: World) -> None:
    async def work(step: StepContext) -> None:
        await step.call("a", lambda: object())

    process = await at(world, work)
    run = await process.start(SOURCE)
    assert "the result of call 'a' is a object" in run.detail
    assert [event.status.value for event in await answers(process)] == ["error"]


# -- stopping between calls --------------------------------------------------------------------------


async def test_a_signal_stops_a_step_between_two_calls(world: World) -> None:
    """S1-18, B1-3: the step stops at the next call, and continues with its answers."""
    outside, stop = Outside(), StopSwitch(grace_s=None)

    async def work(step: StepContext) -> dict[str, Any]:
        a = await step.call("a", outside.do, "a")
        stop.request("signal")
        b = await step.call("b", outside.do, "b")
        return {"got": [a, b]}

    process = await at(world, work)
    run = await process.start(SOURCE, stop=stop)
    assert (run.status, run.reason) == (RunStatus.PAUSED, "signal")
    assert run.open_steps["work#1"].state is AttemptState.HELD
    assert outside.done == {"a": 1}
    stop = StopSwitch(grace_s=None)

    async def calm(step: StepContext) -> dict[str, Any]:
        return {"got": [await step.call(key, outside.do, key) for key in ("a", "b")]}

    run = await (await at(world, calm)).resume()
    assert run.context["got"] == ["a 1", "b 1"]
    assert run.executions["work"] == 1


async def test_a_pause_after_the_call_waits_for_the_calls_that_are_open(world: World) -> None:
    outside, gate, began = Outside(), asyncio.Event(), asyncio.Event()
    held_back: list[StepContext] = []

    async def slowly(what: str) -> str:
        began.set()
        await gate.wait()
        return await outside.do(what)

    async def work(step: StepContext) -> dict[str, Any]:
        slow = asyncio.create_task(step.call("slow", slowly, "slow"))
        await step.stopping.wait()
        held_back.append(step)
        await step.call("next", outside.do, "next")
        return {"got": await slow}

    process = await at(world, work)
    running = asyncio.create_task(process.start(SOURCE))
    await began.wait()
    other = await at(world, work)
    await other.engine.pause("run", after="call", by="pat")
    await until(lambda: bool(held_back))
    assert not running.done()
    gate.set()
    run = await running
    assert run.status is RunStatus.PAUSED
    assert outside.done == {"slow": 1}
    assert [event.call for event in await answers(process)] == ["slow"]
    assert run.open_steps["work#1"].state is AttemptState.HELD


async def test_a_handler_that_swallows_a_hold_changes_nothing(world: World) -> None:
    outside, stop = Outside(), StopSwitch(grace_s=None)

    async def work(step: StepContext) -> dict[str, Any]:
        await step.call("a", outside.do, "a")
        stop.request("signal")
        try:
            await step.call("b", outside.do, "b")
        except (asyncio.CancelledError, Refused):
            return {"got": "swallowed"}
        return {"got": "made"}

    process = await at(world, work)
    run = await process.start(SOURCE, stop=stop)
    assert run.status is RunStatus.PAUSED
    assert "got" not in run.context
    assert outside.done == {"a": 1}


# -- crashes at every append -------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.DIE_BEFORE, Fault.DIE_AFTER, Fault.LOSE_REPLY])
async def test_a_death_at_any_append_repeats_nothing_that_was_answered(world: World, fault: Fault) -> None:
    """Every append of a step with calls, on both sides of its commit: an answer in the log is enough."""
    outside = Outside()

    async def work(step: StepContext) -> dict[str, Any]:
        a = await step.call("a", outside.do, "a")
        b = await step.call("b", outside.do, "b", repeatable=False)
        more = await asyncio.gather(*(step.call(key, outside.do, key) for key in "cd"))
        return {"got": [a, b, *more]}

    deaths = 0
    for nth in range(1, 20):
        outside.done.clear()
        first = await at(world, work, wrap=partial(FaultyStore, fault=fault, at=nth))
        with contextlib.suppress(Died):
            await first.start(SOURCE, f"run-{nth}")
        if len(first.store.calls) < nth:
            break
        await first.die()
        deaths += await _continues(await at(world, work), f"run-{nth}", outside)
    assert deaths > 5


async def _continues(process: Process, run_id: str, outside: Outside) -> int:
    """Whether there was a run to continue; it must end well, and ask nothing again that has an answer."""
    try:
        run = (await process.load(run_id)).run
    except RunNotFound:
        return 0
    answered = {e.call for e in await process.events(run_id) if isinstance(e, CallFinished)}
    before = Counter(outside.done)
    if "b" in calls_in_doubt(run.open_steps["work#1"]) if "work#1" in run.open_steps else False:
        with pytest.raises(Refused, match="in doubt: b"):
            await process.resume(run_id)
        run = await process.resume(run_id, action="continue", answers={"b": "b 1"})
        outside.done["b"] = 1  # it may have died before it began: the person says that it was done
    elif run.status is not RunStatus.COMPLETED:
        run = await process.resume(run_id)
    assert run.status is RunStatus.COMPLETED, run.detail
    assert [outside.done[call] for call in answered] == [before[call] for call in answered]
    assert outside.done["b"] == 1
    assert await process.is_sound(run_id)
    return 1
