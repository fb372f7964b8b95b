"""A run that looks after another: linked, observed and steered. Whatever dies, both can go on."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from onward.engine.child import DEPTH_MAX
from onward.engine.control.requests import ForkRequest, Resume, StartRequest
from onward.engine.stop import StopSwitch
from onward.errors import RunNotFound
from onward.handlers.function import FunctionHandler
from onward.handlers.port import StepContext
from onward.model.events import (
    AttemptInterrupted,
    RunCancelled,
    RunCreated,
    RunPaused,
    SteeringGiven,
    StepFinished,
    StepStarted,
)
from onward.model.ids import display_id
from onward.model.result import Result
from onward.model.run import Gate, Run, RunStatus
from onward.store.port.store import Store
from onward.testing.clock import ManualClock
from tests.conformance.faults import WRITES, Died, Fault, FaultyStore
from tests.conformance.handlers import Doorway
from tests.engine.test_asking import FAN, asks, fan, held_once
from tests.world import Process, World, line, until

ASKING = """digraph child {
  start [shape=Mdiamond]; exit [shape=Msquare]
  a [prompt="do"]; b [prompt="do"]; ask [shape=hexagon, label="Go?"]
  start -> a -> ask
  ask -> b [label="[Y] yes"]; ask -> exit [label="[N] no"]; b -> exit
}"""


class Desk:
    """A directory with a parent's file and a child's, as people have them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.child(line("a", "b"))

    def child(self, source: str, name: str = "child.dot") -> None:
        (self.directory / name).write_text(source)

    def parent(
        self, manager: str = "", *, edges: str = "start -> manage -> after -> exit", graph: str = ""
    ) -> Path:
        path = self.directory / "parent.dot"
        path.write_text(
            "digraph parent {\n"
            f'  graph [stack.child_dotfile="child.dot", {graph}]\n'
            "  start [shape=Mdiamond]; exit [shape=Msquare]; after [prompt=do]\n"
            f"  manage [shape=house, {manager}]\n  {edges}\n}}"
        )
        return path


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "pipelines").mkdir()
    return Desk(tmp_path / "pipelines")


def still() -> ManualClock:
    """A clock that stands still, so that no cycle comes before the test wants it."""
    return ManualClock(autojump=False)


async def start(
    process: Process, path: Path, run_id: str = "run", *, stop: StopSwitch | None = None, **how: Any
) -> Run:
    pipeline = process.engine.sources.read(str(path))
    return (await process.engine.start(pipeline, StartRequest(run_id=run_id, **how), stop)).run


async def child_of(process: Process, run_id: str = "run", step: str = "manage#1") -> str:
    """The child that the parent's log names."""
    started = [event for event in await process.events(run_id) if isinstance(event, StepStarted)]
    (child,) = {event.child for event in started if event.step == step}
    assert child is not None
    return child


async def child_run(process: Process, run_id: str = "run", step: str = "manage#1") -> Run:
    return (await process.load(await child_of(process, run_id, step))).run


async def endless(step: StepContext) -> Result:
    await asyncio.Event().wait()
    raise AssertionError


async def stands(process: Process, run_id: str, status: RunStatus) -> None:
    """Until the run has this status."""
    for _ in range(20_000):
        if (await process.load(run_id)).run.status is status:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{run_id} never was {status}")


async def tick(clock: ManualClock, seconds: float = 1.0) -> None:
    """Let time go by, when heartbeat and manager have come to rest: a database must not miss its renewals."""
    for _ in range(5_000):
        await clock.until_idle()
        if clock.waiting >= 2:
            break
        await asyncio.sleep(0)
    clock.advance(seconds)
    for _ in range(20):
        await asyncio.sleep(0)


async def ticking(clock: ManualClock, running: asyncio.Task[Run], seconds: float = 1.0) -> Run:
    """Let time go by until the run has stopped."""
    for _ in range(5_000):
        if running.done():
            break
        await tick(clock, seconds)
    return await running


# -- a child that ends by itself -----------------------------------------------------------------------


async def test_a_manager_makes_a_child_drives_it_and_goes_on_when_it_has_completed(
    world: World, desk: Desk
) -> None:
    """D22, §9: the child is a run of its own; both logs name the other."""
    process = await world.process(clock=still())
    run = await start(process, desk.parent(), inputs={"ticket": 7, "tool.output": "old"})
    assert run.status is RunStatus.COMPLETED
    child = await child_run(process)
    assert child.status is RunStatus.COMPLETED
    assert (len(child.id), child.id != run.id) == (26, True)
    assert child.managed_by is not None
    assert (child.managed_by.run, child.managed_by.step) == ("run", "manage#1")
    assert [(call.run_id, call.step) for call in world.ledger.calls] == [
        (child.id, "a#1"),
        (child.id, "b#1"),
        ("run", "after#1"),
    ]
    assert child.context["ticket"] == 7
    assert "tool.output" not in child.context
    assert {key: run.context[f"stack.child.{key}"] for key in ("run", "status", "outcome", "steps")} == {
        "run": child.id,
        "status": "completed",
        "outcome": "success",
        "steps": 4,
    }
    assert await process.is_sound()
    assert await process.is_sound(child.id)


async def test_a_child_that_fails_fails_its_manager_and_says_why(world: World, desk: Desk) -> None:
    process = await world.process({"b": [Result.fail("no luck", retryable=False)]}, clock=still())
    run = await start(process, desk.parent())
    child = await child_run(process)
    assert (run.status, run.reason) == (RunStatus.FAILED, "step_failed")
    assert f"the child run {display_id(child.id)} failed: step b#1: no luck" in run.detail
    assert child.status is RunStatus.FAILED


async def test_a_child_without_a_way_on_fails_its_manager_with_what_its_edges_need(
    world: World, desk: Desk
) -> None:
    """I38: under the same pipeline it would stop at once, so its finished step is left alone."""
    desk.child(line("a", "b").replace("-> a -> b", '-> a; a -> b [condition="context.flag=on"]; b'))
    process = await world.process()
    run = await start(process, desk.parent("max_retries=1, manager.max_cycles=1000000"))
    assert (run.status, run.reason) == (RunStatus.FAILED, "step_failed")
    assert "a -> b needs context.flag=on" in run.detail
    assert world.ledger.steps == ["a#1"]
    assert (await child_run(process)).reason == "no_way_on"


async def test_a_failure_of_the_child_can_be_routed_by_what_was_observed(world: World, desk: Desk) -> None:
    """C17: `context.stack.child.status` is found though the key has no such prefix."""
    process = await world.process({"b": [Result.fail("no luck", retryable=False)]}, clock=still())
    edges = """start -> manage
      manage -> after [condition="outcome=fail && context.stack.child.status=failed"]
      manage -> exit; after -> exit"""
    run = await start(process, desk.parent(edges=edges))
    assert (run.status, run.outcomes["manage"]) == (RunStatus.COMPLETED, "fail")
    assert "after#1" in world.ledger.steps


async def test_trying_again_sends_the_same_child_on_from_where_it_failed(world: World, desk: Desk) -> None:
    script = {"b": [Result.fail("no luck", retryable=False), Result.success()]}
    process = await world.process(script)
    run = await start(process, desk.parent("max_retries=1, manager.max_cycles=1000000"))
    assert run.status is RunStatus.COMPLETED, run.detail
    assert world.ledger.steps == ["a#1", "b#1", "b#1", "after#1"]
    assert len([e for e in await process.events() if isinstance(e, StepStarted) and e.child]) == 2
    assert (await child_run(process)).status is RunStatus.COMPLETED


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (None, "cannot read the pipeline"),
        ("digraph broken {", "child.dot:1:"),
        ("digraph child { start [shape=Mdiamond]; a [type=nobody]; start -> a }", "terminal_node"),
    ],
)
async def test_a_child_that_cannot_be_read_fails_the_step_with_what_validate_says(
    world: World, desk: Desk, source: str | None, says: str
) -> None:
    path = desk.parent("max_retries=3")
    (desk.directory / "child.dot").unlink()
    if source is not None:
        desk.child(source)
    process = await world.process(clock=still())
    run = await start(process, path)
    assert (run.status, run.reason) == (RunStatus.FAILED, "step_failed")
    assert says in run.detail
    with pytest.raises(RunNotFound):
        await child_run(process)
    desk.child(line("a"))
    assert (await process.resume(original=True)).status is RunStatus.COMPLETED


async def test_a_node_may_name_another_child_than_the_graph_does(world: World, desk: Desk) -> None:
    desk.child(line("x"), "other.dot")
    process = await world.process(clock=still())
    await start(process, desk.parent('stack.child_dotfile="other.dot"'))
    assert world.ledger.steps == ["x#1", "after#1"]


async def test_every_visit_of_a_manager_has_a_child_of_its_own(world: World, desk: Desk) -> None:
    edges = """start -> manage -> after; after -> manage [condition="context.again=yes"]; after -> exit"""
    script = {"after": [Result.success(again="yes"), Result.success(again="no")]}
    process = await world.process(script, clock=still())
    assert (await start(process, desk.parent(edges=edges))).status is RunStatus.COMPLETED
    first, second = await child_of(process), await child_of(process, step="manage#2")
    assert first != second
    assert [call.run_id for call in world.ledger.calls if call.node == "a"] == [first, second]


async def test_a_manager_in_a_branch_works_beside_the_others(world: World, desk: Desk) -> None:
    edges = """fan [shape=component]; join [shape=tripleoctagon]; c [prompt=do]
      start -> fan; fan -> manage -> join; fan -> c -> join; join -> after -> exit"""
    process = await world.process(clock=still())
    run = await start(process, desk.parent(edges=edges))
    assert run.status is RunStatus.COMPLETED
    child = await child_run(process, step="fan#1.manage/manage#1")
    assert child.status is RunStatus.COMPLETED
    assert child.managed_by is not None
    assert child.managed_by.step == "fan#1.manage/manage#1"


async def test_a_child_may_manage_a_child_but_not_without_end(world: World, desk: Desk) -> None:
    desk.parent('stack.child_dotfile="grandchild.dot"').rename(desk.directory / "child.dot")
    desk.child(line("x"), "grandchild.dot")
    process = await world.process(clock=still())
    assert (await start(process, desk.parent())).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["x#1", "after#1", "after#1"]
    itself = desk.parent('stack.child_dotfile="parent.dot"')
    run = await start(process, itself, "deep")
    assert run.status is RunStatus.FAILED
    assert f"at most {DEPTH_MAX} deep" in run.detail


# -- time, conditions, instructions --------------------------------------------------------------------


async def test_the_stop_condition_ends_the_watch_with_success_and_the_child_with_it(
    world: World, desk: Desk
) -> None:
    door, clock = Doorway(), ManualClock(autojump=False)
    process = await world.process({"b": [door]}, clock=clock)
    path = desk.parent('manager.stop_condition="context.stack.child.node=b", manager.poll_interval=10s')
    running = asyncio.create_task(start(process, path))
    await door.entered()
    run = await ticking(clock, running)
    assert (run.status, run.outcomes["manage"]) == (RunStatus.COMPLETED, "success")
    child = await child_run(process)
    assert child.status is RunStatus.CANCELLED
    (cancelled,) = [e for e in await process.events(child.id) if isinstance(e, RunCancelled)]
    assert cancelled.by.startswith("manager")
    assert door.was_cancelled


async def test_a_stop_condition_sees_the_childs_own_values(world: World, desk: Desk) -> None:
    door, clock = Doorway(), ManualClock(autojump=False)
    process = await world.process({"a": [Result.success(score="high")], "b": [door]}, clock=clock)
    path = desk.parent('manager.stop_condition="stack.child.context.score=high"')
    running = asyncio.create_task(start(process, path))
    await door.entered()
    assert (await ticking(clock, running, 5)).status is RunStatus.COMPLETED


async def test_when_the_cycles_are_used_up_the_step_fails_and_the_child_is_cancelled(
    world: World, desk: Desk
) -> None:
    door, clock = Doorway(), ManualClock(autojump=False)
    process = await world.process({"a": [door]}, clock=clock)
    running = asyncio.create_task(start(process, desk.parent("manager.max_cycles=3, max_retries=5")))
    await door.entered()
    began = clock.awake_s()
    run = await ticking(clock, running)
    assert (run.status, run.reason) == (RunStatus.FAILED, "step_failed")
    assert "had not ended after 3 cycles (manager.max_cycles)" in run.detail
    assert "--from manage` starts another" in run.detail
    assert clock.awake_s() - began >= 3 * 45
    assert (await child_run(process)).status is RunStatus.CANCELLED
    door.open()
    assert (await process.resume(from_node="manage")).status is RunStatus.COMPLETED
    assert await child_of(process) != await child_of(process, step="manage#2")


async def test_a_time_limit_ends_the_child_too(world: World, desk: Desk) -> None:
    door, clock = Doorway(), ManualClock(autojump=False)
    process = await world.process({"a": [door]}, clock=clock)
    running = asyncio.create_task(start(process, desk.parent("timeout=60s")))
    await door.entered()
    run = await ticking(clock, running)
    assert run.status is RunStatus.FAILED
    assert "timed out" in run.detail
    assert (await child_run(process)).status is RunStatus.CANCELLED


async def test_a_manager_steers_the_next_agent_step_of_its_child(world: World, desk: Desk) -> None:
    desk.child(line("a", "b", "c"))
    doors, told = {name: Doorway() for name in "ab"}, dict[str, tuple[str, ...]]()
    asked: list[Any] = []

    async def instruct(step: StepContext) -> Result:
        asked.append(step.get("stack.child.node"))
        return Result.success(last_response="Be brief." if len(asked) == 1 else "")

    def noting(name: str) -> Any:
        async def act(step: StepContext) -> Result:
            told[name] = step.steering
            return await doors[name](step) if name in doors else Result.success()

        return act

    clock = ManualClock(autojump=False)
    script = {"manage": [instruct], **{name: [noting(name)] for name in "abc"}}
    process = await world.process(script, clock=clock)
    path = desk.parent('manager.actions="observe,steer,wait", prompt="Watch it", manager.poll_interval=10s')
    running = asyncio.create_task(start(process, path))
    await doors["a"].entered()
    child = await child_of(process)
    assert asked == []  # the first instruction comes when there was time to see something
    while not (await process.load(child)).run.steering:
        await tick(clock, 5)
    for _ in range(10):
        await tick(clock, 5)
    assert len(asked) == 1  # the child has not taken it yet
    doors["a"].open()
    await doors["b"].entered()
    while len(asked) < 2:
        await tick(clock, 5)
    doors["b"].open()
    assert (await ticking(clock, running)).status is RunStatus.COMPLETED
    assert told == {"a": (), "b": ("Be brief.",), "c": ()}
    assert asked[0] == "a"
    given = [e for e in await process.events(child) if isinstance(e, SteeringGiven)]
    assert [(e.text, e.by) for e in given] == [("Be brief.", "manager")]


async def test_a_model_that_cannot_instruct_does_not_disturb_the_child(world: World, desk: Desk) -> None:
    door, clock = Doorway(), ManualClock(autojump=False)
    process = await world.process({"a": [door], "manage": [RuntimeError("no model")]}, clock=clock)
    path = desk.parent('manager.actions=steer, prompt="Watch it", manager.poll_interval=10s')
    running = asyncio.create_task(start(process, path))
    await door.entered()
    while "manage#1" not in world.ledger.steps:
        await tick(clock, 5)
    door.open()
    assert (await running).status is RunStatus.COMPLETED
    (finished,) = [e for e in await process.events() if isinstance(e, StepFinished) and e.step == "manage#1"]
    assert "no instruction could be given: RuntimeError: no model" in finished.outcome.notes


async def test_an_instruction_reaches_a_run_that_somebody_holds(world: World) -> None:
    """A holder that finds the log grown plans again, and its next agent step takes what came."""
    door, told = Doorway(), list[tuple[str, ...]]()

    async def note(step: StepContext) -> Result:
        told.append(step.steering)
        return Result.success()

    process, person = await world.process({"a": [door], "b": [note]}), await world.process()
    running = asyncio.create_task(process.start(line("a", "b")))
    await door.entered()
    await person.engine.steer("run", "be brief", by="ann")
    door.open()
    assert (await running).status is RunStatus.COMPLETED
    assert told == [("be brief",)]
    assert await process.is_sound()


async def test_a_slow_model_does_not_keep_the_manager_from_seeing_that_its_child_has_ended(
    world: World, desk: Desk
) -> None:
    door, clock = Doorway(), still()
    process = await world.process({"a": [door], "manage": [endless]}, clock=clock)
    path = desk.parent('manager.actions=steer, prompt="Watch it", manager.poll_interval=10s')
    running = asyncio.create_task(start(process, path))
    await door.entered()
    while "manage#1" not in world.ledger.steps:
        await tick(clock, 5)
    door.open()
    assert (await running).status is RunStatus.COMPLETED


# -- who drives, and who only looks --------------------------------------------------------------------


async def test_a_gate_in_the_child_waits_until_somebody_answers_and_then_the_manager_goes_on(
    world: World, desk: Desk
) -> None:
    desk.child(ASKING)
    clock = ManualClock(autojump=False)
    process, person = await world.process(clock=clock), await world.process()
    running = asyncio.create_task(start(process, desk.parent()))
    await until(lambda: "a#1" in world.ledger.steps)
    child = await child_of(process)
    await stands(person, child, RunStatus.WAITING)
    await person.engine.answer(child, "yes", by="ann", run=False)
    run = await ticking(clock, running)
    assert run.status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1", "after#1"]


async def test_whoever_answers_the_parents_gates_answers_the_childs_too(world: World, desk: Desk) -> None:
    from onward.engine.control.requests import AutoApprove

    desk.child(ASKING)
    process = await world.process(clock=still())
    run = await start(process, desk.parent(), interviewer=AutoApprove())
    assert run.status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1", "after#1"]


async def test_a_question_to_a_person_who_does_not_answer_holds_no_stop_up(world: World, desk: Desk) -> None:
    class Silent:
        name = "silent"

        async def ask(self, run: Run, gate: Gate) -> str | None:
            asked.set()
            await asyncio.Event().wait()
            return None

    asked, stop = asyncio.Event(), StopSwitch()
    desk.child(ASKING)
    process = await world.process(clock=still())
    running = asyncio.create_task(start(process, desk.parent(), stop=stop, interviewer=Silent()))
    await asked.wait()
    stop.request("signal")
    run = await running
    assert (run.status, run.reason) == (RunStatus.PAUSED, "signal")
    assert (await child_run(process)).status is RunStatus.WAITING


async def test_a_gate_whose_time_is_over_sends_the_child_on_by_itself(world: World, desk: Desk) -> None:
    desk.child(ASKING.replace('label="Go?"', 'label="Go?", human.timeout=60s, human.default_choice=b'))
    clock = still()
    process = await world.process(clock=clock)
    running = asyncio.create_task(start(process, desk.parent()))
    run = await ticking(clock, running)
    assert (run.status, world.ledger.steps) == (RunStatus.COMPLETED, ["a#1", "b#1", "after#1"])
    assert clock.awake_s() >= 60


async def test_a_worker_takes_a_parent_without_a_handler_for_managers(world: World, desk: Desk) -> None:
    process = await world.process(clock=still())
    pipeline = process.engine.sources.read(str(desk.parent()))
    submitted = (await process.engine.submit(pipeline, StartRequest(run_id="run"))).run
    assert submitted.needs == ("codergen",)
    taken = await process.engine.take(StopSwitch())
    assert taken is not None
    assert (await taken[1]).run.status is RunStatus.COMPLETED


async def test_without_autostart_the_child_is_made_and_only_looked_at(world: World, desk: Desk) -> None:
    clock = ManualClock(autojump=False)
    process, person = await world.process(clock=clock), await world.process()
    running = asyncio.create_task(start(process, desk.parent("stack.child_autostart=false")))
    await tick(clock, 0)  # the manager's first pause: the child was made before it
    child = await child_of(process)
    assert (await person.load(child)).run.status is RunStatus.QUEUED
    for _ in range(20):
        await tick(clock, 5)
    assert (await person.load(child)).run.status is RunStatus.QUEUED
    assert (await person.resume(child)).status is RunStatus.COMPLETED
    assert (await ticking(clock, running)).status is RunStatus.COMPLETED


async def test_a_child_that_an_operator_paused_stays_paused_and_is_looked_at(
    world: World, desk: Desk
) -> None:
    door, clock = Doorway(), ManualClock(autojump=False)
    process, person = await world.process({"a": [door]}, clock=clock), await world.process()
    running = asyncio.create_task(start(process, desk.parent()))
    await door.entered()
    child = await child_of(process)
    await person.engine.pause(child)
    door.open()
    await stands(person, child, RunStatus.PAUSED)
    for _ in range(30):
        await tick(clock)
    assert (await person.load(child)).run.status is RunStatus.PAUSED
    assert not running.done()
    await person.resume(child)
    assert (await ticking(clock, running)).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1", "after#1"]


# -- stopping ------------------------------------------------------------------------------------------


async def test_a_signal_pauses_the_child_at_its_boundary_and_then_the_parent(
    world: World, desk: Desk
) -> None:
    door, stop = Doorway(), StopSwitch()
    process = await world.process({"a": [door]}, clock=still())
    running = asyncio.create_task(start(process, desk.parent(), stop=stop))
    await door.entered()
    stop.request("signal")
    for _ in range(100):
        await asyncio.sleep(0)
    assert not running.done()
    door.open()
    run = await running
    assert (run.status, run.reason) == (RunStatus.PAUSED, "signal")
    child = await child_run(process)
    assert (child.status, child.reason, child.next_node) == (RunStatus.PAUSED, "manager", "b")
    assert any(isinstance(event, AttemptInterrupted) for event in await process.events())
    again = await world.process(clock=still())
    assert (await again.resume()).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1", "after#1"]
    assert await child_of(again) == child.id


@pytest.mark.parametrize("how", ["second signal", "pause now"])
async def test_stopping_now_ends_the_childs_step_as_well(world: World, desk: Desk, how: str) -> None:
    door, stop, clock = Doorway(), StopSwitch(), ManualClock(autojump=False)
    process, person = await world.process({"a": [door]}, clock=clock), await world.process()
    running = asyncio.create_task(start(process, desk.parent(), stop=stop))
    await door.entered()
    if how == "second signal":
        stop.request("signal", now=True)
    else:
        await person.engine.pause("run", after="now")
        while not door.was_cancelled:
            await tick(clock, process.store.leases.heartbeat_s)
    run = await running
    assert run.status is RunStatus.PAUSED
    assert door.was_cancelled
    child = await child_run(person)
    assert (child.status, child.reason) == (RunStatus.PAUSED, "manager")
    assert (await (await world.process()).resume()).status is RunStatus.COMPLETED
    assert world.ledger.attempts("a") == [1, 1]


async def test_a_pause_of_the_parent_reaches_the_child(world: World, desk: Desk) -> None:
    door, clock, at_work = Doorway(), ManualClock(autojump=False), list[StepContext]()

    async def enter(step: StepContext) -> Result:
        at_work.append(step)
        return await door(step)

    process, person = await world.process({"a": [enter]}, clock=clock), await world.process()
    running = asyncio.create_task(start(process, desk.parent()))
    await door.entered()
    await person.engine.pause("run")
    while not at_work[0].stopping.is_set():  # the child's own step is told
        await tick(clock, process.store.leases.heartbeat_s)
    door.open()
    run = await ticking(clock, running, 0.1)
    assert (run.status, run.reason) == (RunStatus.PAUSED, "operator")
    (paused,) = [e for e in await process.events(await child_of(process)) if isinstance(e, RunPaused)]
    assert paused.reason == "manager"
    assert (await person.resume()).status is RunStatus.COMPLETED


async def test_cancelling_the_parent_cancels_the_child(world: World, desk: Desk) -> None:
    door = Doorway()
    process, person = await world.process({"a": [door]}), await world.process()
    path = desk.parent("manager.max_cycles=1000000000")
    running = asyncio.create_task(start(process, path))
    await door.entered()
    await person.engine.cancel("run")
    assert (await running).status is RunStatus.CANCELLED
    assert (await child_run(person)).status is RunStatus.CANCELLED
    assert door.was_cancelled


async def test_cancelling_a_parent_that_nobody_holds_cancels_its_child(world: World, desk: Desk) -> None:
    process = await crashed(world, desk.parent(), "a")
    await process.engine.cancel("run")
    assert (await child_run(process)).status is RunStatus.CANCELLED


async def test_a_step_that_is_skipped_or_left_gives_its_child_up(world: World, desk: Desk) -> None:
    process = await crashed(world, desk.parent(), "a")
    run = await process.resume(action="skip", step="manage")
    assert run.status is RunStatus.COMPLETED
    assert (await child_run(process)).status is RunStatus.CANCELLED


async def test_a_manager_that_loses_the_race_gives_its_child_up(world: World, desk: Desk) -> None:
    door, fast = Doorway(), Doorway()
    edges = """fan [shape=component, join_policy=first_success]; join [shape=tripleoctagon]; c [prompt=do]
      start -> fan; fan -> manage -> join; fan -> c -> join; join -> after -> exit"""
    process = await world.process({"a": [door], "c": [fast]}, clock=still())
    running = asyncio.create_task(start(process, desk.parent(edges=edges)))
    await door.entered()
    await fast.entered()
    fast.open()
    assert (await running).status is RunStatus.COMPLETED
    child = await child_run(process, step="fan#1.manage/manage#1")
    assert child.status is RunStatus.CANCELLED


# -- dying ---------------------------------------------------------------------------------------------


async def crashed(world: World, path: Path, node: str) -> Process:
    """A process that died inside `node` of the child; returns another."""
    door = Doorway()
    process = await world.process({node: [door]}, clock=still())
    running = asyncio.create_task(start(process, path))
    await door.entered()
    await process.die()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return await world.process(clock=still())


async def test_after_a_crash_the_same_child_goes_on_behind_its_last_finished_step(
    world: World, desk: Desk
) -> None:
    process = await crashed(world, desk.parent(), "b")
    child = await child_of(process)
    assert (await process.resume()).status is RunStatus.COMPLETED
    assert await child_of(process) == child
    assert world.ledger.steps == ["a#1", "b#1", "b#1", "after#1"]
    assert world.ledger.attempts("b") == [1, 1]


def counting(store: Store) -> FaultyStore:
    return FaultyStore(store, counted=WRITES)


async def finished(process: Process, path: Path, run_id: str) -> Run:
    """Bring the parent to its end from whatever state it is found in."""
    try:
        run = (await process.load(run_id)).run
    except RunNotFound:
        run = await start(process, path, run_id)
    if not run.is_final:
        run = await process.resume(run_id)
    return run


STOPPING = 'manager.stop_condition="stack.child.node=b", manager.poll_interval=1s'


@pytest.mark.parametrize("manager", ["", STOPPING], ids=["to the end", "to the stop condition"])
async def test_dying_at_every_write_of_parent_and_child_comes_to_the_same_end(
    world: World, desk: Desk, manager: str
) -> None:
    """K1 for managers: no second child, no finished step performed again, the same result."""
    path = desk.parent(f"manager.max_cycles=1000000000, {manager}")
    script = {"b": [endless]} if manager else {}
    calm = await world.process(script, wrap=counting)
    run = await finished(calm, path, "calm")
    assert run.status is RunStatus.COMPLETED
    ended = RunStatus.CANCELLED if manager else RunStatus.COMPLETED
    expected = (await calm.completed("calm"), run.context.get("stack.child.outcome"))
    points = range(1, len(calm.store.calls) + 1, 3 if world.kind == "postgres" else 1)
    for at in points:
        for fault in (Fault.DIE_BEFORE, Fault.DIE_AFTER):
            run_id = f"r{at}-{fault.name.lower().replace('_', '-')}"
            dying = await world.process(script, wrap=counting)
            dying.store.fail(fault, within=at)
            try:
                await finished(dying, path, run_id)
            except Died:
                await dying.die()
            last = await world.process(script)
            before = {
                (record.run_id, step)
                for name in await _both(last, run_id)
                for record in (await last.log(name))[:1]
                for step in await last.completed(name)
            }
            performed = len(world.ledger.calls)
            run = await finished(last, path, run_id)
            assert run.status is RunStatus.COMPLETED, f"{fault} at {at}: {run.detail}"
            assert (await last.completed(run_id), run.context.get("stack.child.outcome")) == expected
            again = [c for c in world.ledger.calls[performed:] if (c.run_id, c.step) in before]
            assert again == []
            names = await _both(last, run_id)
            assert len(names) == 2
            assert (await child_run(last, run_id)).status is ended
            for name in names:
                assert await last.is_sound(name)


async def _both(process: Process, run_id: str) -> list[str]:
    """The parent, and every child that was ever made for it."""
    from onward.store.port.runs import RunQuery

    found = []
    for listed in await process.store.runs.list(RunQuery(limit=10_000)):
        first = (await process.events(listed.row.id))[0]
        assert isinstance(first, RunCreated)
        if listed.row.id == run_id or (first.managed_by and first.managed_by.run == run_id):
            found.append(listed.row.id)
    return found


async def test_a_fork_of_the_parent_makes_a_child_of_its_own(world: World, desk: Desk) -> None:
    process = await world.process(clock=still())
    await start(process, desk.parent())
    created = (await process.checkpoints())[0]["seq"]
    await process.engine.fork("run", ForkRequest(created, new_id="fork"))
    run = (await process.engine.resume("fork", Resume(original=True))).run
    assert run.status is RunStatus.COMPLETED
    assert run.context["stack.child.run"] != (await child_of(process))
    assert len([call for call in world.ledger.calls if call.node == "a"]) == 2


async def test_an_outage_of_the_store_costs_a_pause_and_not_the_child(world: World, desk: Desk) -> None:
    process = await world.process(wrap=counting)
    path = desk.parent("manager.max_cycles=1000000000")
    process.store.fail(Fault.REFUSE, within=4, times=3)
    assert (await start(process, path)).status is RunStatus.COMPLETED
    assert world.ledger.steps == ["a#1", "b#1", "after#1"]


async def test_a_child_that_restarts_itself_is_followed_into_the_run_that_goes_on(
    world: World, desk: Desk
) -> None:
    desk.child("""digraph child {
      start [shape=Mdiamond]; exit [shape=Msquare]; a [prompt=do]; b [prompt=do]
      start -> a -> b; b -> a [condition="context.again=yes", loop_restart=true]; b -> exit
    }""")
    script = {"b": [Result.success(again="yes")], "a": [Result.success(again="no")]}

    async def once(step: StepContext) -> Result:
        is_first = len([call for call in world.ledger.calls if call.node == "b"]) == 1
        return Result.success(again="yes" if is_first else "no")

    process = await world.process({**script, "b": [once]}, clock=still())
    run = await start(process, desk.parent())
    assert run.status is RunStatus.COMPLETED, run.detail
    first = await child_run(process)
    assert first.restarted_as == run.context["stack.child.run"]
    successor = (await process.load(run.context["stack.child.run"])).run
    assert (successor.status, successor.managed_by) == (RunStatus.COMPLETED, first.managed_by)


async def test_the_childs_commands_work_where_the_manager_says(world: World, desk: Desk) -> None:
    desk.child(line("a"))
    seen = []

    async def note(step: StepContext) -> Result:
        seen.append((step.run_id, step.workdir))
        return Result.success()

    (desk.directory.parent / "work").mkdir()
    process = await world.process({"a": [note], "after": [note]}, clock=still())
    await start(process, desk.parent(graph='stack.child_workdir="../work"'))
    child = await child_of(process)
    assert seen == [(child, str(desk.directory.parent / "work")), ("run", None)]


async def test_a_child_whose_directory_is_not_there_is_told_before_it_exists(
    world: World, desk: Desk
) -> None:
    desk.child(line("a"))
    process = await world.process({}, clock=still())
    run = await start(process, desk.parent(graph='stack.child_workdir="../nowhere"'))
    assert f"the directory {desk.directory.parent / 'nowhere'} does not exist" in run.detail
    with pytest.raises(RunNotFound):
        await child_run(process)


async def test_a_child_that_waits_for_an_answer_continues_when_another_of_its_branches_is_due(
    world: World, desk: Desk
) -> None:
    """Nobody is there to answer, and the other branch does not need an answer."""
    clock, entered = still(), Counter[str]()
    held = held_once("limit", clock.now_us() + 60_000_000, entered)
    handlers = {**fan(asks, held), "codergen": FunctionHandler(lambda step: None)}
    process = await world.process(handlers=handlers, clock=clock)
    desk.child(FAN)
    running = asyncio.create_task(start(process, desk.parent("manager.max_cycles=100000")))
    await stands_child(process, RunStatus.WAITING)
    for _ in range(1_000):
        if entered["right"] == 2:
            break
        await tick(clock)
    assert entered["right"] == 2
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def stands_child(process: Process, status: RunStatus) -> None:
    """Until the parent has a child, and that has this status."""
    for _ in range(20_000):
        with contextlib.suppress(RunNotFound, ValueError):
            if (await child_run(process)).status is status:
                return
        await asyncio.sleep(0)
    raise AssertionError(f"no child ever was {status}")
