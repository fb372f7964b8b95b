"""Every door prepares a pipeline in the same way: a resumed run asks for the models of a fresh one (O8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onward.engine.control.requests import ForkRequest, StartRequest
from onward.engine.stop import StopSwitch
from onward.errors import Refused
from onward.model.result import Result
from tests.world import World

STYLED = """digraph styled {
    goal = "Ship"
    model_stylesheet = "* { llm_model: small } .deep { llm_model: large; reasoning_effort: low }"
    start [shape=Mdiamond]
    exit [shape=Msquare]
    a [prompt="Plan $goal"]
    b [prompt="Build $goal", class=deep]
    start -> a -> b -> exit
}"""
EXPECTED = [("a", "Plan Ship", "small", "high"), ("b", "Build Ship", "large", "low")]

Seen = list[tuple[str, str, str, str]]


def looking(seen: Seen, stop: StopSwitch | None = None) -> dict[str, list[Any]]:
    """Handlers that note what they were asked for; with a switch, the first also asks for a pause."""

    async def look(step: Any) -> Result:
        node = step.node
        seen.append((node.id, step.prompt, node.llm_model, node.reasoning_effort))
        if stop is not None:
            stop.request("signal")
        return Result.success()

    return {"a": [look], "b": [look]}


async def test_run_resume_and_replay_ask_for_the_same_models(world: World, tmp_path: Path) -> None:
    """O8: from the file, from the stored source, and from a fork."""
    file = tmp_path / "styled.dot"
    file.write_text(STYLED)
    fresh: Seen = []
    process = await world.process(looking(fresh))
    await process.engine.start(process.engine.sources.read(str(file)), StartRequest(run_id="fresh"))
    assert fresh == EXPECTED

    resumed: Seen = []
    stop = StopSwitch()
    first = await world.process(looking(resumed, stop))
    await first.engine.start(first.engine.sources.read(str(file)), StartRequest(run_id="run"), stop)
    assert resumed == EXPECTED[:1]
    file.unlink()
    second = await world.process(looking(resumed))
    await second.resume()
    assert resumed == EXPECTED

    replayed: Seen = []
    third = await world.process(looking(replayed))
    forked = (await third.engine.fork("run", ForkRequest(1))).run
    await third.resume(forked.id)
    assert replayed == EXPECTED


async def test_an_edited_stylesheet_is_a_changed_pipeline(world: World, tmp_path: Path) -> None:
    """O8, K6: a resume does not silently go on with other models."""
    file = tmp_path / "styled.dot"
    file.write_text(STYLED)
    stop = StopSwitch()
    first = await world.process(looking([], stop))
    await first.engine.start(first.engine.sources.read(str(file)), StartRequest(run_id="run"), stop)
    file.write_text(STYLED.replace("large", "larger"))
    second = await world.process()
    sources, run = second.engine.sources, (await second.engine.journal.load("run")).run
    with pytest.raises(Refused, match="changed: b"):
        await sources.to_continue(run, accept_changes=False, original=False)
    accepted, _ = await sources.to_continue(run, accept_changes=True, original=False)
    original, _ = await sources.to_continue(run, accept_changes=False, original=True)
    assert [graph.nodes["b"].llm_model for graph in (accepted.graph, original.graph)] == ["larger", "large"]
