"""Continue on: a run that stopped continues behind its last checkpoint, with everything it knew."""

from __future__ import annotations

from onward.engine.stop import StopSwitch
from onward.handlers.port import StepContext
from onward.model.events import AttemptFailed, StepStatus
from onward.model.result import Result
from onward.model.run import RunStatus
from tests.conformance.faults import Died, Fault
from tests.conformance.handlers import Act
from tests.world import Process, World, line

BRANCHING = """digraph branching {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  classify [prompt="which?"]
  choose [shape=diamond]
  bug [prompt="reproduce"]
  bug_fix [prompt="fix"]
  feature [prompt="design"]
  feature_build [prompt="build"]
  start -> classify -> choose
  choose -> bug [condition="context.kind=bug"]
  choose -> feature [condition="context.kind=feature"]
  bug -> bug_fix -> exit
  feature -> feature_build -> exit
}"""


def asks_to_stop(stop: StopSwitch, result: Result | None = None) -> Act:
    """An act during which somebody presses Ctrl-C."""

    async def act(step: StepContext) -> Result:
        stop.request("signal")
        return result or Result.success()

    return act


async def paused_after(
    world: World, node: str, source: str, script: dict[str, list[Act]] | None = None
) -> Process:
    """A process at whose run `run` somebody pressed Ctrl-C during `node`."""
    stop = StopSwitch()
    acts = {**(script or {}), node: [asks_to_stop(stop, _result(script, node))]}
    process = await world.process(acts)
    run = await process.start(source, stop=stop)
    assert (run.status, run.reason) == (RunStatus.PAUSED, "signal")
    return process


def _result(script: dict[str, list[Act]] | None, node: str) -> Result | None:
    act = (script or {}).get(node, [None])[0]
    return act if isinstance(act, Result) else None


async def test_resume_from_checkpoint(world: World) -> None:
    """S3-2: three nodes, stopped after the second: the third executes and the pipeline completes. D51."""
    await paused_after(world, "b", line("a", "b", "c"))
    assert world.ledger.steps == ["a#1", "b#1"]
    again = await world.process()
    run = await again.resume()
    assert run.status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1", "c#1"]
    assert await again.completed() == ["start#1", "a#1", "b#1", "c#1", "exit#1"]
    assert await again.is_sound()


async def test_resume_from_checkpoint_after_a_crash(world: World) -> None:
    """H14."""
    first = await world.process()
    first.store.fail(Fault.DIE_BEFORE, within=3)  # create; a finished and b started; b finished: lost
    try:
        await first.start(line("a", "b", "c"))
    except Died:
        await first.die()
    again = await world.process()
    assert (await again.resume()).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1", "b#1", "c#1"]
    assert await again.completed() == ["start#1", "a#1", "b#1", "c#1", "exit#1"]
    assert await again.is_sound()


async def test_the_checkpoint_names_the_next_node(world: World) -> None:
    """S3-2."""
    process = await paused_after(world, "b", line("a", "b", "c"))
    assert (await process.load()).run.next_node == "c"
    last = (await process.checkpoints())[-1]
    assert (last["current_node"], last["next_node_id"]) == ("b", "c")


async def test_a_checkpoint_has_every_field_that_resuming_needs(world: World) -> None:
    """S3-4."""
    process = await paused_after(world, "b", line("a", "b", "c"))
    first, *_, last = await process.checkpoints()
    assert first["current_node"] is None
    assert first["next_node_id"] == "start"
    assert last["completed_nodes"] == ["start", "a", "b"]
    assert last["visited_outcomes"] == {"start": "success", "a": "success", "b": "success"}
    assert last["retry_counters"] == {}
    assert last["reroute_count"] == 0
    assert last["context"]["outcome"] == "success"


async def test_context_restored_on_resume(world: World) -> None:
    """D51."""
    told = {"text": "né", "number": 7, "share": 0.5, "flag": True, "nothing": None, "list": [1, {"deep": []}]}
    seen: list[dict[str, object]] = []

    async def look(step: StepContext) -> Result:
        seen.append(step.context)
        return Result.success()

    await paused_after(world, "b", line("a", "b", "c"), {"a": [Result(context_updates=told)]})
    again = await world.process({"c": [look]})
    run = await again.resume()
    assert {key: seen[0][key] for key in told} == told
    assert [type(seen[0][key]) for key in told] == [type(value) for value in told.values()]
    assert {key: run.context[key] for key in told} == told


async def test_the_inputs_of_a_run_are_there_after_a_resume(world: World) -> None:
    stop = StopSwitch()
    process = await world.process({"a": [asks_to_stop(stop)]})
    await process.start(line("a", "b"), stop=stop, inputs={"topic": "tides", "pages": 3})
    run = await (await world.process()).resume()
    assert (run.context["topic"], run.context["pages"]) == ("tides", 3)


async def test_completed_nodes_skipped(world: World) -> None:
    source = line("a", "b", "c", "d")
    await paused_after(world, "a", source)
    await paused_again(world, "b")
    await paused_again(world, "c")
    assert (await (await world.process()).resume()).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1", "c#1", "d#1"]


async def paused_again(world: World, node: str) -> None:
    stop = StopSwitch()
    process = await world.process({node: [asks_to_stop(stop)]})
    assert (await process.resume(stop=stop)).status is RunStatus.PAUSED


async def test_retry_counters_preserved(world: World) -> None:
    """One of two retries was used before the pause, so only one is left after the resume. O1."""
    stop = StopSwitch()
    process = await world.process({"b": [asks_to_stop(stop, Result.retry("not yet"))]})
    source = line("a", "b", b="max_retries=2")
    assert (await process.start(source, stop=stop)).status is RunStatus.PAUSED
    assert (await process.load()).run.retries == {"b": 1}
    again = await world.process({"b": [Result.retry("still not")]})
    run = await again.resume()
    assert (run.status, run.reason) == (RunStatus.FAILED, "step_failed")
    assert "max retries exceeded: still not" in run.detail
    assert world.ledger.attempts("b") == [1, 2, 3]


async def test_retry_counters_preserved_is_what_the_checkpoint_shows(world: World) -> None:
    process = await world.process({"b": [Result.retry("not yet"), Result.success()]})
    await process.start(line("a", "b", "c", b="max_retries=2"))
    shown = {point["current_node"]: point["retry_counters"] for point in await process.checkpoints()}
    assert shown["a"] == {}
    assert shown["b"] == {}, "a success resets the counter"
    failed = [event for event in await process.events() if isinstance(event, AttemptFailed)]
    assert [(event.attempt, event.status) for event in failed] == [(1, StepStatus.RETRY)]


async def test_a_failed_run_that_is_resumed_has_a_new_allowance_of_retries(world: World) -> None:
    process = await world.process({"a": [Result.retry("no")] * 2 + [Result.retry("no"), Result.success()]})
    source = line("a", a="max_retries=1")
    assert (await process.start(source)).status is RunStatus.FAILED
    assert world.ledger.attempts("a") == [1, 2]
    run = await process.resume()
    assert run.status is RunStatus.COMPLETED
    assert world.ledger.attempts("a") == [1, 2, 3, 4]
    assert (run.detail, run.ended_at_us is not None) == ("", True)


async def test_a_crashed_run_that_is_resumed_has_a_new_allowance_of_retries(world: World) -> None:
    """A person's resume opens it, after anything but a pause."""
    process = await world.process({"a": [Result.retry("no"), Died("here")]})
    try:
        await process.start(line("a", a="max_retries=1"))
    except Died:
        await process.die()
    again = await world.process({"a": [Result.retry("no")] * 2 + [Result.retry("no"), Result.success()]})
    assert (await again.load()).run.retries == {"a": 1}
    assert (await again.resume()).status is RunStatus.FAILED
    assert world.ledger.attempts("a") == [1, 2, 2, 3]


async def test_resume_branching(world: World) -> None:
    """Paused in the middle of a branch, the same branch goes on."""
    chosen = Result(context_updates={"kind": "feature"})
    await paused_after(world, "feature", BRANCHING, {"classify": [chosen]})
    again = await world.process()
    assert (await again.resume()).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["classify#1", "feature#1", "feature_build#1"]


async def test_resume_branching_goes_by_the_recorded_edge(world: World) -> None:
    """Stopped right before the decision, it falls as it would have fallen."""
    chosen = Result(context_updates={"kind": "bug"})
    await paused_after(world, "classify", BRANCHING, {"classify": [chosen]})
    again = await world.process()
    await again.resume()
    assert await again.completed() == ["start#1", "classify#1", "choose#1", "bug#1", "bug_fix#1", "exit#1"]


GOAL = """digraph goal {
  graph [retry_target=write]
  start [shape=Mdiamond]
  exit [shape=Msquare]
  write [prompt="write"]
  review [prompt="review", goal_gate=true, continue_on_fail=true]
  polish [prompt="polish"]
  start -> write -> review -> polish -> exit
}"""


async def test_goal_gates_after_resume(world: World) -> None:
    """S3-5: a gate that failed before the pause sends the run back when it reaches the exit after it."""
    await paused_after(world, "review", GOAL, {"review": [Result.fail("poor")]})
    again = await world.process({"review": [Result.fail("poor"), Result.success()]})
    run = await again.resume()
    assert run.status is RunStatus.COMPLETED
    assert world.ledger.steps == ["write#1", "review#1", "polish#1", "write#2", "review#2", "polish#2"]
    assert run.reroutes == 1
    assert (await again.checkpoints())[-1]["reroute_count"] == 1


async def test_goal_gates_after_resume_stay_passed(world: World) -> None:
    """K9."""
    await paused_after(world, "review", GOAL)
    assert (await (await world.process()).resume()).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["write#1", "review#1", "polish#1"]


async def test_a_run_that_crashed_in_its_first_step_can_be_resumed(world: World) -> None:
    """O4."""
    first = await world.process({"a": [Died("here")]})
    try:
        await first.start(line("a"))
    except Died:
        await first.die()
    again = await world.process()
    assert (await again.checkpoints())[0]["current_node"] is None
    assert (await again.resume()).status is RunStatus.COMPLETED
    assert world.ledger.attempts("a") == [1, 1]


async def test_resuming_many_times_keeps_the_log_linear(world: World) -> None:
    """B4-4."""
    stop = StopSwitch()
    nodes = [f"n{number}" for number in range(12)]
    process = await world.process({node: [asks_to_stop(stop)] for node in nodes})
    await process.start(line(*nodes), stop=stop)
    for _ in nodes[1:]:
        stop = StopSwitch()
        script: dict[str, list[Act]] = {node: [asks_to_stop(stop)] for node in nodes}
        await (await world.process(script)).resume(stop=stop)
    assert world.ledger.steps == [f"{node}#1" for node in nodes]
    sizes = [len(record.body) for record in await process.log()]
    assert max(sizes) < 1_000
    assert await process.is_sound()
