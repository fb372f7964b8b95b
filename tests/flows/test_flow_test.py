"""FlowTest: flows without a database, and continued from every place of their history."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

import pytest

from onward.errors import FlowFailed, StepFailed
from onward.flows.agents import agent
from onward.flows.branches import each, gather
from onward.flows.define import flow, step
from onward.flows.graphs import graph
from onward.flows.values import now
from onward.flows.waits import ask, sleep
from onward.testing.flows import FlowTest


@dataclass
class Order:
    id: str
    cents: int


@step
async def charge(order: Order) -> str:
    raise AssertionError("no test reaches the bank")


@step
async def pack(item: str) -> str:
    return f"{item} in a box"


@flow
async def ship(order: Order) -> list[str]:
    receipt, boxes = await gather(charge(order), each(pack, ["lamp", "chair"]))
    await sleep("2d")
    if (await ask("Ship it?")).choice != "yes":
        return []
    return [receipt, *boxes, str(now() < now())]


ORDER = Order("o-17", 500)
PLAYED = FlowTest(answers={"Ship it?": "yes"}, steps={charge: "receipt 1"})


async def test_a_flow_runs_without_a_database_a_bank_or_two_days() -> None:
    assert await PLAYED.run(ship.bind(ORDER)) == ["receipt 1", "lamp in a box", "chair in a box", "False"]
    assert set(PLAYED.calls) == {
        *("gather.0/charge", "gather.1/each.0/pack", "gather.1/each.1/pack", "sleep", "ask"),
    }


async def test_a_flow_is_continued_from_every_place_of_its_history() -> None:
    """F23"""
    assert await PLAYED.check_replays(ship.bind(ORDER)) == 5


async def test_a_flow_that_depends_on_something_else_is_caught_with_its_place() -> None:
    dice = iter(range(1_000))

    @flow
    async def careless() -> str:
        first = await pack(f"item {next(dice)}")
        return first + await pack("second")

    with pytest.raises(AssertionError, match=r"after 'pack', the flow fails: .*'pack' was called with"):
        await FlowTest().check_replays(careless.bind())


async def test_an_exception_is_raised_in_place_of_a_step() -> None:
    test = FlowTest(steps={charge: ValueError("declined")})
    with pytest.raises(FlowFailed, match="ValueError: declined"):
        await test.run(ship.bind(ORDER))


async def test_a_flow_that_fails_shows_the_line_that_raised_and_names_no_database() -> None:
    @step
    async def divide(number: int) -> int:
        return 1 // number

    @flow
    async def careless() -> int:
        return await divide(0)

    with pytest.raises(FlowFailed, match="ZeroDivisionError") as failed:
        await FlowTest().run(careless.bind())
    assert "return 1 // number" in str(failed.value)
    assert "onward show" not in str(failed.value)
    assert failed.value.reason == "step_failed"


async def test_a_question_without_an_answer_is_named() -> None:
    with pytest.raises(AssertionError, match="the flow asks 'Ship it\\?', and the test has no answer"):
        await FlowTest(steps={"charge": "receipt"}).run(ship.bind(ORDER))


async def test_a_step_that_really_waits_keeps_its_timeout_and_the_time_of_the_flow() -> None:
    """The clock of the test jumped while the step waited, so its timeout ended it at once."""

    @step(timeout="2s")
    async def fetch() -> str:
        await asyncio.sleep(0.02)
        return "fetched"

    @step
    def weigh() -> str:
        threading.Event().wait(0.02)
        return "weighed"

    @flow
    async def real() -> list[str]:
        before = now()
        found = await gather(fetch(), weigh(), each(pack, ["lamp"]))
        return [*map(str, found), str(now() == before)]

    played = FlowTest(steps={pack: lambda item: item})
    assert await played.run(real.bind()) == ["fetched", "weighed", "['lamp']", "True"]
    assert await played.check_replays(real.bind()) == 3


async def test_graphs_are_played_by_their_keys_or_else_by_what_they_are_called_with() -> None:
    @flow
    async def shop() -> list[str]:
        made = await graph("site.dot", {"topic": "lamps"})
        again = await graph("site.dot", {"topic": "kites"}, name="again")
        try:
            await graph("broken.dot")
        except StepFailed as error:
            return [made["said"], again["said"], error.text]
        return []

    played = FlowTest(
        graphs={
            "site.dot": lambda inputs: {"said": f"about {inputs['topic']}"},
            "again": {"said": "again"},
            "broken.dot": ValueError("no paper"),
        }
    )
    assert await played.run(shop.bind()) == ["about lamps", "again", "no paper"]
    assert await played.check_replays(shop.bind()) == 3


async def test_a_graph_that_is_not_played_runs_as_it_is() -> None:
    passing = "digraph p { start [shape=Mdiamond]; exit [shape=Msquare]; start -> exit }"

    @flow
    async def real() -> str:
        return str((await graph(passing, {"topic": "lamps"}))["topic"])

    assert await FlowTest().run(real.bind()) == "lamps"
    assert await FlowTest().check_replays(real.bind()) == 2


async def test_an_agent_is_played_by_its_key_before_its_name() -> None:
    @flow
    async def asking() -> list[str]:
        return [await agent("First?"), await agent("Second?")]

    played = FlowTest(steps={"agent": "any", "agent#2": "the second"})
    assert await played.run(asking.bind()) == ["any", "the second"]


async def test_people_answer_the_questions_of_graphs_that_run_as_they_are() -> None:
    asking = """digraph asking {
      start [shape=Mdiamond]; exit [shape=Msquare]; ask [shape=hexagon, label="Go?"]
      start -> ask; ask -> exit [label="yes"]; ask -> ask [label="no"]
    }"""

    @flow
    async def real() -> str:
        return str((await graph(asking))["human.gate.label"])

    assert await FlowTest(answers={"Go?": "yes"}).run(real.bind()) == "yes"
    with pytest.raises(AssertionError, match="which waits for an answer; the test has no answer"):
        await FlowTest().run(real.bind())


async def test_the_failure_of_a_flow_is_one_sentence_that_ends_once() -> None:
    with pytest.raises(FlowFailed) as failed:
        await FlowTest(steps={charge: ValueError("declined.")}).run(ship.bind(ORDER))
    told = str(failed.value).partition("\n")[0]
    assert told.endswith(
        " failed (step_failed): step flow#1: step 'gather.0/charge' failed: ValueError: declined."
    )
    assert " is failed" not in told
