"""Summaries by a model: asked for once, told to the step, and replaced by rules if no model answers."""

from __future__ import annotations

from typing import Any

import pytest

from onward.agents.model import Text
from onward.agents.prices import read_prices
from onward.agents.step.handler import AgentHandler
from onward.errors import InvalidInput
from onward.model.run import RunStatus
from onward.testing.clock import ManualClock, SeededDice
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.agents.test_agent_step import NAME, Scripted, calls, model
from tests.conformance.faults import Died
from tests.world import Process, World, line

SOURCE = line("first", "second", second='prompt="Go on.", fidelity="summary:low"')
SHORT = "First was done."


async def at(world: World, scripted: Scripted, summary_model: str = "tiny") -> Process:
    clock = ManualClock()
    prices = read_prices({NAME: {"input": 1, "output": 2}})
    agent = AgentHandler(scripted, prices, clock, SeededDice(1), summary_model=summary_model)
    return await world.process(handlers={"codergen": agent}, clock=clock)


def told(scripted: Scripted, number: int = -1) -> str:
    (part,) = scripted.received[number].request.messages[-1].parts
    assert isinstance(part, Text)
    return part.text


async def test_a_model_summarises_the_run_for_the_step_that_asks_for_it(world: World) -> None:
    scripted = model(ScriptRule(model="tiny", reply=ScriptedReply(text=SHORT)))
    process = await at(world, scripted)
    run = await process.start(SOURCE)
    assert run.status is RunStatus.COMPLETED
    asked = [one.request.model for one in scripted.received]
    assert asked == ["openai:small", "openai:tiny", "openai:small"]
    assert scripted.received[1].request.max_tokens == 600
    assert told(scripted) == f"{SHORT}\n\nGo on."
    assert [(one.step, one.call) for one in await calls(process)] == [
        ("first#1", "m1"),
        ("second#1", "m0"),
        ("second#1", "m1"),
    ]
    assert await process.is_sound()


async def test_a_summary_is_asked_for_once_whatever_dies(world: World) -> None:
    class Dying(Scripted):
        async def stream(self, request: Any, **how: Any) -> Any:
            async for piece in super().stream(request, **how):
                if len(self.received) == 3:
                    raise Died
                yield piece

    script = ModelScript(
        rules=(ScriptRule(model="tiny", reply=ScriptedReply(text=SHORT)),),
        default=ScriptedReply(text="Fine."),
    )
    scripted = Dying(script, clock=ManualClock())
    first = await at(world, scripted)
    with pytest.raises(Died):
        await first.start(SOURCE)
    await first.die()
    run = await (await at(world, scripted)).resume()
    assert run.status is RunStatus.COMPLETED
    asked = [one.request.model for one in scripted.received]
    assert asked.count("openai:tiny") == 1
    assert told(scripted) == f"{SHORT}\n\nGo on."


async def test_rules_summarise_if_no_model_can(world: World) -> None:
    scripted = model(ScriptRule(model="tiny", reply=ScriptedReply(status=401)))
    run = await (await at(world, scripted)).start(SOURCE)
    assert run.status is RunStatus.COMPLETED
    assert told(scripted).endswith("Go on.")
    assert "first" in told(scripted)


async def test_a_model_for_summaries_that_no_provider_has_is_refused_before_a_run_begins(
    world: World,
) -> None:
    process = await at(world, model(), "unknown")
    with pytest.raises(InvalidInput, match="no provider has a model 'unknown'"):
        await process.start(SOURCE)
