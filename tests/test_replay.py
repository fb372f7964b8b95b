"""Forks: a new run that shares another's log up to a checkpoint, and leaves the other exactly as it was."""

from __future__ import annotations

import asyncio

import pytest

from onward.engine.control.requests import ForkRequest
from onward.errors import InvalidInput, RunNotFound, UnknownHandler, UnstorableValue
from onward.handlers.port import StepContext
from onward.model.events import RunForked
from onward.model.ids import display_id
from onward.model.result import Result
from onward.model.run import FOLD_VERSION, RunStatus
from onward.store.port.log import Loaded
from onward.store.port.runs import RunQuery
from tests.conformance.handlers import Act, Doorway
from tests.world import Process, World, line

SOURCE = line("a", "b", "c")
LARGE = "0123456789" * 2_000


async def write_down(step: StepContext) -> Result:
    """Each node adds its name to what it was told, so that a path can be read off the context."""
    return Result.success(path=[*step.get("path", []), f"{step.node.id}{step.get('mark', '')}"])


WRITING: dict[str, list[Act]] = {node: [write_down] for node in "abc"}


async def finished(world: World) -> Process:
    """A process that has run `run` to its end; its context holds a small and a large value."""
    process = await world.process(WRITING)
    run = await process.start(SOURCE, inputs={"large": LARGE})
    assert run.status is RunStatus.COMPLETED
    return process


async def at(process: Process, node: str | None, run_id: str = "run") -> int:
    """The number of the newest checkpoint at which `node` had just finished."""
    found = [p for p in await process.checkpoints(run_id) if p["current_node"] == node]
    return int(found[-1]["seq"])


async def everything(process: Process, run_id: str = "run") -> tuple[Loaded | None, list[object]]:
    """A run byte for byte: its row, its snapshot and every record of its log."""
    loaded = await process.store.log.load(run_id, fold_version=FOLD_VERSION)
    return loaded, list(await process.log(run_id))


async def test_fork_from_checkpoint(world: World) -> None:
    """S3-11."""
    process = await finished(world)
    seq = await at(process, "a")
    forked = (await process.engine.fork("run", ForkRequest(seq, by="ann"))).run
    assert forked.id != "run"
    assert forked.status is RunStatus.QUEUED
    assert forked.parent is not None
    assert (forked.parent.run_id, forked.parent.seq) == ("run", seq)
    assert forked.context["path"] == ["a"]
    assert forked.next_node == "b"
    assert await process.completed(forked.id) == ["start#1", "a#1"]
    last = (await process.events(forked.id))[-1]
    assert isinstance(last, RunForked)
    assert (last.parent, last.parent_seq, last.by) == ("run", seq, "ann")


async def test_fork_diverges(world: World) -> None:
    """K18, S3-11. The fork executes what comes after the checkpoint; the original is not changed."""
    process = await finished(world)
    before = await everything(process)
    forked = (
        await process.engine.fork("run", ForkRequest(await at(process, "a"), changes={"mark": "!"}))
    ).run
    world.ledger.calls.clear()
    run = await process.resume(forked.id)
    assert run.status is RunStatus.COMPLETED
    assert world.ledger.steps == ["b#1", "c#1"]
    assert run.context["path"] == ["a", "b!", "c!"]
    assert await everything(process) == before
    assert (await process.load()).run.context["path"] == ["a", "b", "c"]
    assert await process.is_sound()
    assert await process.is_sound(run.id)


async def test_fork_shares_history_and_continues_its_chain(world: World) -> None:
    process = await finished(world)
    seq = await at(process, "b")
    forked = (await process.engine.fork("run", ForkRequest(seq))).run
    await process.resume(forked.id)
    own, parents = await process.log(forked.id), await process.log()
    assert list(own[:seq]) == list(parents[:seq])
    assert [record.seq for record in own] == list(range(1, len(own) + 1))
    assert {record.run_id for record in own[:seq]} == {"run"}
    assert {record.run_id for record in own[seq:]} == {forked.id}


async def test_fork_from_checkpoint_stores_only_what_is_its_own(world: World) -> None:
    """What a fork costs does not depend on how long the log behind it is. K18."""
    process = await finished(world)
    forked = (await process.engine.fork("run", ForkRequest(await at(process, "c")))).run
    own = [record for record in await process.log(forked.id) if record.run_id == forked.id]
    assert [record.kind for record in own] == ["RunForked"]
    assert len(own[0].body) < 300


async def test_a_fork_has_an_id_and_a_display_id_of_its_own(world: World) -> None:
    """O13: a fork that is called like its parent cannot be told from it."""
    process = await finished(world)
    forked = (await process.engine.fork("run", ForkRequest(1))).run
    shown = await process.shown(forked.id)
    assert shown["display_id"] == display_id(forked.id) != display_id("run")
    assert [found.row.id for found in await process.store.runs.find(display_id("run"))] == ["run"]


async def test_a_fork_shows_where_it_came_from(world: World) -> None:
    """K18."""
    process = await finished(world)
    seq = await at(process, "b")
    forked = (await process.engine.fork("run", ForkRequest(seq))).run
    assert (await process.shown(forked.id))["parent"] == {"run": "run", "seq": seq}
    assert (await process.shown())["parent"] is None


async def test_a_fork_at_the_creation_begins_from_the_start(world: World) -> None:
    process = await finished(world)
    forked = (await process.engine.fork("run", ForkRequest(1, changes={"mark": "?"}))).run
    run = await process.resume(forked.id)
    assert run.context["path"] == ["a?", "b?", "c?"]
    assert run.context["large"] == LARGE
    completed = await process.completed(run.id)
    assert completed == ["start#1", "a#1", "b#1", "c#1", "exit#1"]


async def test_a_fork_of_a_fork_reads_through_both(world: World) -> None:
    process = await finished(world)
    child = (await process.engine.fork("run", ForkRequest(await at(process, "a"), changes={"mark": "+"}))).run
    await process.resume(child.id)
    grandchild = (
        await process.engine.fork(
            child.id, ForkRequest(await at(process, "b", child.id), changes={"mark": "-"})
        )
    ).run
    run = await process.resume(grandchild.id)
    assert run.context["path"] == ["a", "b+", "c-"]
    assert run.context["large"] == LARGE
    assert {record.run_id for record in await process.log(run.id)} == {"run", child.id, run.id}
    assert run.parent is not None
    assert run.parent.run_id == child.id
    assert all([await process.is_sound(run_id) for run_id in ("run", child.id, run.id)])


async def test_a_fork_of_a_fork_below_its_own_beginning_is_a_fork_of_the_shared_part(world: World) -> None:
    process = await finished(world)
    seq = await at(process, "a")
    child = (await process.engine.fork("run", ForkRequest(await at(process, "b")))).run
    again = (await process.engine.fork(child.id, ForkRequest(seq))).run
    run = await process.resume(again.id)
    assert run.context["path"] == ["a", "b", "c"]
    assert await process.is_sound(run.id)


async def test_a_run_can_be_forked_while_it_is_running(world: World) -> None:
    door = Doorway()
    process, other = await world.process({**WRITING, "c": [door]}), await world.process(WRITING)
    driving = asyncio.create_task(process.start(SOURCE))
    await door.entered()
    forked = (await other.engine.fork("run", ForkRequest(await at(other, "b")))).run
    assert (await other.resume(forked.id)).context["path"] == ["a", "b", "c"]
    door.open()
    assert (await driving).status is RunStatus.COMPLETED
    assert await process.is_sound()


async def test_a_fork_does_not_inherit_what_was_asked_of_its_parent(world: World) -> None:
    door = Doorway()
    process, other = await world.process({"b": [door]}), await world.process()
    driving = asyncio.create_task(process.start(SOURCE))
    await door.entered()
    await other.engine.pause("run")
    door.open()
    assert (await driving).status is RunStatus.PAUSED
    forked = (await other.engine.fork("run", ForkRequest(await at(other, "b")))).run
    assert (await other.resume(forked.id)).status is RunStatus.COMPLETED
    assert (await other.load()).run.status is RunStatus.PAUSED


async def test_a_failed_run_can_be_forked_before_its_failure(world: World) -> None:
    process = await world.process({**WRITING, "b": [Result.fail("no"), write_down]})
    assert (await process.start(SOURCE)).status is RunStatus.FAILED
    forked = (await process.engine.fork("run", ForkRequest(await at(process, "a")))).run
    assert (forked.reason, forked.detail) == ("", "")
    assert (await process.load()).run.status is RunStatus.FAILED


@pytest.mark.parametrize("seq", [-1, 0, 2, 4, 10_000])
async def test_an_event_that_is_no_checkpoint_is_refused_before_anything_is_written(
    world: World, seq: int
) -> None:
    """O13: nothing is left of a fork that was refused."""
    process = await finished(world)
    before = await everything(process)
    with pytest.raises(
        InvalidInput, match=f"event {seq} of run run is not a checkpoint|the checkpoint is {seq}"
    ):
        await process.engine.fork("run", ForkRequest(seq))
    assert await everything(process) == before
    assert len(await process.store.runs.list(RunQuery())) == 1


async def test_a_fork_of_an_unknown_run_is_refused(world: World) -> None:
    process = await world.process()
    with pytest.raises(RunNotFound):
        await process.engine.fork("nobody", ForkRequest(1))


async def test_a_fork_that_could_not_run_is_refused_before_it_exists(world: World) -> None:
    """O13: whatever would refuse the fork when it runs, refuses it before it is made."""
    process = await world.process()
    await process.start(line("a", a="type=work"))
    elsewhere = await world.process(handlers={})
    with pytest.raises(UnknownHandler, match="'work'"):
        await elsewhere.engine.fork("run", ForkRequest(1))
    with pytest.raises(UnstorableValue):
        await process.engine.fork("run", ForkRequest(1, changes={"when": object()}))
    assert len(await process.store.runs.list(RunQuery())) == 1


async def test_a_fork_keeps_its_parents_pipeline_whatever_became_of_the_file(world: World) -> None:
    process = await finished(world)
    forked = (await process.engine.fork("run", ForkRequest(1))).run
    assert forked.pipeline_hash == (await process.load()).run.pipeline_hash
