"""Which definition a run goes on under: the one it started with, unless a person accepted another."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from onward.engine.control.requests import ForkRequest, Resume, StartRequest
from onward.engine.stop import StopSwitch
from onward.errors import HistoryCorrupt, InvalidPipeline, Refused
from onward.model.events import PipelineChanged
from onward.model.result import Result
from onward.model.run import Run, RunStatus
from onward.pipeline.graph import Graph
from onward.pipeline.rules.check import RULES
from onward.pipeline.rules.rule import Problem, Rule, Subject
from onward.pipeline.source import Severity
from onward.store.port.log import Loaded, RunLog
from onward.store.port.retention import Blobs
from tests.conformance.faults import Around, FaultyStore
from tests.world import Process, World, line


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "story.dot"
    rewrite(path, line("a", "b"))
    return path


def rewrite(path: Path, source: str) -> None:
    path.write_text(source)


def remove(path: Path) -> None:
    path.unlink()


async def paused(world: World, file: Path, **start: Any) -> Process:
    """A process whose run, made from a file, was stopped in its first step."""
    stop = StopSwitch()
    stop.request("signal")
    process = await world.process(**start)
    await process.engine.start(process.engine.sources.read(str(file)), StartRequest(run_id="run"), stop)
    return process


async def paused_after_a(world: World, file: Path) -> Process:
    stop = StopSwitch()

    async def act(step: object) -> Result:
        stop.request("signal")
        return Result.success()

    process = await world.process({"a": [act]})
    await process.engine.start(process.engine.sources.read(str(file)), StartRequest(run_id="run"), stop)
    return process


async def refusal(process: Process, **how: Any) -> Refused:
    before = await process.log()
    with pytest.raises(Refused) as refused:
        await process.resume(**how)
    assert await process.log() == before
    assert refused.value.code == "pipeline_changed"
    return refused.value


async def test_an_edited_file_is_refused_with_both_hashes_and_what_changed(world: World, file: Path) -> None:
    """K6, S3-8."""
    process = await paused(world, file)
    was = (await process.load()).run.pipeline_hash
    rewrite(file, line("a", "b", b='label="another"'))
    refused = await refusal(process)
    is_now = process.engine.sources.read(str(file)).hash
    assert refused.details == {"was": was, "is": is_now, "changed": ["b"]}
    assert was[:12] in str(refused)
    assert is_now[:12] in str(refused)
    assert "changed: b" in str(refused)
    assert world.ledger.steps == []


async def test_an_accepted_change_is_recorded_and_used(world: World, file: Path) -> None:
    """K6: from then on the run belongs to the new definition, wherever it is resumed."""
    process = await paused_after_a(world, file)
    rewrite(file, line("a", "b", "c"))
    run = await process.resume(accept_changes=True, by="ann")
    assert run.status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1", "c#1"]
    (changed,) = [event for event in await process.events() if isinstance(event, PipelineChanged)]
    assert (changed.pipeline_hash, changed.by) == (run.pipeline_hash, "ann")
    assert changed.pipeline_hash == process.engine.sources.read(str(file)).hash
    assert (await process.engine.sources.stored(run)).source == line("a", "b", "c")


async def test_a_change_that_removes_a_recorded_step_is_not_accepted(world: World, file: Path) -> None:
    """K6: the override path checks that every recorded node still exists."""
    process = await paused_after_a(world, file)
    rewrite(file, line("b", "c"))
    refused = await refusal(process, accept_changes=True)
    assert refused.details["missing"] == ["a"]


async def test_the_original_is_used_when_asked_for(world: World, file: Path) -> None:
    """O7: the source itself is stored with the run."""
    process = await paused(world, file)
    rewrite(file, line("z"))
    assert (await process.resume(original=True)).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1"]


async def test_a_file_that_is_gone_is_no_obstacle(world: World, file: Path) -> None:
    """O7: the stored source is used, and the person is told so."""
    process = await paused(world, file)
    remove(file)
    told: list[str] = []
    folded = await process.engine.resume("run", Resume(), tell=told.append)
    assert folded.run.status is RunStatus.COMPLETED
    assert told == [f"{file} no longer exists; continuing with the source stored with the run."]


async def test_a_file_that_is_there_and_the_same_needs_no_words(world: World, file: Path) -> None:
    process = await paused(world, file)
    told: list[str] = []
    await process.engine.resume("run", Resume(), tell=told.append)
    assert told == []


async def test_a_change_that_does_not_parse_changes_nothing(world: World, file: Path) -> None:
    process = await paused(world, file)
    rewrite(file, "digraph { start -> ")
    before = await process.log()
    for accept in (False, True):
        with pytest.raises(InvalidPipeline):
            await process.resume(accept_changes=accept)
    assert await process.log() == before


async def test_a_pipeline_that_changed_between_check_and_claim_is_checked_again(
    world: World, file: Path
) -> None:
    """The checks hold for the run that is claimed, not for the one that was looked at. H13."""
    process = await paused_after_a(world, file)

    class AcceptedMeanwhile(Around[RunLog]):
        """Somebody accepts a change and stops again, just after this process looked for the first time."""

        async def load(self, run_id: str, *, fold_version: int) -> Loaded | None:
            loaded = await self.part.load(run_id, fold_version=fold_version)
            if self.store.calls.count("log.load") == 1:
                rewrite(file, line("a", "b", "d"))
                stop = StopSwitch()
                stop.request("signal")
                await process.engine.resume("run", Resume(accept_changes=True), stop)
            return loaded

    slow = await world.process(wrap=partial(FaultyStore, log=AcceptedMeanwhile))
    run = await slow.resume(original=True)
    assert run.status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1", "d#1"], "the run's own definition is the one last accepted"
    assert (await slow.kinds()).count("PipelineChanged") == 1


def tightened(graph: Graph) -> Graph:
    """A transform that gives every node the same model, as a stylesheet would."""
    nodes = {name: node.with_attrs({"llm_model": "small"}) for name, node in graph.nodes.items()}
    return Graph(name=graph.name, attrs=graph.attrs, nodes=nodes, edges=graph.edges, file=graph.file)


async def test_transforms_and_checks_are_the_same_for_run_resume_and_replay(world: World) -> None:
    """O8: one way to prepare a definition, whichever door it comes through."""
    models: list[str] = []

    async def look(step: Any) -> Result:
        models.append(step.node.text("llm_model"))
        return Result.success()

    stop = StopSwitch()
    process = await world.process({"a": [look], "b": [look]}, transforms=[tightened])

    def interfere(run: Run, events: object) -> None:
        stop.request("signal")

    first = await world.process({"a": [look]}, transforms=[tightened], observe=interfere)
    await first.start(line("a", "b"), stop=stop)
    await process.resume()
    forked = (await process.engine.fork("run", ForkRequest(1))).run
    await process.resume(forked.id)
    assert models == ["small"] * 4


class Forgetful(Around[Blobs]):
    """A store that has lost what is kept by its content."""

    async def find(self, hash: str) -> bytes | None:
        return None


async def test_a_stored_source_that_is_missing_is_never_guessed(world: World) -> None:
    """O12, K7: fail closed, naming what is missing, and change nothing."""
    stop = StopSwitch()
    stop.request("signal")
    await (await world.process()).start(line("a"), stop=stop)
    process = await world.process(wrap=partial(FaultyStore, blobs=Forgetful))
    before = await process.log()
    with pytest.raises(HistoryCorrupt, match=r"the pipeline source .* is missing or damaged"):
        await process.resume()
    assert await process.log() == before


async def test_a_rule_that_came_after_a_run_began_does_not_hold_it_up(world: World, file: Path) -> None:
    """Whoever upgrades finds new rules: they are for what is started, not for what is under way."""
    await paused(world, file)

    def found(subject: Subject) -> Iterator[Problem]:
        yield Problem("nobody may name a node so any more", line=1, column=1)

    process = await world.process(rules=(*RULES, Rule("newer", Severity.ERROR, found)))
    with pytest.raises(InvalidPipeline, match="any more"):
        process.engine.sources.read(str(file))
    assert (await process.resume()).status is RunStatus.COMPLETED


@pytest.mark.parametrize("how", [{}, {"original": True}, {"accept_changes": True}])
async def test_the_file_does_not_stand_in_for_a_stored_source_that_is_missing(
    world: World, file: Path, how: dict[str, Any]
) -> None:
    """O12: whether it is the one that the run was made from cannot be told any more."""
    await paused(world, file)
    process = await world.process(wrap=partial(FaultyStore, blobs=Forgetful))
    before = await process.log()
    with pytest.raises(HistoryCorrupt, match=r"the pipeline source .* is missing or damaged"):
        await process.resume(**how)
    assert await process.log() == before
    assert world.ledger.steps == []


@pytest.mark.parametrize("source", [line("b", "c"), "digraph broken {"])
async def test_an_abort_needs_neither_the_file_nor_a_handler(world: World, file: Path, source: str) -> None:
    """It executes nothing, so nothing about what would be executed can stand in its way."""
    await paused(world, file)
    rewrite(file, source)
    other = await world.process(handlers={})
    assert (await other.resume(action="abort")).status is RunStatus.CANCELLED
    assert await other.is_sound()
