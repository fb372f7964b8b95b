"""Answers that broke off: requested again, or continued where the model takes their beginning."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onward.agents.model import AssistantMessage, Text
from onward.agents.models import Models
from onward.agents.providers import read_providers
from onward.errors import InvalidInput
from onward.model.call import CallStatus
from onward.model.run import RunStatus
from onward.testing.clock import ManualClock
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.agents.test_agent_messages import said
from tests.agents.test_agent_step import Scripted, at, calls
from tests.conformance.faults import Died
from tests.world import Process, World, line

CONTINUED = line("a", a="on_partial=continue")
HALF = ScriptedReply(text="One two three", chunk=4, break_after=2)


class Prefilled(Scripted):
    """A model that continues the answer that it is given."""

    prefill = True


def scripted(*rules: ScriptRule, default: str = "Fine.") -> Prefilled:
    return Prefilled(ModelScript(rules=rules, default=ScriptedReply(text=default)), clock=ManualClock())


def prefixes(model: Scripted) -> list[str]:
    """The beginning of the answer in each request; empty where there is none."""
    found = []
    for one in model.received:
        last = one.request.messages[-1]
        parts = last.parts if isinstance(last, AssistantMessage) else ()
        found.append("".join(part.text for part in parts if isinstance(part, Text)))
    return found


async def test_an_answer_that_broke_off_is_continued_where_it_ended(world: World) -> None:
    """S2-20: the message has the beginning and the rest once; the usage is what the provider counted."""
    model = scripted(
        ScriptRule(nth=1, reply=HALF), ScriptRule(nth=2, reply=ScriptedReply(text=" three four"))
    )
    process = await at(world, model)
    run = await process.start(CONTINUED)
    assert run.status is RunStatus.COMPLETED
    assert prefixes(model) == ["", "One two"]
    assert await said(process) == [
        ("m1", 1, "error", "One two "),
        ("m1", 2, "complete", "One two three four"),
    ]
    _, whole = await calls(process)
    assert (whole.status, whole.value["text"]) == (CallStatus.OK, "One two three four")
    assert whole.usage is not None
    first, second = model.received
    assert first.idempotency_key != second.idempotency_key
    assert await process.is_sound()


async def test_the_conversation_has_the_whole_answer_once(world: World) -> None:
    source = """digraph two {
      start [shape=Mdiamond]; exit [shape=Msquare]
      graph [default_fidelity=full]
      a [prompt="one", on_partial=continue, fidelity=full, thread_id=t]
      b [prompt="two", fidelity=full, thread_id=t]
      start -> a -> b -> exit
    }"""
    model = scripted(
        ScriptRule(nth=1, reply=HALF), ScriptRule(nth=2, reply=ScriptedReply(text=" three four"))
    )
    process = await at(world, model)
    assert (await process.start(source)).status is RunStatus.COMPLETED
    told = [m for m in model.received[-1].request.messages if isinstance(m, AssistantMessage)]
    assert told == [AssistantMessage((Text("One two three four"),))]


async def test_a_process_that_dies_leaves_the_beginning_to_the_next(world: World) -> None:
    class Dying(Prefilled):
        async def stream(self, request: Any, **how: Any) -> Any:
            count = 0
            async for piece in super().stream(request, **how):
                count += 1
                if len(self.received) == 1 and count == 4:
                    await self._clock.wait_s(1, asyncio.Event())  # time for a flush
                    raise Died
                yield piece

    rules = (ScriptRule(nth=2, reply=ScriptedReply(text="e four")),)
    model = Dying(
        ModelScript(rules=rules, default=ScriptedReply(text="One two three", chunk=4)), clock=ManualClock()
    )
    first = await at(world, model, clock=model._clock)
    with pytest.raises(Died):
        await first.start(CONTINUED)
    await first.die()
    second = await at(world, model)
    assert (await second.resume()).status is RunStatus.COMPLETED
    assert prefixes(model) == ["", "One two thre"]
    assert (await said(second))[-1] == ("m1", 2, "complete", "One two three four")
    assert await second.is_sound()


async def test_several_breaks_add_up(world: World) -> None:
    rest = ScriptedReply(text=" three four five", chunk=6, break_after=1)
    model = scripted(
        ScriptRule(nth=1, reply=HALF),
        ScriptRule(nth=2, reply=rest),
        ScriptRule(nth=3, reply=ScriptedReply(text=" four.")),
    )
    process = await at(world, model)
    await process.start(CONTINUED)
    assert prefixes(model) == ["", "One two", "One two three"]
    assert (await said(process))[-1] == ("m1", 3, "complete", "One two three four.")


@pytest.mark.parametrize("refusal", [ScriptedReply(status=400), ScriptedReply(text="")])
async def test_a_provider_that_does_not_continue_it_is_asked_anew(
    world: World, refusal: ScriptedReply
) -> None:
    model = scripted(ScriptRule(nth=1, reply=HALF), ScriptRule(nth=2, reply=refusal), default="All of it.")
    process = await at(world, model)
    assert (await process.start(CONTINUED)).status is RunStatus.COMPLETED
    assert prefixes(model) == ["", "One two", ""]
    assert (await said(process))[-1] == ("m1", 3, "complete", "All of it.")
    assert any("requested again" in record.body for record in await process.log())


async def test_a_retry_begins_from_nothing(world: World) -> None:
    broken = ScriptedReply(text="One two three", chunk=4, break_after=2)
    model = scripted(*(ScriptRule(nth=nth, reply=broken) for nth in range(1, 6)), default="Fine.")
    process = await at(world, model)
    run = await process.start(CONTINUED)
    assert run.status is RunStatus.FAILED
    assert (await process.resume(action="retry")).status is RunStatus.COMPLETED
    assert prefixes(model)[-1] == ""


async def test_without_it_an_answer_that_broke_off_is_asked_for_anew(world: World) -> None:
    model = scripted(ScriptRule(nth=1, reply=HALF), default="Whole.")
    process = await at(world, model)
    await process.start(line("a"))
    assert prefixes(model) == ["", ""]
    assert (await said(process))[-1] == ("m1", 2, "complete", "Whole.")


async def test_a_provider_that_cannot_continue_is_refused_before_the_run(world: World) -> None:
    process: Process = await at(world, Scripted(ModelScript(), clock=ManualClock()))
    with pytest.raises(InvalidInput, match=r"set prefill = true in \[providers.openai\]"):
        await process.start(CONTINUED)


def test_a_provider_says_whether_it_continues_answers() -> None:
    local = {"base_url": "http://127.0.0.1:1/v1", "prefill": True}
    models = Models(read_providers({"local": local}), keys=None, clock=ManualClock())  # type: ignore[arg-type]
    assert (models.takes_prefix("local:x"), models.takes_prefix("openai:x")) == (True, False)
