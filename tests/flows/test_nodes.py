"""Flows and steps as nodes of graphs, and what a person may say that a step in doubt answered."""

from __future__ import annotations

import pytest

from onward.errors import InvalidInput
from onward.flows.define import flow, step
from onward.flows.handler import FlowHandler, StepHandler
from onward.handlers.port import Handler
from onward.model.run import RunStatus
from tests.conformance.faults import Died
from tests.flows.living import Outside, begin
from tests.world import World

outside = Outside()


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    outside.done.clear()


@step
async def research(topic: str) -> dict[str, str]:
    outside.do("research")
    return {"topic": topic}


@step
async def shaky() -> str:
    if outside.do("shaky") < 2:
        raise ValueError("not yet")
    return "at last"


@flow
async def build(topic: str, pages: int = 2) -> list[str]:
    found = await research(topic)
    await shaky()
    return [found["topic"]] * pages


GRAPH = """digraph shop {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  look [type="step:research"]
  make [type="flow:build"]
  start -> look -> make -> exit
}"""


async def test_flows_and_steps_are_nodes_of_graphs(memory: World) -> None:
    handlers: dict[str, Handler] = {build.kind: FlowHandler(build), research.kind: StepHandler(research)}
    process = await memory.process(handlers=handlers)
    run = await process.start(GRAPH, inputs={"topic": "durable", "pages": 3})
    assert (run.status, run.reason) == (RunStatus.FAILED, "step_failed")
    run = await process.resume()
    assert run.status is RunStatus.COMPLETED
    assert run.context["look.result"] == {"topic": "durable"}
    assert run.context["make.result"] == ["durable"] * 3
    assert outside.done == {"research": 2, "shaky": 2}


async def test_a_node_whose_parameter_is_not_in_the_context_says_so(memory: World) -> None:
    handlers: dict[str, Handler] = {build.kind: FlowHandler(build), research.kind: StepHandler(research)}
    process = await memory.process(handlers=handlers)
    run = await process.start(GRAPH)
    assert "step 'research' needs a value for 'topic'; its parameters are topic." in run.detail


@step(once=True)
async def pay(cents: int) -> int:
    if outside.do("pay") == 1:
        raise Died("in the middle")
    return cents


@flow
async def paying() -> int:
    return await pay(5)


@pytest.mark.parametrize("answers", [{"pay": "five"}, {}])
async def test_an_answer_that_the_step_could_not_have_given_is_refused(
    memory: World, answers: dict[str, str]
) -> None:
    dying = await memory.process(handlers={paying.kind: FlowHandler(paying)})
    with pytest.raises(Died):
        await begin(dying, paying.bind())
    await dying.die()
    process = await memory.process(handlers={paying.kind: FlowHandler(paying)})
    with pytest.raises(InvalidInput, match="the answer of 'pay' must be int, as its step declares"):
        await process.resume(action="continue", answers=answers)
    run = await process.resume(action="continue", answers={"pay": 5})
    assert run.context["flow.result"] == 5
