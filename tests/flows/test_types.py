"""What is inferred of a flow: mypy (`make types`) and pyright check every `assert_type` here."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import assert_type
from uuid import UUID

import pytest

from examples.flow.site import Notes, Page, build, page, pay, picture, research
from onward import (
    GraphResult,
    Onward,
    Run,
    StepFailed,
    agent,
    ask,
    current,
    each,
    flow,
    gather,
    graph,
    now,
    patch,
    step,
    uuid,
)
from onward.testing.flows import FlowTest

ROOT = Path(__file__).parents[2]
PYRIGHT = ROOT / "web/node_modules/pyright/index.js"


@step(name="count", retries=2, timeout="1m")
async def counted(text: str, *, letter: str = "a") -> dict[str, int]:
    """A step with options."""
    return {letter: text.count(letter)}


@flow
async def typed(topic: str) -> int:
    """Never run: only its types are looked at."""
    notes = assert_type(await research(topic), Notes)
    both = assert_type(await gather(page(notes, "a"), picture("b")), tuple[Page, str])
    assert_type(await each(picture, notes.facts), list[str])
    assert_type(await each(build, notes.facts), list[list[str]])
    assert_type(await pay(both[0].name.count("a")), str)
    assert_type(await counted("banana", letter="n"), dict[str, int])
    assert_type(await build(topic), list[str])
    assert_type(await agent("Write.", tools=[page, "read_file"]), str)
    assert_type(await agent("Note it.", returns=Notes), Notes)
    assert_type(await agent("Note them.", returns=list[Notes]), list[Notes])
    assert_type(await gather(agent("a"), agent("b", returns=Page)), tuple[str, Page])
    assert_type(await graph("site.dot", {"topic": topic}), GraphResult)
    assert_type(await gather(graph("a.dot"), page(notes, "b")), tuple[GraphResult, Page])
    assert_type(await each(graph, ["a.dot", "b.dot"]), list[GraphResult])
    assert_type((await ask("Ship it?")).choice, str)
    assert_type((now(), uuid(), patch("new")), tuple[datetime, UUID, bool])
    assert_type(current().random.random(), float)
    return 1


@flow(version="2")
async def failing(topic: str) -> None:
    """Never run, either."""
    notes = Notes(topic, [])
    pair = await gather(page(notes, "a"), picture("b"), return_exceptions=True)
    assert_type(pair, tuple[Page | Exception, str | Exception])
    several = await gather(*map(picture, notes.facts), return_exceptions=True)
    assert_type(several, tuple[str | Exception, ...])
    assert_type(await each(picture, notes.facts, return_exceptions=True), list[str | Exception])
    try:
        await research(topic)
    except StepFailed as error:
        assert_type((error.key, error.type, error.text), tuple[str, str, str])


async def call(app: Onward) -> None:
    assert_type(await app.call(typed.bind("x")), int)
    assert_type(await app.call(build.bind("x"), key="order-17"), list[str])
    assert_type(await app.run(typed.bind("x")), Run)
    assert_type(await app.submit(typed.bind(topic="x")), Run)
    assert_type(await FlowTest(steps={research: Notes("x", [])}).run(typed.bind("x")), int)


def test_flows_and_steps_keep_the_names_and_signatures_of_their_functions() -> None:
    assert inspect.signature(research).parameters.keys() == {"topic"}
    assert (typed.__name__, typed.__doc__) == ("typed", "Never run: only its types are looked at.")


@pytest.mark.slow
@pytest.mark.skipif(not PYRIGHT.exists(), reason="pyright comes with the tools of the page: make web")
def test_pyright_infers_all_types_of_flows_and_of_the_examples() -> None:
    """In its strict mode, in which nothing may be unknown; `[tool.pyright]` says which files."""
    from hatch_build import node_and_npm

    node, _ = node_and_npm()
    words = [node, str(PYRIGHT), "--pythonpath", sys.executable, "--outputjson"]
    told = json.loads(subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stdout)
    found = [
        f"{one['file']}:{one['range']['start']['line'] + 1}: {one['message']}"
        for one in told["generalDiagnostics"]
    ]
    assert found == []
    assert told["summary"]["filesAnalyzed"] >= 4
