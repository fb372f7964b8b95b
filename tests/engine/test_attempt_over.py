"""Calls of attempts that are to end, or have ended: what may still begin, what not, and who is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from onward.engine.hold import AttemptHold
from onward.engine.stop import StopSwitch
from onward.errors import Refused
from onward.handlers.calls import CallOptions
from onward.handlers.port import StepContext
from onward.model.call import AttemptHeld
from onward.model.events import Event
from onward.model.run import AttemptState, Run, RunStatus
from onward.store.port.log import RunLog
from tests.conformance.faults import Around, FaultyStore
from tests.engine.test_calls import SOURCE, Outside, answers, at
from tests.machine.events import held, started, then
from tests.world import World, until


async def refused_as(call: asyncio.Future[Any]) -> str:
    with pytest.raises(Refused) as refused:
        await call
    return refused.value.code


async def test_an_agents_late_call_does_nothing(world: World) -> None:
    """I33: agents and programs ask the recorder of their step without asking the step."""
    outside, late = Outside(), list[StepContext]()

    async def work(step: StepContext) -> None:
        await step.call("first", outside.do, "first")
        late.append(step)

    process = await at(world, work)
    head = (await process.start(SOURCE)).head
    called = late[0].recorder.call("late", outside.do, ("late",), CallOptions())
    assert await refused_as(asyncio.ensure_future(called)) == "attempt_over"
    assert outside.done == {"first": 1}
    assert (await process.load()).run.head == head


class Between(Around[RunLog]):
    """A log that does something before the append after `late` is there."""

    late: list[StepContext]
    called: asyncio.Task[Any] | None = None

    async def append(self, *values: Any, **named: Any) -> Any:
        if self.late and self.called is None:
            call = self.late[0].recorder.call("late", self.do, (), CallOptions())
            self.called = asyncio.create_task(call)
            for _ in range(20):
                await asyncio.sleep(0)
        return await self.part.append(*values, **named)

    async def do(self) -> None:
        self.late.clear()


async def test_a_late_call_does_nothing_while_the_result_of_its_attempt_is_being_written(
    world: World,
) -> None:
    """I33: the log does not say yet that the attempt is over."""
    late = list[StepContext]()

    async def work(step: StepContext) -> None:
        await step.call("first", asyncio.sleep, 0)
        late.append(step)

    process = await at(world, work, wrap=partial(FaultyStore, log=Between))
    log = process.store.log
    assert isinstance(log, Between)
    log.late = late
    assert (await process.start(SOURCE)).status is RunStatus.COMPLETED
    assert log.called is not None
    assert await refused_as(log.called) == "attempt_over"
    assert late, "the late call was made"


async def test_a_call_that_waits_for_its_next_try_is_not_tried_after_its_attempt(world: World) -> None:
    """I33: its handler has returned; whether that is on disk yet does not matter."""
    outside, calls = Outside(), list[asyncio.Task[Any]]()
    failed = asyncio.Event()

    async def fails() -> None:
        await outside.do("try")
        failed.set()
        raise OSError("busy")

    async def work(step: StepContext) -> None:
        calls.append(asyncio.create_task(step.call("ask", fails, retries=5)))
        await failed.wait()
        await until(lambda: bool(step.recorder._holding._leaves))  # type: ignore[attr-defined]

    process = await at(world, work)
    assert (await process.start(SOURCE)).status is RunStatus.COMPLETED
    assert await refused_as(calls[0]) == "attempt_over"
    assert outside.done == {"try": 1}


async def test_a_hold_lets_calls_begin_inside_an_open_one_and_waits_for_them(world: World) -> None:
    """Without the call inside it the outer one could not end. It is entered again, with that remembered."""
    outside, stop, tasks = Outside(), StopSwitch(grace_s=None), list[asyncio.Task[Any]]()

    async def work(step: StepContext) -> dict[str, Any]:
        async def outer() -> str:
            entered.set()
            if not tasks[1:]:
                await until(lambda: step.recorder._holding._wanted is not None)  # type: ignore[attr-defined]
            return str(await step.call("inner", outside.do, "inner"))

        entered = asyncio.Event()
        tasks.append(asyncio.create_task(step.call("outer", outer)))
        await entered.wait()
        if not tasks[1:]:
            stop.request("signal")
        await step.call("next", outside.do, "next")
        return {"got": await tasks[-1]}

    process = await at(world, work)
    run = await process.start(SOURCE, stop=stop)
    assert (run.status, run.open_steps["work#1"].state) == (RunStatus.PAUSED, AttemptState.HELD)
    assert [event.call for event in await answers(process)] == ["inner"]
    await asyncio.gather(*tasks, return_exceptions=True)
    run = await process.resume()
    assert (run.status, run.context["got"]) == (RunStatus.COMPLETED, "inner 1")
    assert outside.done == {"inner": 1, "next": 1}


async def test_a_hold_ends_a_handler_that_waits_for_something_else(world: World) -> None:
    """The run does not wait for whatever its handler waits for."""
    outside, stop = Outside(), StopSwitch(grace_s=None)
    tasks = list[asyncio.Task[Any]]()

    async def work(step: StepContext) -> None:
        stop.request("signal")
        tasks.append(asyncio.create_task(step.call("next", outside.do, "next")))
        await asyncio.Event().wait()

    process = await at(world, work)
    run = await process.start(SOURCE, stop=stop)
    assert (run.status, run.open_steps["work#1"].state) == (RunStatus.PAUSED, AttemptState.HELD)
    assert await refused_as(tasks[0]) == "attempt_over"
    assert outside.done == {}


async def test_a_function_that_swallows_a_hold_can_begin_no_call_inside_its_own(world: World) -> None:
    """I33: calls inside an open one pass the hold, so the log says that the attempt is over."""
    outside, stop, came = Outside(), StopSwitch(grace_s=None), list[str]()

    async def work(step: StepContext) -> None:
        async def outer() -> None:
            await step.call("inner", outside.do, "inner")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                try:
                    came.append(await step.call("late", outside.do, "late"))
                except Refused as refused:
                    came.append(refused.code)

        first = asyncio.create_task(step.call("outer", outer))
        await until(lambda: outside.done["inner"] == 1)
        stop.request("signal")
        await asyncio.gather(first, step.call("next", outside.do, "next"))

    process = await at(world, work)
    run = await process.start(SOURCE, stop=stop)
    assert (run.status, run.open_steps["work#1"].state) == (RunStatus.PAUSED, AttemptState.HELD)
    await until(lambda: bool(came))
    assert (came, outside.done) == (["attempt_over"], {"inner": 1})


class Noting:
    """Stands in for an appender: notes what is decided, and writes nothing."""

    def __init__(self, run: Run) -> None:
        self.run, self.decided = run, list[Sequence[Event]]()

    async def record(self, decide: Any) -> Sequence[Event]:
        self.decided.append(decide(self.run))
        return self.decided[-1]


class Ending:
    """Stands in for an attempt that nothing but its hold stops: notes its end."""

    def __init__(self, ended: list[str]) -> None:
        self._ended = ended

    def stops_at_call(self) -> str:
        return ""

    def end(self) -> None:
        self._ended.append("ended")


async def test_a_hold_takes_no_turn_of_the_appender_while_a_call_is_under_way() -> None:
    """It is decided once, when the last call has ended."""
    appender, begun, ended = Noting(then(held(), started())), started(), list[str]()
    holding = AttemptHold(appender, begun, Ending(ended))  # type: ignore[arg-type]
    for call in "ab":
        holding.begin(call, None)
    holding.ask("pause", "paused by pat")
    holding.end("a")
    assert not await holding.is_held()
    assert (appender.decided, ended) == ([], [])
    holding.end("b")
    assert await holding.is_held()
    hold = AttemptHeld(step="a#1", attempt=1, reason="pause", detail="paused by pat")
    assert (appender.decided, ended) == ([(hold,)], ["ended"])
