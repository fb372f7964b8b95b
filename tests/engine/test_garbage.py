"""What a run leaves in memory when it is over: nothing."""

from __future__ import annotations

import gc

import pytest

from onward.engine.control.requests import StartRequest
from onward.model.run import RunStatus
from onward.pipeline.build import Pipeline
from tests.world import Process, World, line

BRANCHES = (
    "digraph b { start [shape=Mdiamond]; exit [shape=Msquare]; fan [shape=component]; "
    "join [shape=tripleoctagon]; a [type=work]; b [type=work]; "
    "start -> fan; fan -> a -> join; fan -> b -> join; join -> exit }"
)


@pytest.mark.parametrize("source", [line("a", "b", "c"), BRANCHES], ids=["line", "branches"])
async def test_a_run_that_is_over_leaves_nothing_for_the_garbage_collector(world: World, source: str) -> None:
    """A cycle for every run keeps its state until a collection, which then walks through all that lives."""
    process = await world.process()
    pipeline = process.engine.sources.prepare(source, "<test>")
    await process.engine.start(pipeline, StartRequest())
    found = [await garbage_of_ten(process, pipeline) for _ in range(3)]
    # What tests before this one left comes to light once; what runs leave would be there every time.
    assert min(found) < 10, f"not one object for each run: {found}"


async def garbage_of_ten(process: Process, pipeline: Pipeline) -> int:
    """How many objects the collector finds after ten runs."""
    gc.collect()
    gc.disable()
    try:
        for _ in range(10):
            assert (await process.engine.start(pipeline, StartRequest())).run.status is RunStatus.COMPLETED
        return gc.collect()
    finally:
        gc.enable()
