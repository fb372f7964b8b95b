"""What an agent says is stored while it says it, and what a dead attempt said stays visible."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onward.model.call import CallFinished
from onward.model.chat import ChunkKind, unseal_parts
from onward.model.row import MessageState
from onward.model.run import RunStatus
from onward.store.port.messages import MessageQuery
from onward.testing.clock import ManualClock
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.agents.test_agent_step import Scripted, at, model
from tests.conformance.faults import Died
from tests.world import Process, World, line


async def said(process: Process) -> list[tuple[str, int, str, str]]:
    """The messages of the run: call, try, state, and text."""
    messages = process.store.messages
    found = []
    for message in await messages.list(MessageQuery(chat="run/run")):
        parts = await messages.content(message.id) or ()
        text = "".join(part.text for part in parts if part.kind is ChunkKind.TEXT)
        found.append((message.call, message.number, message.state.value, text))
    return found


async def test_an_answer_is_a_message_of_its_run_that_is_whole_when_the_call_is_answered(
    world: World,
) -> None:
    """S2-9, S2-13: the message exists from the start of the call, and is complete with its answer. I34."""
    text = "A long answer. " * 300
    process = await at(world, model(default=text))
    assert (await process.start(line("a"))).status is RunStatus.COMPLETED
    assert await said(process) == [("m1", 1, MessageState.COMPLETE.value, text)]
    (answer,) = [event for event in await process.events() if isinstance(event, CallFinished)]
    assert answer.call == "m1"
    assert await process.is_sound()


async def test_a_failed_request_leaves_what_came_of_it_and_the_next_is_a_message_of_its_own(
    world: World,
) -> None:
    """S2-23."""
    scripted = model(
        ScriptRule(nth=1, reply=ScriptedReply(text="half an answer", chunk=4, break_after=2)),
        default="Whole.",
    )
    process = await at(world, scripted)
    await process.start(line("a"))
    assert await said(process) == [("m1", 1, "error", "half an "), ("m1", 2, "complete", "Whole.")]


async def test_the_text_of_a_finished_call_is_sealed_with_its_answer(world: World) -> None:
    """No worker has tidied up yet: the blob that the call names is the text of its message."""
    scripted = model(
        ScriptRule(nth=1, reply=ScriptedReply(text="half an answer", chunk=4, break_after=2)),
        default="Whole. " * 400,
    )
    process = await at(world, scripted)
    await process.start(line("a"))
    messages = await process.store.messages.list(MessageQuery(chat="run/run"))
    calls = [event for event in await process.events() if isinstance(event, CallFinished)]
    assert [one.content for one in messages] == [call.said for call in calls]
    for one in messages:
        assert one.content is not None
        content = await process.store.blobs.find(one.content)
        assert content is not None
        assert unseal_parts(content) == tuple(await process.store.messages.content(one.id) or ())
    assert await process.store.messages.seal(at_us=0, limit=10) == 0
    assert await process.is_sound()


async def test_what_a_dead_attempt_said_stays_visible(world: World) -> None:
    """S2-20, S2-23: the process dies in the middle of an answer; the text up to the last flush is kept."""

    class Dying(Scripted):
        async def stream(self, request: Any, **how: Any) -> Any:
            count = 0
            async for piece in super().stream(request, **how):
                count += 1
                if len(self.received) == 1 and count == 4:
                    await self._clock.wait_s(1, asyncio.Event())  # time for a flush
                    raise Died
                yield piece

    scripted = Dying(
        ModelScript(default=ScriptedReply(text="one two three four five", chunk=4)), clock=ManualClock()
    )
    first = await at(world, scripted, clock=scripted._clock)
    with pytest.raises(Died):
        await first.start(line("a"))
    await first.die()
    second = await at(world, scripted)
    assert (await second.resume()).status is RunStatus.COMPLETED
    dead, whole = await said(second)
    assert dead[:3] == ("m1", 1, "interrupted")
    assert dead[3] == "one two thre"
    assert whole == ("m1", 2, "complete", "one two three four five")
    assert await second.is_sound()
