"""What mypy infers of a flow: `make types` checks every `assert_type` here, and none is Any."""

from __future__ import annotations

import inspect
from typing import assert_type

from examples.flow.site import Notes, Page, build, page, pay, picture, research
from onward import GraphResult, Onward, agent, each, flow, gather, graph


@flow
async def typed(topic: str) -> int:
    """Never run: only its types are looked at."""
    notes = assert_type(await research(topic), Notes)
    both = assert_type(await gather(page(notes, "a"), picture("b")), tuple[Page, str])
    assert_type(await each(picture, notes.facts), list[str])
    assert_type(await pay(both[0].name.count("a")), str)
    assert_type(await build(topic), list[str])
    assert_type(await agent("Write.", tools=[page, "read_file"]), str)
    assert_type(await agent("Note it.", returns=Notes), Notes)
    assert_type(await agent("Note them.", returns=list[Notes]), list[Notes])
    assert_type(await gather(agent("a"), agent("b", returns=Page)), tuple[str, Page])
    assert_type(await graph("site.dot", {"topic": topic}), GraphResult)
    assert_type(await gather(graph("a.dot"), page(notes, "b")), tuple[GraphResult, Page])
    assert_type(await each(graph, ["a.dot", "b.dot"]), list[GraphResult])
    return 1


async def call(app: Onward) -> None:
    assert_type(await app.call(typed.bind("x")), int)
    assert_type(await app.call(build.bind("x"), key="order-17"), list[str])


def test_flows_and_steps_keep_the_names_and_signatures_of_their_functions() -> None:
    assert inspect.signature(research).parameters.keys() == {"topic"}
    assert (typed.__name__, typed.__doc__) == ("typed", "Never run: only its types are looked at.")
