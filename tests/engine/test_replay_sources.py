"""A fork of a run whose pipeline file was edited, and the step before which it is forked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onward.engine.control.requests import ForkRequest, Resume, StartRequest
from onward.engine.log import RequestTerms
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput, Refused, StepNotFound
from onward.model.events import PipelineChanged, RunForked
from onward.model.result import Result
from onward.model.run import Run, RunStatus
from onward.store.port.runs import RunQuery
from tests.world import Process, World, line

SOURCE = line("a", "b", "c")
EDITED = line("a", "b", "c", b='label="better"')
LOOP = """digraph loop {
  start [shape=Mdiamond]; exit [shape=Msquare]
  a [prompt="a"]; b [prompt="b"]
  start -> a -> b
  b -> a [condition="outcome=fail"]
  b -> exit [condition="outcome=success"]
}"""
FAN = """digraph fan {
  start [shape=Mdiamond]; exit [shape=Msquare]
  before [prompt="x"]; fan [shape=component]; join [shape=tripleoctagon]
  left [prompt="l"]; left2 [prompt="l2"]; right [prompt="r"]; last [prompt="z"]
  start -> before -> fan
  fan -> left -> left2 -> join
  fan -> right -> join
  join -> last -> exit
}"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "story.dot"
    path.write_text(SOURCE)
    return path


def rewrite(path: Path, source: str) -> None:
    path.write_text(source)


def remove(path: Path) -> None:
    path.unlink()


async def finished(world: World, file: Path, script: Any = None) -> Process:
    """A process that has run the pipeline in the file to its end."""
    process = await world.process(script)
    folded = await process.engine.start(process.engine.sources.read(str(file)), StartRequest(run_id="run"))
    assert folded.run.is_final or folded.run.status is RunStatus.FAILED
    world.ledger.calls.clear()
    return process


async def refusal(process: Process, fork: ForkRequest) -> Refused:
    """How the fork is refused; nothing is left of it."""
    with pytest.raises(Refused) as refused:
        await process.engine.fork("run", fork)
    assert len(await process.store.runs.list(RunQuery())) == 1
    assert refused.value.code == "pipeline_changed"
    return refused.value


async def replayed(process: Process, fork: ForkRequest) -> Run:
    """The fork, executed until it stops."""
    made = await process.engine.fork("run", fork)
    return (await process.engine.resume(made.run.id, Resume(original=True))).run


async def fork_seq(process: Process, step: str) -> int:
    """The checkpoint at which a fork before `step` begins."""
    parent = (await process.engine.fork("run", ForkRequest(from_step=step))).run.parent
    assert parent is not None
    return parent.seq


async def seq_after(process: Process, *nodes: str) -> int:
    """The checkpoint at which exactly these nodes have finished, in this order."""
    (found,) = [p for p in await process.checkpoints() if p["completed_nodes"] == list(nodes)]
    return int(found["seq"])


# -- an edited file ------------------------------------------------------------------------------------


async def test_a_replay_of_an_edited_file_is_refused_with_both_hashes_and_what_changed(
    world: World, file: Path
) -> None:
    process = await finished(world, file)
    was = (await process.load()).run.pipeline_hash
    rewrite(file, EDITED)
    refused = await refusal(process, ForkRequest(await seq_after(process, "start", "a")))
    is_now = process.engine.sources.read(str(file)).hash
    assert refused.details == {"was": was, "is": is_now, "changed": ["b"]}
    assert "replay with --accept-changes, or with --original" in str(refused)


async def test_an_accepted_change_is_in_the_log_of_the_fork_and_used(world: World, file: Path) -> None:
    process = await finished(world, file)
    before = await process.log()
    rewrite(file, line("a", "b", "d", "c"))
    run = await replayed(process, ForkRequest(from_step="b", accept_changes=True, by="ann"))
    assert run.status is RunStatus.COMPLETED
    assert world.ledger.steps == ["b#1", "d#1", "c#1"]
    own = [event for event in await process.events(run.id) if isinstance(event, RunForked | PipelineChanged)]
    assert [type(event).__name__ for event in own] == ["RunForked", "PipelineChanged"]
    assert isinstance(own[1], PipelineChanged)
    assert (own[1].pipeline_hash, own[1].before, own[1].by) == (
        process.engine.sources.read(str(file)).hash,
        (await process.load()).run.pipeline_hash,
        "ann",
    )
    assert await process.log() == before
    assert await process.is_sound(run.id)


async def test_a_replay_with_the_original_uses_the_stored_source(world: World, file: Path) -> None:
    process = await finished(world, file)
    rewrite(file, line("z"))
    run = await replayed(process, ForkRequest(1, original=True))
    assert world.ledger.steps == ["a#1", "b#1", "c#1"]
    assert run.pipeline_hash == (await process.load()).run.pipeline_hash


async def test_a_replay_of_a_file_that_is_gone_uses_the_stored_source_and_says_so(
    world: World, file: Path
) -> None:
    process = await finished(world, file)
    remove(file)
    told: list[str] = []
    made = await process.engine.fork("run", ForkRequest(1), tell=told.append)
    assert told == [f"{file} no longer exists; continuing with the source stored with the run."]
    assert made.run.pipeline_hash == (await process.load()).run.pipeline_hash


async def test_a_change_that_lacks_a_step_before_the_checkpoint_is_not_accepted(
    world: World, file: Path
) -> None:
    process = await finished(world, file)
    rewrite(file, line("b", "c"))
    refused = await refusal(process, ForkRequest(from_step="b", accept_changes=True))
    assert refused.details["missing"] == ["a"]
    assert "replay with --original" in str(refused)


async def test_a_change_may_lack_a_step_that_only_comes_after_the_checkpoint(
    world: World, file: Path
) -> None:
    """The fork has no step of it, whatever its parent has."""
    process = await finished(world, file)
    rewrite(file, line("a", "b"))
    await replayed(process, ForkRequest(from_step="b", accept_changes=True))
    assert world.ledger.steps == ["b#1"]


async def test_a_changed_file_that_is_not_valid_is_refused_before_a_fork_exists(
    world: World, file: Path
) -> None:
    process = await finished(world, file)
    rewrite(file, line("a", "b", "c", b="type=nobody"))
    with pytest.raises(Exception, match="nobody"):
        await process.engine.fork("run", ForkRequest(1, accept_changes=True))
    assert len(await process.store.runs.list(RunQuery())) == 1


async def test_a_fork_asked_again_under_its_key_gets_the_first_answer_whatever_became_of_the_file(
    world: World, file: Path
) -> None:
    process = await finished(world, file)
    fork = ForkRequest(from_step="b", new_id="fork", terms=RequestTerms("key-1", b"one"))
    first = await process.engine.fork("run", fork)
    rewrite(file, EDITED)
    again = await process.engine.fork("run", fork)
    assert (again.is_repeat, again.run) == (True, first.run)


# -- before a step -------------------------------------------------------------------------------------


async def test_a_fork_before_a_node_begins_at_its_last_visit(world: World) -> None:
    process = await world.process({"b": [Result.fail("no"), Result.success()]})
    assert (await process.start(LOOP)).status is RunStatus.COMPLETED
    assert await fork_seq(process, "b") == await seq_after(process, "start", "a", "b", "a")
    assert await fork_seq(process, "b#1") == await seq_after(process, "start", "a")
    assert await fork_seq(process, "a") == await seq_after(process, "start", "a", "b")
    assert await fork_seq(process, "start") == 1


async def test_a_fork_before_a_failed_step_runs_it_again(world: World) -> None:
    process, fixed = await world.process({"b": [Result.fail("no")]}), await world.process()
    assert (await process.start(SOURCE)).status is RunStatus.FAILED
    world.ledger.calls.clear()
    assert (await replayed(fixed, ForkRequest(from_step="b"))).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["b#1", "c#1"]


async def test_a_fork_before_a_step_of_a_branch_begins_where_it_has_not_run(world: World) -> None:
    process = await world.process()
    assert (await process.start(FAN)).status is RunStatus.COMPLETED
    assert await fork_seq(process, "left") == await seq_after(process, "start", "before")
    world.ledger.calls.clear()
    assert (await replayed(process, ForkRequest(from_step="left2"))).status is RunStatus.COMPLETED
    again = [step.rpartition("/")[2] for step in world.ledger.steps]
    assert "left2#1" in again
    assert "left#1" not in again
    assert again[-1] == "last#1"


async def test_a_fork_before_the_step_that_comes_next_begins_at_the_end(world: World) -> None:
    stop = StopSwitch()

    async def act(step: object) -> Result:
        stop.request("signal")
        return Result.success()

    process = await world.process({"a": [act]})
    assert (await process.start(SOURCE, stop=stop)).status is RunStatus.PAUSED
    assert await fork_seq(process, "b") == await seq_after(process, "start", "a")
    with pytest.raises(StepNotFound, match=r"not started a step 'c'; it has start#1, a#1"):
        await process.engine.fork("run", ForkRequest(from_step="c"))


async def test_a_step_that_no_checkpoint_leads_to_is_refused(world: World) -> None:
    """`resume --from` had the run continue there: a fork at the checkpoint before would go elsewhere."""
    process = await world.process({"b": [Result.fail("no")]})
    assert (await process.start(SOURCE)).status is RunStatus.FAILED
    await process.resume(from_node="c")
    with pytest.raises(InvalidInput, match="c#1 started because the run was resumed with --from"):
        await process.engine.fork("run", ForkRequest(from_step="c"))


async def test_a_fork_that_names_no_place_is_told_the_checkpoints(world: World) -> None:
    process = await world.process()
    await process.start(SOURCE)
    seqs = [point["seq"] for point in await process.checkpoints()]
    named = ["its start", "after start#1", "after a#1", "after b#1", "after c#1", "after exit#1"]
    told = ", ".join(f"{seq} ({what})" for seq, what in reversed(list(zip(seqs, named, strict=True))))
    with pytest.raises(InvalidInput) as refused:
        await process.engine.fork("run", ForkRequest())
    assert str(refused.value) == (
        "name the point where the fork of run run starts: --from STEP, or --checkpoint SEQ; it has the "
        f"checkpoints {told}."
    )


async def test_of_many_checkpoints_the_newest_are_named(world: World) -> None:
    process = await world.process()
    await process.start(line(*[f"n{number}" for number in range(20)]))
    with pytest.raises(InvalidInput) as refused:
        await process.engine.fork("run", ForkRequest())
    assert str(refused.value).count("after ") == 10
    assert "`onward checkpoints run` lists them all" in str(refused.value)


async def test_a_checkpoint_and_a_step_contradict_each_other(world: World) -> None:
    process = await world.process()
    await process.start(SOURCE)
    with pytest.raises(InvalidInput, match="contradict"):
        await process.engine.fork("run", ForkRequest(1, from_step="b"))
