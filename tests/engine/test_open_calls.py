"""Calls that are open while their run is exported, imported and collected around."""

from __future__ import annotations

import asyncio
import io
from collections import Counter
from typing import Any

import pytest

from onward.agents.model import FinishReason
from onward.carry.exporter import Exporter, row_of
from onward.carry.format import Spool
from onward.carry.importer import CheckedExport, Importer
from onward.engine.control.retention import UNTOUCHED_US, Collected, Collector, Policy
from onward.errors import Refused
from onward.handlers.function import FunctionHandler
from onward.handlers.port import StepContext
from onward.model.call import CallLost
from onward.model.chat import text_of
from onward.model.limits import NO_AMOUNTS
from onward.model.run import Run, RunStatus
from onward.store.port.messages import MessageQuery
from onward.testing.clock import ManualClock
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.agents.test_agent_step import Scripted, at
from tests.world import Process, World, in_memory, line

LONG = "Once upon a time. " * 300
REST = "And so on."
SOURCE = line("write")
CUT = ScriptRule(nth=1, reply=ScriptedReply(text=LONG, finish_reason=FinishReason.LENGTH))


class Standing(Scripted):
    """A model that stands still in the middle of its second answer until it is let go on."""

    def __init__(self) -> None:
        super().__init__(
            ModelScript(rules=(CUT,), default=ScriptedReply(text=REST, chunk=4)), clock=ManualClock()
        )
        self.stands, self.goes_on = asyncio.Event(), asyncio.Event()

    async def stream(self, request: Any, **how: Any) -> Any:
        is_second = len(self.received) == 1
        async for piece in super().stream(request, **how):
            yield piece
            if is_second and not self.stands.is_set():
                self.stands.set()
                await self.goes_on.wait()

    @property
    def asked(self) -> dict[str, int]:
        return Counter(one.idempotency_key or "" for one in self.received)


async def standing(world: World) -> tuple[Process, Standing, asyncio.Task[Run]]:
    """A process in the middle of the second answer of a step; the first is stored."""
    scripted = Standing()
    process = await at(world, scripted)
    driving = asyncio.create_task(process.start(SOURCE, chat="talk", project="p"))
    await scripted.stands.wait()
    return process, scripted, driving


async def said(process: Process) -> list[tuple[str, int, str, str]]:
    """The messages of the chat: call, try, state, and text."""
    messages = process.store.messages
    return [
        (one.call, one.number, one.state.value, text_of(await messages.content(one.id) or ()))
        for one in await messages.list(MessageQuery(chat="talk"))
    ]


async def carried(process: Process, into: Process) -> None:
    """Export the run from one database and import it into another."""
    file = io.BytesIO()
    await Exporter(process.store, file.write).export([await row_of(process.store.runs, "run")])
    file.seek(0)
    spool = Spool(file, "the file")
    try:
        await Importer(into.store, into.clock, CheckedExport(spool)).bring()
    finally:
        spool.close()


async def collect(process: Process) -> Collected:
    """Collect all that may go, long after anything was written."""
    process.clock.advance(UNTOUCHED_US / 1_000_000 + 60)
    return await Collector(process.store, process.clock, None, pytest.fail).collect(Policy(older_than_s=0))


async def test_an_import_closes_the_calls_that_were_open_and_asks_only_those_again(world: World) -> None:
    """Nobody here can answer an open call: it is lost, its message ends, and nothing is reserved for it.

    I33.
    """
    async with in_memory() as elsewhere:
        there, scripted, driving = await standing(elsewhere)
        here = await at(world, scripted)
        await carried(there, here)
        lost = [event for event in await here.events() if isinstance(event, CallLost)]
        assert [(event.call, event.number) for event in lost] == [("m2", 1)]
        run = (await here.load()).run
        assert run.status is RunStatus.INTERRUPTED
        calls = run.open_steps["write#1"].calls
        assert calls is not None
        assert calls.open == {}
        assert [one[:3] for one in await said(here)] == [("m1", 1, "complete"), ("m2", 1, "interrupted")]
        (scope,) = await here.store.limits.read(["project/p"])
        assert (scope.spent, scope.reserved) == (NO_AMOUNTS, NO_AMOUNTS), "it was spent elsewhere"
        assert await here.is_sound()
        assert (await here.resume()).status is RunStatus.COMPLETED
        assert scripted.asked == {"run/write#1/m1": 1, "run/write#1/m2": 2}
        assert (await said(here))[2] == ("m2", 2, "complete", REST)
        assert await here.is_sound()
        scripted.goes_on.set()
        assert (await driving).status is RunStatus.COMPLETED, "the run that was exported is its own"


async def test_an_imported_call_that_must_not_be_repeated_is_in_doubt(world: World) -> None:
    """I33."""
    done, charging, door = list[str](), asyncio.Event(), asyncio.Event()

    async def charge() -> str:
        done.append("charged")
        charging.set()
        await door.wait()
        return "receipt"

    async def work(step: StepContext) -> dict[str, Any]:
        return {"got": await step.call("charge", charge, repeatable=False)}

    source, handlers = line("work", work="type=work"), {"work": FunctionHandler(work)}
    async with in_memory() as elsewhere:
        there, here = await elsewhere.process(handlers=handlers), await world.process(handlers=handlers)
        driving = asyncio.create_task(there.start(source))
        await charging.wait()
        await carried(there, here)
        with pytest.raises(Refused) as refused:
            await here.resume()
        assert refused.value.code == "in_doubt"
        run = await here.resume(action="continue", answers={"charge": "receipt"})
        assert (run.status, run.context["got"], done) == (RunStatus.COMPLETED, "receipt", ["charged"])
        assert await here.is_sound()
        door.set()
        assert (await driving).status is RunStatus.COMPLETED


async def test_a_gc_leaves_what_a_run_with_an_open_call_has_been_answered(world: World) -> None:
    process, scripted, driving = await standing(world)
    other = await at(world, Scripted(ModelScript(), clock=ManualClock()))
    assert (await other.start(SOURCE, "old", chat="talk")).status is RunStatus.COMPLETED
    done = await collect(other)
    assert done.runs == ["old"]
    scripted.goes_on.set()
    run = await driving
    assert run.status is RunStatus.COMPLETED
    assert scripted.asked == {"run/write#1/m1": 1, "run/write#1/m2": 1}
    mine = [one for one in await said(process) if one[3] in (LONG, REST)]
    assert mine == [("m1", 1, "complete", LONG), ("m2", 1, "complete", REST)]
    assert await process.is_sound()


async def test_a_step_continues_with_its_answers_after_a_gc_while_its_call_was_open(world: World) -> None:
    """I30."""
    process, scripted, driving = await standing(world)
    other = await at(world, Scripted(ModelScript(), clock=ManualClock()))
    assert (await collect(other)).runs == []
    driving.cancel()
    await process.die()
    await asyncio.gather(driving, return_exceptions=True)
    second = await at(world, scripted)
    assert (await collect(second)).runs == []
    assert (await second.resume()).status is RunStatus.COMPLETED
    assert scripted.asked == {"run/write#1/m1": 1, "run/write#1/m2": 2}
    assert LONG in str(scripted.received[-1].request.messages), "the stored answer is what the model is told"
    assert await second.is_sound()
