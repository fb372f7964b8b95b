"""How runs end: at the exit, where the graph ends, or stopped because no edge can be taken."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from onward.engine.control.requests import ForkRequest, StartRequest
from onward.errors import Refused
from onward.model.result import Result
from onward.model.run import RunStatus
from tests.conformance.faults import Died, Fault
from tests.world import Process, World

STUCK = """digraph nowhere {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  a [prompt="a"]
  b [prompt="b"]
  start -> a
  a -> b [condition="context.flag=on"]
  b -> exit
}"""

MENDED = STUCK.replace("context.flag=on", "outcome=success")


async def stuck(world: World, tmp_path: Path, run_id: str = "run") -> tuple[Process, Path]:
    """A run, made from a file, whose first step has finished and has no edge that can be taken."""
    file = tmp_path / "nowhere.dot"
    file.write_text(STUCK)
    process = await world.process()
    run = (
        await process.engine.start(process.engine.sources.read(str(file)), StartRequest(run_id=run_id))
    ).run
    assert (run.status, run.reason) == (RunStatus.FAILED, "no_way_on")
    return process, file


async def test_conditions_that_are_all_false_lead_nowhere(world: World, tmp_path: Path) -> None:
    """O18, I38: an edge whose condition does not hold is never taken, and the run has not succeeded."""
    process, _ = await stuck(world, tmp_path)
    assert world.ledger.steps == ["a#1"]
    shown = await process.shown()
    assert shown["recoverable"]
    assert "a -> b needs context.flag=on. It found context.flag (not set)" in shown["detail"]
    assert await process.is_sound()


async def test_a_corrected_edge_continues_a_run_without_repeating_its_step(
    world: World, tmp_path: Path
) -> None:
    """I38: finished work is never repeated."""
    process, file = await stuck(world, tmp_path)
    with pytest.raises(Refused, match="--accept-changes"):
        await process.resume()
    file.write_text(MENDED)
    run = await process.resume(accept_changes=True)
    assert run.status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1"]
    assert await process.is_sound()


@pytest.mark.parametrize("fault", [Fault.DIE_BEFORE, Fault.DIE_AFTER])
async def test_a_death_after_a_corrected_edge_was_taken_repeats_nothing(
    world: World, tmp_path: Path, fault: Fault
) -> None:
    """At every write of the resume: the step that finished is executed once, and so is the next."""
    for number in range(1, 4):
        run_id = f"run-{number}"
        process, file = await stuck(world, tmp_path, run_id)
        file.write_text(MENDED)
        process.store.fail(fault, within=number)
        with suppress(Died):
            await process.resume(run_id, accept_changes=True)
        await process.die()
        last = await world.process()
        if not (await last.load(run_id)).run.is_final:
            await last.resume(run_id, accept_changes=True)
        assert (await last.load(run_id)).run.status is RunStatus.COMPLETED
        assert await last.completed(run_id) == ["start#1", "a#1", "b#1", "exit#1"]
        assert [call.step for call in world.ledger.calls if call.run_id == run_id].count("a#1") == 1


async def test_a_retry_executes_the_step_without_a_way_on_again(world: World, tmp_path: Path) -> None:
    process, _ = await stuck(world, tmp_path)
    process.agent.script["a"] = [Result(context_updates={"flag": "on"})]
    run = await process.resume(action="retry")
    assert run.status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "a#2", "b#1"]


async def test_a_fork_with_another_value_takes_the_edge_that_it_opens(world: World, tmp_path: Path) -> None:
    """The step that finished is not executed again, in the fork either."""
    process, _ = await stuck(world, tmp_path)
    last = (await process.checkpoints())[-1]["seq"]
    await process.engine.fork("run", ForkRequest(last, changes={"flag": "on"}, new_id="fork"))
    assert (await process.resume("fork")).status is RunStatus.COMPLETED
    await process.engine.fork("run", ForkRequest(last, changes={"flag": "off"}, new_id="other"))
    assert (await process.resume("other")).reason == "no_way_on"
    assert world.ledger.steps == ["a#1", "b#1"]
    assert (await process.load()).run.reason == "no_way_on", "the run itself stays as it is"


async def test_a_run_that_ends_at_a_node_without_edges_says_where(world: World) -> None:
    """I38: completed, but not at the exit."""
    process = await world.process()
    source = STUCK.replace("b -> exit", 'start -> exit [condition="outcome=fail"]').replace(
        "context.flag=on", ""
    )
    run = await process.start(source)
    assert (run.status, run.ended_at_node) == (RunStatus.COMPLETED, "b")
    shown = await process.shown()
    assert (shown["reason"], shown["ended_at_node"]) == ("dead_end", "b")
    assert shown["detail"] == "ended at b, which has no outgoing edges and is not the exit"
    assert await process.is_sound()
