"""How far a step has come with its calls, as `onward show RUN --json` has it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onward.agents.model import FinishReason, TextDelta
from onward.handlers.function import FunctionHandler
from onward.handlers.port import StepContext
from onward.model.chat import message_id
from onward.model.run import RunStatus
from onward.operations.local.look import LocalLook
from onward.operations.requests import ShowRun
from onward.read.view import instant
from onward.store.owner import owner_label
from onward.testing.clock import ManualClock
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.agents.test_agent_step import NAME, Scripted, at
from tests.conformance.faults import Died
from tests.world import Process, World, line

FIRST = ScriptedReply(text="Once upon a time, ", reasoning="A story. ", finish_reason=FinishReason.LENGTH)
SECOND = ScriptedReply(text="there was a run.", reasoning="And its end. ", chunk=9)
SOURCE = line("write", write="max_rounds=4")


class Standing(Scripted):
    """A model that stands still in the middle of each of its first answers, until it is let go on."""

    def __init__(self) -> None:
        super().__init__(
            ModelScript(rules=(ScriptRule(nth=1, reply=FIRST),), default=SECOND), clock=ManualClock()
        )
        self.stands = [asyncio.Event(), asyncio.Event()]
        self.goes_on = [asyncio.Event(), asyncio.Event()]

    async def stream(self, request: Any, **how: Any) -> Any:
        place = len(self.received)
        async for piece in super().stream(request, **how):
            yield piece
            if place < 2 and isinstance(piece, TextDelta) and not self.stands[place].is_set():
                await self._clock.wait_s(1, asyncio.Event())  # time for a flush
                self.stands[place].set()
                await self.goes_on[place].wait()


async def progress(process: Process) -> list[dict[str, Any]]:
    """The progress of the run's open steps."""
    engine = process.engine
    look = LocalLook(process.store, process.clock, lambda: engine.leftovers, lambda: engine.sources)
    return [{**one} for one in (await look.show_run(ShowRun(run="run")))["progress"]]


async def test_the_progress_of_an_agent_begins_at_zero_and_grows_with_every_answer(world: World) -> None:
    """S2-6, S2-10, S2-11, S2-16: held from the first request on; what is there when its process dies stays.

    Document 002 calls them step number, max steps, text collected, reasoning, model, locked by and locked at.
    """
    scripted = Standing()
    first = await at(world, scripted, clock=scripted._clock)
    driving = asyncio.create_task(first.start(SOURCE))
    await scripted.stands[0].wait()
    claimed = next(one for one in await first.log() if one.kind == "RunClaimed")
    at_zero: dict[str, Any] = {
        "step": "write#1",
        "attempt": 1,
        "state": "open",
        "model": NAME,
        "rounds": 0,
        "rounds_max": 4,
        "message": message_id("run", "write#1", "m1", 1),
        "text": "Once",
        "reasoning": "A story. ",
        "calls": [{"call": "m1", "type": "model", "name": NAME, "state": "open", "result": None}],
        "held_by": owner_label(first.store.leases.owner),
        "held_since": instant(claimed.at_us),
    }
    assert await progress(first) == [at_zero]
    scripted.goes_on[0].set()
    await scripted.stands[1].wait()
    answered = {**at_zero["calls"][0], "state": "ok"}
    at_one = {
        **at_zero,
        "rounds": 1,
        "message": message_id("run", "write#1", "m2", 1),
        "text": "Once upon a time, there was",
        "reasoning": "A story. And its end. ",
        "calls": [answered, {**answered, "call": "m2", "state": "open"}],
    }
    assert await progress(first) == [at_one]
    driving.cancel()
    await first.die()
    await asyncio.gather(driving, return_exceptions=True)
    second = await at(world, scripted)
    lost = {**answered, "call": "m2", "state": "lost"}
    left = {**at_one, "calls": [answered, lost], "held_by": None, "held_since": None}
    assert await progress(second) == [left], "what whoever continues it begins with"
    assert (await second.resume()).status is RunStatus.COMPLETED
    keys = [one.idempotency_key for one in scripted.received]
    assert keys == ["run/write#1/m1", "run/write#1/m2", "run/write#1/m2"], "it went on after round 1"
    assert await progress(second) == [], "the step is over"


async def test_the_progress_of_a_step_has_its_calls_and_their_results(world: World) -> None:
    """S2-6, S2-11: tool calls and tool results, and a call that nobody knows the answer of."""

    async def die() -> None:
        raise Died

    async def look_up() -> dict[str, int]:
        return {"found": 3}

    async def work(step: StepContext) -> None:
        await step.call("search", look_up)
        await step.call("charge", die, repeatable=False)

    handlers = {"work": FunctionHandler(work)}
    first = await world.process(handlers=handlers)
    with pytest.raises(Died):
        await first.start(line("work", work="type=work"))
    await first.die()
    second = await world.process(handlers=handlers)
    (found,) = await progress(second)
    assert found["calls"] == [
        {"call": "search", "type": "function", "name": "", "state": "ok", "result": {"found": 3}},
        {"call": "charge", "type": "function", "name": "", "state": "lost", "result": None},
    ]
    assert (found["model"], found["rounds"], found["rounds_max"], found["text"]) == ("", 0, None, "")
