"""Registered pipelines: checked and stored under names, and runs that are started by those."""

from __future__ import annotations

from pathlib import Path

import pytest

from onward.engine.control.requests import Resume, StartRequest
from onward.engine.control.retention import Collector, Policy
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput, InvalidPipeline, PipelineNotFound, Refused
from onward.model.events import RunCreated, StepStarted
from onward.model.ids import Wanted
from onward.model.result import Result
from onward.model.run import Run, RunStatus
from onward.operations.here.database import check_installation
from onward.operations.local.operations import LocalOperations
from onward.operations.local.submit import terms_of
from onward.operations.requests import (
    AddPipeline,
    CheckPipeline,
    EnablePipeline,
    ForkRun,
    GetPipeline,
    GetRun,
    ListPipelines,
    RemovePipeline,
    SubmitRun,
    SubmitRuns,
)
from onward.replies.database import PipelineAdded
from onward.store.memory.adapter import MemoryStore
from tests.world import Process, World, line

FIRST, SECOND = line("a"), line("a", "b")
RESTARTING = """digraph again {
  start [shape=Mdiamond]; exit [shape=Msquare]; a [prompt="do it"]; b [prompt="do it"]
  start -> a
  a -> b [condition="outcome=success", loop_restart=true]
  a -> exit [condition="outcome=fail"]
  b -> exit
}"""


MANAGER = """digraph parent { start [shape=Mdiamond]; exit [shape=Msquare]
  manage [shape=house, stack.child_dotfile="child"]
  start -> manage -> exit
}"""


def of(process: Process) -> LocalOperations:
    return LocalOperations(process.engine, process.clock)


async def add(
    process: Process, source: str = FIRST, name: str | None = "site", **how: object
) -> PipelineAdded:
    request = AddPipeline(source=source, file="site.dot", name=name, by="ann", **how)  # type: ignore[arg-type]
    return await of(process).pipelines.add_pipeline(request)


async def execute(process: Process) -> str:
    """Execute the run whose turn it is, as a worker does."""
    taken = await process.engine.take(StopSwitch())
    assert taken is not None
    return (await taken[1]).run.status.value


async def collected(process: Process) -> int:
    """How many blobs are deleted when all that is old enough goes."""
    process.clock.advance(10 * 86_400)
    done = await Collector(process.store, process.clock, None, pytest.fail).collect(
        Policy(older_than_s=10**9)
    )
    return done.swept.blobs


async def managed(process: Process, name: str) -> Run:
    """The child of a run of this name, when both have ended."""
    pipeline = await process.engine.registry.find(Wanted(name))
    ended = await process.engine.start(pipeline, StartRequest(run_id="run"))
    assert ended.run.status is RunStatus.COMPLETED, ended.run.detail
    (child,) = [
        event.child
        for event in await process.events()
        if isinstance(event, StepStarted) and event.child is not None
    ]
    return (await process.load(child)).run


# -- adding --------------------------------------------------------------------------------------------


async def test_a_pipeline_is_added_listed_and_shown_with_who_and_when(world: World) -> None:
    process = await world.process()
    added = await add(process, path="/somewhere/site.dot")
    assert (added["name"], added["version"], added["enabled"], added["is_new"]) == ("site", 1, 1, True)
    listed = await of(process).pipelines.list_pipelines(ListPipelines())
    (one,) = listed["pipelines"]
    assert (one["name"], one["enabled"], one["newest"], one["changed_by"]) == ("site", 1, 1, "ann")
    shown = await of(process).pipelines.show_pipeline(GetPipeline(name="site"))
    assert (shown["version"], shown["source"], shown["enabled"]) == (1, FIRST, 1)
    (version,) = shown["versions"]
    assert (version["added_by"], version["file"]) == ("ann", "/somewhere/site.dot")
    assert version["pipeline_hash"] == added["pipeline_hash"]
    assert version["added_at"] == one["changed_at"]


async def test_the_same_source_again_is_the_same_version_for_whoever_adds_it(world: World) -> None:
    one, two = await world.process(), await world.process()
    await add(one)
    two.clock.advance(5)
    again = await add(two)
    assert (again["version"], again["newest"], again["is_new"]) == (1, 1, False)


async def test_the_name_is_that_of_the_graph_unless_one_is_given(memory: World) -> None:
    process = await memory.process()
    assert (await add(process, name=None))["name"] == "line"
    unnamed = AddPipeline(source=FIRST.replace("digraph line", "digraph"), file="my site.dot")
    with pytest.raises(InvalidInput, match=r"its own name 'my site' cannot be .* with --name\.$"):
        await of(process).pipelines.add_pipeline(unnamed)


@pytest.mark.parametrize("name", ["", "-a", "a b", "a.b", "a/b", "a@1", "é", "x" * 101, "a\n", "\ud800"])
async def test_a_name_that_could_be_a_file_or_a_flag_is_refused(memory: World, name: str) -> None:
    process = await memory.process()
    with pytest.raises(InvalidInput, match="cannot be the name of a registered pipeline"):
        await add(process, name=name)
    assert (await of(process).pipelines.list_pipelines(ListPipelines()))["pipelines"] == []


async def test_a_pipeline_with_errors_is_not_added(memory: World) -> None:
    process = await memory.process()
    with pytest.raises(InvalidPipeline, match=r"site\.dot:\d+:\d+: error"):
        await add(process, FIRST.replace("-> exit", "-> nowhere"))
    assert (await of(process).pipelines.list_pipelines(ListPipelines()))["pipelines"] == []


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ('m [shape=house, stack.child_dotfile="child.dot"]', 'write its name: stack.child_dotfile="child"'),
        ('graph [stack.child_dotfile="/abs/a b.dot"]; m [shape=house]', 'stack.child_dotfile="NAME"'),
        ('graph [workspace="."]; m [prompt=x]', "workspace of the graph is relative"),
        (
            'm [shape=house, stack.child_dotfile="child", stack.child_workdir="place"]',
            "stack.child_workdir of node 'm' is relative",
        ),
    ],
)
async def test_a_pipeline_that_relies_on_the_directory_of_its_file_is_refused(
    memory: World, written: str, says: str
) -> None:
    process = await memory.process()
    source = f"digraph p {{ start [shape=Mdiamond]; exit [shape=Msquare]; {written}; start -> m -> exit }}"
    with pytest.raises(InvalidPipeline) as refused:
        await add(process, source)
    assert says in str(refused.value)


async def test_a_version_that_is_only_stored_is_started_by_its_number(memory: World) -> None:
    process = await memory.process()
    await add(process)
    stored = await add(process, SECOND, enable=False)
    assert (stored["version"], stored["enabled"]) == (2, 1)
    one = await of(process).start.submit_run(SubmitRun(pipeline="site"))
    two = await of(process).start.submit_run(SubmitRun(pipeline="site@2"))
    assert [made["run"]["pipeline_version"] for made in (one, two)] == [1, 2]


# -- choosing and removing -----------------------------------------------------------------------------


async def test_new_runs_get_the_version_that_is_enabled(world: World) -> None:
    process = await world.process()
    await add(process)
    await add(process, SECOND)
    changed = await of(process).pipelines.enable_pipeline(EnablePipeline(name="site", version=1, by="bob"))
    assert (changed["enabled"], changed["newest"], changed["changed_by"]) == (1, 2, "bob")
    made = await of(process).start.submit_run(SubmitRun(pipeline="site", run_id="run"))
    assert (made["run"]["pipeline"], made["run"]["pipeline_version"]) == ("site", 1)
    assert await execute(process) == "completed"
    assert world.ledger.steps == ["a#1"]


async def test_what_is_not_registered_is_refused_with_the_names_that_are_near(world: World) -> None:
    process = await world.process()
    await add(process)
    pipelines = of(process).pipelines
    with pytest.raises(PipelineNotFound, match=r"no pipeline is registered as 'sits'; did you mean site\?$"):
        await pipelines.show_pipeline(GetPipeline(name="sits"))
    with pytest.raises(PipelineNotFound, match=r"'wholly-other'; `onward pipelines` lists those that are\.$"):
        await pipelines.remove_pipeline(RemovePipeline(name="wholly-other"))
    with pytest.raises(PipelineNotFound, match=r"site has no version 2; its newest is 1\.$"):
        await pipelines.enable_pipeline(EnablePipeline(name="site", version=2))
    with pytest.raises(PipelineNotFound, match="has no version 9"):
        await of(process).start.submit_run(SubmitRun(pipeline="site@9"))


@pytest.mark.parametrize("version", [0, -1, 2**63, True, "1"])
def test_a_number_that_no_version_can_have_is_refused(version: object) -> None:
    with pytest.raises(InvalidInput, match=r"version is .*, which is not a whole number from 1"):
        EnablePipeline(name="site", version=version)  # type: ignore[arg-type]


async def test_a_removed_name_starts_no_run_and_existing_ones_keep_their_source(world: World) -> None:
    process = await world.process()
    await add(process)
    await of(process).start.submit_run(SubmitRun(pipeline="site", run_id="run"))
    removed = await of(process).pipelines.remove_pipeline(RemovePipeline(name="site", by="bob"))
    assert (removed["name"], removed["newest"], removed["removed_by"]) == ("site", 1, "bob")
    for word in ("site", "site@1"):
        with pytest.raises(PipelineNotFound, match="the pipeline site was removed by bob"):
            await of(process).start.submit_run(SubmitRun(pipeline=word))
    with pytest.raises(PipelineNotFound, match="was removed by bob"):
        await of(process).pipelines.remove_pipeline(RemovePipeline(name="site"))
    assert await collected(process) == 0
    assert await execute(process) == "completed"
    assert await process.is_sound()


async def test_gc_keeps_the_source_of_every_version_until_the_name_is_removed(world: World) -> None:
    process = await world.process()
    await add(process)
    await add(process, SECOND)
    assert await collected(process) == 0
    shown = await of(process).pipelines.show_pipeline(GetPipeline(name="site", version=1))
    assert shown["source"] == FIRST
    await of(process).pipelines.remove_pipeline(RemovePipeline(name="site"))
    assert await collected(process) == 2
    assert (await add(process, SECOND))["version"] == 2
    with pytest.raises(InvalidInput, match=r"the source of site@1 is missing .* --name site`\.$"):
        await of(process).start.submit_run(SubmitRun(pipeline="site@1"))
    with pytest.raises(InvalidInput, match="the source of site@1 is missing"):
        await of(process).pipelines.enable_pipeline(EnablePipeline(name="site", version=1))


async def test_lists_continue_after_their_cursor(memory: World) -> None:
    process = await memory.process()
    for name in ("a", "b", "c"):
        await add(process, name=name)
    pipelines = of(process).pipelines
    page = await pipelines.list_pipelines(ListPipelines(limit=2))
    assert ([one["name"] for one in page["pipelines"]], page["cursor"]) == (["a", "b"], "b")
    rest = await pipelines.list_pipelines(ListPipelines(limit=2, cursor=page["cursor"]))
    assert ([one["name"] for one in rest["pipelines"]], rest["cursor"]) == (["c"], None)


# -- runs ----------------------------------------------------------------------------------------------


async def test_a_run_keeps_the_version_that_it_began_with(world: World) -> None:
    """What is enabled or removed later is no changed file: a resume asks nothing."""
    process = await world.process({"a": [Result.fail("not yet"), Result.success()]})
    await add(process, line("a", a="max_retries=0"))
    await of(process).start.submit_run(SubmitRun(pipeline="site", run_id="run"))
    assert await execute(process) == "failed"
    await add(process, SECOND)
    await of(process).pipelines.remove_pipeline(RemovePipeline(name="site"))
    other = await world.process()
    assert (await other.resume()).status.value == "completed"
    assert world.ledger.steps == ["a#1", "a#1"]
    shown = await of(other).look.get_run(GetRun(run="run"))
    assert (shown["pipeline"], shown["pipeline_version"], shown["path"]) == ("site", 1, None)


async def test_whoever_accepts_changes_is_told_that_a_registered_version_has_none(memory: World) -> None:
    process = await memory.process({"a": [Result.fail("not yet"), Result.success()]})
    await add(process, line("a", a="max_retries=0"))
    await of(process).start.submit_run(SubmitRun(pipeline="site", run_id="run"))
    assert await execute(process) == "failed"
    await add(process, SECOND)
    told: list[str] = []
    await process.engine.resume("run", Resume(accept_changes=True), tell=told.append)
    assert told == [
        "the run keeps site@1, the version that it started with; start a new run for another version."
    ]
    assert (await process.load()).run.pipeline_hash == process.pipeline(line("a", a="max_retries=0")).hash


async def test_a_fork_and_a_restart_keep_name_and_version(world: World) -> None:
    process = await world.process()
    await add(process, RESTARTING)
    await of(process).start.submit_run(SubmitRun(pipeline="site", run_id="run"))
    await execute(process)
    run = (await process.load()).run
    assert run.restarted_as is not None
    created = (await process.events(run.restarted_as))[0]
    assert isinstance(created, RunCreated)
    assert (created.pipeline, created.pipeline_version) == ("site", 1)
    forked = await of(process).start.fork_run(ForkRun(run="run", checkpoint=1, run_id="fork"))
    assert (forked["pipeline"], forked["pipeline_version"]) == ("site", 1)


async def test_a_run_of_a_file_has_no_version(memory: World) -> None:
    process = await memory.process()
    made = await of(process).start.submit_run(SubmitRun(source=FIRST, run_id="run"))
    assert made["run"]["pipeline_version"] is None
    (created, *_) = await process.events()
    assert isinstance(created, RunCreated)
    assert created.pipeline_version is None


async def test_a_run_has_a_source_or_a_name(memory: World) -> None:
    with pytest.raises(InvalidInput, match="give only one of them"):
        SubmitRun(source=FIRST, pipeline="site")
    process = await memory.process()
    with pytest.raises(InvalidInput, match="cannot be the name"):
        await of(process).start.submit_run(SubmitRun(pipeline="site.dot"))


async def test_a_submission_under_a_key_is_the_same_whatever_is_enabled_meanwhile(world: World) -> None:
    process = await world.process()
    await add(process)
    asking = SubmitRun(pipeline="site", key="order-7")
    first = await of(process).start.submit_run(asking)
    await add(process, SECOND)
    again = await of(process).start.submit_run(asking)
    assert again["run"]["id"] == first["run"]["id"]
    assert again["run"]["pipeline_version"] == 1
    with pytest.raises(Refused) as refused:
        await of(process).start.submit_run(SubmitRun(pipeline="site@2", key="order-7"))
    assert refused.value.code == "key_reused"


async def test_a_repeated_submission_finds_its_run_though_the_name_was_removed(world: World) -> None:
    process = await world.process()
    await add(process)
    asking = SubmitRun(pipeline="site", key="order-7")
    first = await of(process).start.submit_run(asking)
    await of(process).pipelines.remove_pipeline(RemovePipeline(name="site"))
    assert (await of(process).start.submit_run(asking))["run"]["id"] == first["run"]["id"]
    many = await of(process).start.submit_runs(SubmitRuns(runs=(asking,)))
    assert [run["id"] for run in many["runs"]] == [first["run"]["id"]]
    with pytest.raises(PipelineNotFound, match="was removed"):
        await of(process).start.submit_run(SubmitRun(pipeline="site", key="order-8"))
    with pytest.raises(Refused) as refused:
        await of(process).start.submit_run(SubmitRun(pipeline="gone", key="order-7"))
    assert refused.value.code == "key_reused"


def test_a_keyed_request_without_a_name_is_the_same_as_before_there_were_names() -> None:
    """Its body is stored with the run; one that is sent again by a newer version must still be the same."""
    body = terms_of(SubmitRun(source=FIRST, key="k")).body
    assert body is not None
    assert b'"pipeline"' not in body


async def test_many_runs_by_a_name_get_one_version(world: World) -> None:
    process = await world.process()
    await add(process)
    asked = tuple(SubmitRun(pipeline="site", run_id=f"run-{number}") for number in range(3))
    made = await of(process).start.submit_runs(SubmitRuns(runs=asked))
    assert {run["pipeline"] for run in made["runs"]} == {"site"}
    for run in made["runs"]:
        assert (await process.load(run["id"])).run.pipeline_version == 1


# -- managers ------------------------------------------------------------------------------------------


async def test_a_registered_manager_runs_a_registered_child_with_the_version_enabled_then(
    world: World,
) -> None:
    process = await world.process()
    await add(process, FIRST, "child")
    await add(process, SECOND, "child")
    await add(process, MANAGER, "boss")
    run = await managed(process, "boss")
    assert (run.pipeline, run.pipeline_version, run.path) == ("child", 2, None)
    assert world.ledger.steps == ["a#1", "b#1"]


async def test_a_manager_may_name_the_version_of_its_child(memory: World) -> None:
    process = await memory.process()
    await add(process, FIRST, "child")
    await add(process, SECOND, "child")
    await add(process, MANAGER.replace('"child"', '"child@1"'), "boss")
    assert (await managed(process, "boss")).pipeline_version == 1


async def test_a_registered_manager_never_takes_a_file_for_its_child(
    memory: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory of whichever process executes it has nothing to do with the pipeline."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "child").write_text(FIRST)
    process = await memory.process()
    await add(process, MANAGER, "boss")
    ended = await process.engine.start(
        await process.engine.registry.find(Wanted("boss")), StartRequest(run_id="run")
    )
    assert ended.run.status is RunStatus.FAILED
    assert "no pipeline is registered as 'child'" in ended.run.detail


# -- the doctor ----------------------------------------------------------------------------------------


async def test_the_doctor_counts_registered_pipelines_and_finds_a_missing_source(memory: World) -> None:
    process = await memory.process()
    assert "pipelines" not in {one["subject"] for one in await check_installation(process.store, None)}
    added = await add(process)
    (said,) = [one for one in await check_installation(process.store, None) if one["subject"] == "pipelines"]
    assert (said["ok"], said["says"]) == (True, "1 pipeline registered")
    assert isinstance(process.store.store, MemoryStore)
    process.store.store.database.blobs.pop(added["pipeline_hash"])
    (said,) = [one for one in await check_installation(process.store, None) if one["subject"] == "pipelines"]
    assert not said["ok"]
    assert "the source of site is missing" in said["says"]


async def test_a_source_is_checked_without_being_stored(memory: World) -> None:
    process = await memory.process()
    pipelines = of(process).pipelines
    good = await pipelines.check_pipeline(CheckPipeline(source=FIRST))
    assert (good["is_valid"], good["name"]) == (True, "line")
    bad = await pipelines.check_pipeline(CheckPipeline(source="digraph { a -> }", file="mine.dot"))
    assert (bad["is_valid"], bad["name"]) == (False, None)
    assert {found["severity"] for found in bad["diagnostics"]} >= {"error"}
    assert {found["file"] for found in bad["diagnostics"]} == {"mine.dot"}
    assert (await pipelines.list_pipelines(ListPipelines()))["pipelines"] == []
