"""Graphs as steps of flows: runs of their own, created once, whose ends the flow waits for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from onward import Onward
from onward.agents.prices import read_prices
from onward.agents.step.handler import AgentHandler
from onward.engine.control.requests import CallbackInterviewer, ForkRequest, QueueInterviewer, StartRequest
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput, Refused, RunNotFound, StepFailed
from onward.flows.branches import each, gather
from onward.flows.define import Bound, Flow, flow, step
from onward.flows.graphs import GraphResult, graph
from onward.flows.handler import FlowHandler
from onward.flows.load import flow_at
from onward.flows.waits import ask, sleep
from onward.handlers.port import Handler, StepContext
from onward.model.gate import Answer
from onward.model.ids import called_run_id
from onward.model.result import Result
from onward.model.run import Gate, Run, RunStatus
from onward.pipeline.flow_source import FlowPlace
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.leases import Lease
from onward.store.port.log import RunLog, Write
from onward.store.port.store import Store
from onward.testing.clock import ManualClock, SeededDice
from tests.agents.test_agent_step import model
from tests.conformance.faults import WRITES, Around, Died, Fault, FaultyStore
from tests.conformance.handlers import Act, Doorway, Scripted
from tests.engine.test_manager import tick, ticking
from tests.flows.living import Outside, answered, begin, result
from tests.flows.test_agents import PRICES
from tests.world import Process, World, line

outside = Outside()
DAY_S = 86_400
SITE = line("draft", "render")
ASKING = """digraph asking {
  start [shape=Mdiamond]; exit [shape=Msquare]
  draft [prompt="do"]; ask [shape=hexagon, label="Go?"]; render [prompt="do"]
  start -> draft -> ask
  ask -> render [label="yes"]; ask -> exit [label="no"]; render -> exit
}"""
RESTARTING = """digraph again {
  start [shape=Mdiamond]; exit [shape=Msquare]
  draft [prompt="do"]; check [prompt="do"]
  start -> draft -> check
  check -> draft [condition="outcome=fail", loop_restart=true]; check -> exit [condition="outcome=success"]
}"""


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    outside.done.clear()


@step
async def page(name: str) -> str:
    outside.do(f"page {name}")
    return name.upper()


@flow
async def site(topic: str = "durable") -> list[Any]:
    before = await page("before")
    made = await graph(SITE, {"topic": topic})
    return [before, made["topic"], made["outcome"], await page("after")]


@flow
async def asking() -> list[Any]:
    made = await graph(ASKING)
    return [made["human.gate.label"], await page("after")]


async def serving(
    world: World, *flows: Flow[..., Any], script: Mapping[str, Sequence[Act]] | None = None, **how: Any
) -> Process:
    """A process that serves these flows, and graphs whose steps are noted in the ledger of the world."""
    handlers: dict[str, Handler] = {flow.kind: FlowHandler(flow) for flow in flows}
    handlers["codergen"] = Scripted(script, world.ledger)
    return await world.process(handlers=handlers, **how)


async def child_of(process: Process, key: str = "graph", run_id: str = "run") -> Run:
    """The run that a call of a flow waits for."""
    opened_at_us = (await process.log(run_id))[0].at_us
    for record, event in zip(await process.log(run_id), await process.events(run_id), strict=True):
        if record.kind == "StepStarted":
            opened_at_us = record.at_us
            assert event.step == "flow#1"  # type: ignore[attr-defined]
            break
    return (await process.load(called_run_id(run_id, "flow#1", key, opened_at_us))).run


def steps(world: World, node: str) -> int:
    return sum(call.node == node for call in world.ledger.calls)


# -- a graph that runs to its end ------------------------------------------------------------------------


async def test_a_flow_runs_a_graph_as_a_run_of_its_own_and_gets_its_context(world: World) -> None:
    process = await serving(world, site)
    run = await begin(process, site.bind("kites"))
    assert result(run) == ["BEFORE", "kites", "success", "AFTER"]
    child = await child_of(process)
    assert (child.status, child.pipeline) == (RunStatus.COMPLETED, "line")
    assert child.managed_by is not None
    assert (child.managed_by.run, child.managed_by.step, child.managed_by.call) == ("run", "flow#1", "graph")
    assert (child.charged_to, child.chat) == ("run", None)
    assert await answered(process) == ["page", "graph/start", "graph", "page#2"]
    assert await process.is_sound()
    assert await process.is_sound(child.id)


async def test_a_flow_that_runs_again_takes_the_end_of_its_graph_from_its_log(memory: World) -> None:
    @flow
    async def twice() -> list[Any]:
        made = await graph(SITE, {"topic": "kites"})
        await sleep("1d")
        return [made.run_id, made["topic"], type(made) is GraphResult]

    process = await serving(memory, twice)
    await begin(process, twice.bind())
    process.clock.advance(DAY_S + 1)
    child = await child_of(process)
    assert result(await process.resume()) == [child.id, "kites", True]
    assert memory.ledger.steps == ["draft#1", "render#1"]


async def test_graphs_run_beside_each_other_and_come_back_in_order(world: World) -> None:
    @flow
    async def many() -> list[Any]:
        async def one(number: int) -> Any:
            return (await graph(SITE, {"topic": number}, name="site"))["topic"]

        both = await gather(graph(SITE, {"topic": "a"}), page("b"))
        return [both[0]["topic"], both[1], *await each(one, [1, 2, 3], limit=2)]

    process = await serving(world, many)
    assert result(await begin(process, many.bind())) == ["a", "B", 1, 2, 3]
    keys = await answered(process)
    assert {"gather.0/graph", "each.0/site", "each.2/site"} <= set(keys)
    assert steps(world, "render") == 4


async def test_a_graph_is_a_file_beside_that_of_the_flow_a_text_or_a_registered_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "site.dot").write_text(GREETING)
    (tmp_path / "shop.py").write_text(
        "from onward import flow, graph\n\n\n"
        "@flow\nasync def shop(text: str) -> list[str]:\n"
        "    found = [await graph(one) for one in ('site.dot', text, 'welcome', 'welcome@1')]\n"
        "    return [one['greet.said'] for one in found]\n"
    )
    bound = flow_at(FlowPlace(str(tmp_path / "shop.py"), "shop")).bind(GREETING)
    app = Onward(":memory:")
    app.handler("greet")(greet)
    async with app:
        await app.add_pipeline(await app.pipeline(GREETING), name="welcome")
        assert await app.call(bound) == ["hello"] * 4


GREETING = """digraph greeting {
  start [shape=Mdiamond]; exit [shape=Msquare]; greet [type=greet]; start -> greet -> exit
}"""


async def greet(step: StepContext) -> dict[str, str]:
    return {"greet.said": "hello"}


async def test_a_graph_that_is_not_there_fails_the_call_and_is_found_when_it_is(
    memory: World, tmp_path: Path
) -> None:
    path = tmp_path / "site.dot"

    @flow
    async def missing() -> str:
        return str((await graph(str(path)))["outcome"])

    process = await serving(memory, missing)
    run = await begin(process, missing.bind())
    assert (run.status, run.reason) == (RunStatus.FAILED, "step_failed")
    assert "there is no such file" in run.detail
    path.write_text(SITE)
    assert result(await process.resume()) == "success"


async def test_what_is_no_pipeline_is_refused_before_anything_is_written(memory: World) -> None:
    @flow
    async def empty() -> None:
        await graph(" ")

    process = await serving(memory, empty)
    run = await begin(process, empty.bind())
    assert "has no pipeline" in run.detail
    with pytest.raises(InvalidInput, match="works only inside a flow"):
        await graph(SITE)


async def test_other_inputs_than_in_the_history_are_a_changed_flow(memory: World) -> None:
    topics = iter(["a", "b"])

    @flow
    async def changed() -> str:
        made = await graph(SITE, {"topic": next(topics)})
        await sleep("1d")
        return str(made["topic"])

    process = await serving(memory, changed)
    await begin(process, changed.bind())
    process.clock.advance(DAY_S + 1)
    run = await process.resume()
    assert (run.status, run.reason) == (RunStatus.FAILED, "flow_changed")
    assert "'graph' was called with" in run.detail


async def test_a_graph_that_restarts_itself_is_followed_to_its_end(world: World) -> None:
    @flow
    async def again() -> str:
        return str((await graph(RESTARTING))["outcome"])

    async def check(step: StepContext) -> Result:
        return Result.fail("not yet") if outside.do("check") == 1 else Result.success()

    process = await serving(world, again, script={"check": [check]})
    assert result(await begin(process, again.bind())) == "success"
    assert steps(world, "draft") == 2


# -- failures ------------------------------------------------------------------------------------------


async def test_a_graph_that_fails_fails_as_a_step_and_a_resume_continues_that_same_run(world: World) -> None:
    script = {"render": [Result.fail("no paper", retryable=False), Result.success()]}
    process = await serving(world, site, script=script)
    run = await begin(process, site.bind())
    child = await child_of(process)
    assert (run.status, run.reason, child.status) == (RunStatus.FAILED, "step_failed", RunStatus.FAILED)
    assert "'graph' failed: GraphFailed: run" in run.detail
    assert "no paper" in run.detail
    run = await process.resume()
    assert result(run)[2] == "success"
    assert steps(world, "draft") == 1
    assert steps(world, "render") == 2
    assert outside.done == {"page before": 1, "page after": 1}


async def test_a_failure_that_the_flow_caught_stays_history(memory: World) -> None:
    @flow
    async def careful() -> str:
        found = ""
        try:
            await graph(SITE)
        except StepFailed as error:
            found = error.type
        await sleep("1d")
        return found

    process = await serving(memory, careful, script={"draft": [Result.fail("no", retryable=False)]})
    await begin(process, careful.bind())
    process.clock.advance(DAY_S + 1)
    assert result(await process.resume()) == "GraphFailed"
    assert steps(memory, "draft") == 1


async def test_a_graph_that_somebody_cancelled_fails_the_call(memory: World) -> None:
    process = await serving(memory, asking)
    run = await begin(process, asking.bind())
    assert run.status is RunStatus.WAITING
    await process.engine.cancel((await child_of(process)).id, reason="not needed")
    run = (await process.load()).run
    assert run.status is RunStatus.QUEUED
    run = await process.resume()
    assert (run.status, run.reason) == (RunStatus.FAILED, "step_failed")
    assert "was cancelled: not needed" in run.detail


# -- waiting -------------------------------------------------------------------------------------------


async def test_a_flow_waits_for_the_question_of_its_graph_and_the_answer_lets_it_continue(
    world: World,
) -> None:
    process = await serving(world, asking)
    run = await begin(process, asking.bind())
    child = await child_of(process)
    assert (run.status, run.worker, run.wake_at_us) == (RunStatus.WAITING, None, None)
    assert run.detail == f"for the run {child.display_id} (graph), which waits for an answer"
    with pytest.raises(Refused, match=f"with `onward answer {child.display_id}`"):
        await process.engine.answer("run", "yes", by="ann")
    child = (await process.engine.answer(child.id, "yes", by="ann")).run
    assert child.status is RunStatus.COMPLETED
    run = (await process.load()).run
    assert (run.status, run.wake_at_us is not None) == (RunStatus.QUEUED, True)
    assert result(await process.resume()) == ["yes", "AFTER"]
    assert world.ledger.steps == ["draft#1", "render#1"]
    assert await process.is_sound()


async def test_whoever_answers_for_the_flow_answers_for_its_graphs(memory: World) -> None:
    process = await serving(memory, asking)
    people = QueueInterviewer(["yes"])
    run = await begin(process, asking.bind(), interviewer=people)
    assert result(run) == ["yes", "AFTER"]


async def test_a_person_who_does_not_answer_holds_no_stop_up(memory: World) -> None:
    asked = asyncio.Event()

    async def never(run: Run, gate: Gate) -> Answer:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    process = await serving(memory, asking)
    stop = StopSwitch(clock=process.clock, grace_s=None)
    people = CallbackInterviewer("ann", never)
    running = asyncio.create_task(begin(process, asking.bind(), stop=stop, interviewer=people))
    await asked.wait()
    stop.request("signal")
    run = await running
    assert run.status is RunStatus.PAUSED
    assert (await child_of(process)).status is RunStatus.WAITING
    await process.engine.answer((await child_of(process)).id, "yes", by="ann")
    assert result(await process.resume()) == ["yes", "AFTER"]


async def test_a_person_may_let_the_flow_look_again_at_a_graph_that_was_answered(memory: World) -> None:
    """Answered for the queue, and no worker is there: whoever resumes the flow executes its graph."""
    process = await serving(memory, asking)
    await begin(process, asking.bind())
    child = await child_of(process)
    await process.engine.answer(child.id, "yes", by="ann", run=False)
    assert (await process.load()).run.status is RunStatus.WAITING
    assert result(await process.resume()) == ["yes", "AFTER"]


async def test_a_look_at_a_graph_that_still_waits_changes_nothing(memory: World) -> None:
    process = await serving(memory, asking)
    before = await begin(process, asking.bind())
    run = await process.resume()
    assert (run.status, run.detail) == (RunStatus.WAITING, before.detail)
    assert await process.is_sound()


async def test_a_worker_with_one_place_executes_flow_and_graph_and_wakes_the_flow() -> None:
    process = await with_one_clock(asking)
    await process.engine.submit(process.pipeline(asking.source), StartRequest(run_id="run"))
    await work_off(process)
    assert (await process.load()).run.status is RunStatus.WAITING
    child = await child_of(process)
    await process.engine.answer(child.id, "yes", by="ann", run=False)
    await work_off(process)
    assert result((await process.load()).run) == ["yes", "AFTER"]


async def with_one_clock(*flows: Flow[..., Any]) -> Process:
    """A process whose database has its clock."""
    clock = ManualClock(autojump=False)
    database = MemoryDatabase(now_us=clock.now_us)

    async def connect() -> Store:
        return database.connect(None)

    return await serving(World(connect, "memory"), *flows, clock=clock)


async def work_off(process: Process) -> None:
    """What a worker with one place does until nothing is due."""
    while True:
        taken = await process.engine.take(StopSwitch(clock=process.clock))
        if taken is None:
            return
        await taken[1]
        process.clock.advance(1)


@pytest.mark.parametrize("first", ["graph", "other"])
@pytest.mark.parametrize("other", ["sleep", "ask", "graph"])
async def test_a_graph_and_another_wait_wake_the_flow_whichever_comes_first(
    memory: World, other: str, first: str
) -> None:
    @flow
    async def both() -> list[Any]:
        async def one() -> Any:
            return (await graph(ASKING))["human.gate.label"]

        async def two() -> Any:
            if other == "sleep":
                await sleep("1d")
            elif other == "ask":
                await ask("Ship it?")
            else:
                await graph(ASKING, name="second")
            return await page("two")

        return list(await gather(one(), two()))

    process = await serving(memory, both)
    run = await begin(process, both.bind())
    assert run.status is RunStatus.WAITING

    async def one_comes() -> Run:
        await process.engine.answer((await child_of(process, "gather.0/graph")).id, "yes", by="ann")
        return await process.resume()

    async def two_comes() -> Run:
        if other == "sleep":
            process.clock.advance(DAY_S + 1)
            return await process.resume()
        if other == "ask":
            return (await process.engine.answer("run", "yes", by="ann")).run
        await process.engine.answer((await child_of(process, "gather.1/second")).id, "yes", by="ann")
        return await process.resume()

    comes = [one_comes, two_comes] if first == "graph" else [two_comes, one_comes]
    run = await comes[0]()
    assert run.status is RunStatus.WAITING
    assert outside.done["page two"] == (first == "other")
    assert result(await comes[1]()) == ["yes", "TWO"]
    assert outside.done["page two"] == 1
    assert await process.is_sound()


async def test_a_graph_that_ends_while_its_flow_works_elsewhere_is_seen(memory: World) -> None:
    door = Doorway()

    @step
    async def slow() -> str:
        await door(None)  # type: ignore[arg-type]
        return "slow"

    @flow
    async def both() -> list[Any]:
        found = await gather(slow(), graph(ASKING))
        return [found[0], found[1]["human.gate.label"]]

    process, other = await serving(memory, both), await serving(memory, both)
    running = asyncio.create_task(begin(process, both.bind()))
    await door.entered()

    async def asks() -> str:
        while True:
            try:
                child = await child_of(other, "gather.1/graph")
            except (RunNotFound, IndexError):
                await asyncio.sleep(0)
                continue
            if child.status is RunStatus.WAITING:
                return child.id
            await asyncio.sleep(0)

    child = await asks()
    await other.engine.answer(child, "yes", by="ann")
    door.open()
    assert result(await running) == ["slow", "yes"]


async def test_a_sweep_finds_a_flow_that_nobody_told_of_the_end_of_its_graph(world: World) -> None:
    """The process that ended the graph died before it said so."""
    process = await serving(world, asking)
    await begin(process, asking.bind())
    child = await child_of(process)
    dying = await serving(world, asking, wrap=lambda store: FaultyStore(store, counted={"log.control"}))
    dying.store.fail(Fault.DIE_BEFORE, within=2)  # the answer is the first, and the word to the flow the next
    with pytest.raises(Died):
        await dying.engine.answer(child.id, "yes", by="ann")
    await dying.die()
    assert (await process.load(child.id)).run.status is RunStatus.COMPLETED
    assert (await process.load()).run.status is RunStatus.WAITING
    await process.engine.sweep()
    assert (await process.load()).run.status is RunStatus.QUEUED
    assert result(await process.resume()) == ["yes", "AFTER"]


# -- graphs that stop --------------------------------------------------------------------------------------


async def test_a_graph_in_doubt_stops_its_flow_and_a_decision_lets_both_continue(memory: World) -> None:
    unsure = line("draft", "pay", pay="repeatable=false")

    @flow
    async def paying() -> str:
        return str((await graph(unsure))["outcome"])

    dying = await serving(memory, paying, script={"pay": [Died("in the middle of it")]})
    with pytest.raises(Died):
        await begin(dying, paying.bind())
    await dying.die()
    process = await serving(memory, paying)
    run = await process.resume()
    child = await child_of(process)
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "child")
    assert child.reason == "in_doubt"
    assert f"the run {child.display_id} (graph) is interrupted (in_doubt" in run.detail
    again = await process.resume()
    assert (again.status, again.detail) == (RunStatus.INTERRUPTED, run.detail)
    await process.resume(child.id, action="retry")
    assert (await process.load()).run.status is RunStatus.QUEUED
    assert result(await process.resume()) == "success"
    assert steps(memory, "draft") == 1


async def test_a_graph_that_a_person_paused_stops_its_flow_until_it_is_resumed(memory: World) -> None:
    process = await serving(memory, asking)
    await begin(process, asking.bind())
    child = await child_of(process)
    await process.engine.pause(child.id)
    run = await process.resume()
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "child")
    assert "is paused (operator" in run.detail
    await process.resume(child.id)
    await process.engine.answer(child.id, "yes", by="ann")
    assert result(await process.resume()) == ["yes", "AFTER"]


async def test_a_pause_of_the_flow_pauses_its_graph_at_its_boundary(memory: World) -> None:
    door, at_work = Doorway(), list[StepContext]()

    async def enter(step: StepContext) -> Result:
        at_work.append(step)
        return await door(step)

    clock = ManualClock(autojump=False)
    process, person = (
        await serving(memory, site, script={"draft": [enter]}, clock=clock),
        await memory.process(),
    )
    running = asyncio.create_task(begin(process, site.bind()))
    await door.entered()
    await person.engine.pause("run")
    while not at_work[0].stopping.is_set():  # the step of the graph is asked
        await tick(clock, process.store.leases.heartbeat_s)
    door.open()
    run = await ticking(clock, running, 0.1)
    child = await child_of(process)
    assert (run.status, child.status, child.reason) == (RunStatus.PAUSED, RunStatus.PAUSED, "manager")
    again = await serving(memory, site)
    assert result(await again.resume())[2] == "success"
    assert memory.ledger.steps == ["draft#1", "render#1"]


@pytest.mark.parametrize("reason", ["signal", "drain"])
async def test_a_process_that_is_to_stop_lets_the_step_of_the_graph_finish(
    memory: World, reason: str
) -> None:
    door = Doorway()
    process = await serving(memory, site, script={"draft": [door]})
    stop = StopSwitch(clock=process.clock, grace_s=None)
    running = asyncio.create_task(begin(process, site.bind(), stop=stop))
    await door.entered()
    stop.request(reason)
    door.open()
    run = await running
    assert run.status is (RunStatus.QUEUED if reason == "drain" else RunStatus.PAUSED)
    assert memory.ledger.steps == ["draft#1"]
    assert result(await process.resume())[2] == "success"
    assert memory.ledger.steps == ["draft#1", "render#1"]


async def test_a_flow_that_is_stopped_at_once_ends_the_step_of_its_graph(memory: World) -> None:
    door = Doorway()
    process = await serving(memory, site, script={"draft": [door]})
    stop = StopSwitch(clock=process.clock, grace_s=None)
    running = asyncio.create_task(begin(process, site.bind(), stop=stop))
    await door.entered()
    stop.request("signal", now=True)
    run = await running
    assert run.status is RunStatus.PAUSED
    assert door.was_cancelled
    door.open()
    assert result(await process.resume())[2] == "success"


@pytest.mark.parametrize("state", ["running", "waiting"])
async def test_cancelling_the_flow_cancels_its_graphs(world: World, state: str) -> None:
    door = Doorway()
    script = {"draft": [door]} if state == "running" else {}
    process = await serving(world, asking, script=script)
    running = asyncio.create_task(begin(process, asking.bind()))
    if state == "running":
        await door.entered()
        await process.engine.cancel("run")
        process.clock.advance(60)
    run = await running
    if state == "waiting":
        await process.engine.cancel("run")
        run = (await process.load()).run
    assert run.status is RunStatus.CANCELLED
    child = await child_of(process)
    for _ in range(5_000):
        if (child := await child_of(process)).is_final:
            break
        await asyncio.sleep(0)
    assert child.status is RunStatus.CANCELLED
    assert steps(world, "render") == 0


async def test_a_flow_that_ends_lets_the_graph_beside_it_stop_at_its_boundary(memory: World) -> None:
    door = Doorway()

    @flow
    async def broken() -> None:
        async def wrong() -> None:
            await door.entered()
            await asyncio.create_task(page("in a task of its own"))

        await gather(wrong(), graph(SITE))

    clock = ManualClock(autojump=False)
    process = await serving(memory, broken, script={"draft": [door]}, clock=clock)
    running = asyncio.create_task(begin(process, broken.bind()))
    await door.entered()
    for _ in range(3):  # it notices within a second
        await tick(process.clock)
    door.open()
    run = await running
    assert "from a task that the flow did not start" in run.detail
    child = await child_of(process, "gather.1/graph")
    assert (child.status, child.reason) == (RunStatus.PAUSED, "manager")
    assert memory.ledger.steps == ["draft#1"]
    assert await process.is_sound()


async def test_what_a_graph_asks_counts_in_the_limit_of_its_flow_and_a_higher_one_continues_both(
    memory: World,
) -> None:
    asking_models = """digraph asks {
      start [shape=Mdiamond]; exit [shape=Msquare]
      a [prompt="One."]; b [prompt="Two."]; c [prompt="Three."]
      start -> a -> b -> c -> exit
    }"""

    @flow
    async def spending() -> str:
        return str((await graph(asking_models))["outcome"])

    clock = ManualClock()
    agents = AgentHandler(model(default="fine"), read_prices(PRICES), clock, SeededDice(1))
    handlers: dict[str, Handler] = {spending.kind: FlowHandler(spending), "codergen": agents}
    process = await memory.process(handlers=handlers, clock=clock)
    await process.store.limits.change("run/run", {"calls": 2})
    run = await begin(process, spending.bind())
    child = await child_of(process)
    assert (run.status, run.reason, child.reason) == (RunStatus.INTERRUPTED, "child", "limit")
    assert "is interrupted (limit" in run.detail
    assert (await process.resume()).reason == "child"
    run = await process.resume(raises=(("run", "calls", 9),))
    assert result(run) == "success"
    (scope,) = await process.store.limits.read(["run/run"])
    assert scope.spent.calls == 3


# -- graphs in graphs, and flows in them -------------------------------------------------------------------


@flow
async def inner(topic: str) -> list[Any]:
    made = await graph(SITE, {"topic": f"inner {topic}"})
    return [made["topic"], await page("inside")]


NESTED = """digraph nested {
  start [shape=Mdiamond]; exit [shape=Msquare]
  draft [prompt="do"]; make [type="flow:inner"]
  start -> draft -> make -> exit
}"""


async def test_a_graph_may_have_flows_which_run_graphs(memory: World) -> None:
    @flow
    async def outer() -> list[Any]:
        made = await graph(NESTED, {"topic": "kites"})
        return [made["make.result"], await page("outside")]

    process = await serving(memory, outer, inner)
    assert result(await begin(process, outer.bind())) == [["inner kites", "INSIDE"], "OUTSIDE"]
    child = await child_of(process)
    assert await answered(process, child.id) == ["graph/start", "graph", "page"]
    (grandchild,) = [one.row.id for one in await process.store.runs.relatives(child.id)]
    assert (await process.load(grandchild)).run.charged_to == "run"


async def test_a_step_that_a_node_of_a_graph_calls_is_its_function_and_no_step_of_the_flow(
    memory: World,
) -> None:
    async def calls(step: StepContext) -> Result:
        return Result(context_updates={"said": await page("called")})

    @flow
    async def outer() -> str:
        return str((await graph(SITE))["said"])

    process = await serving(memory, outer, script={"draft": [calls]})
    assert result(await begin(process, outer.bind())) == "CALLED"
    assert await answered(process) == ["graph/start", "graph"]


async def test_a_graph_that_runs_itself_without_end_is_refused_by_its_depth(memory: World) -> None:
    @flow
    async def endless() -> None:
        await graph(
            'digraph e { start [shape=Mdiamond]; exit [shape=Msquare]; more [type="flow:endless"]; '
            "start -> more -> exit }"
        )

    process = await serving(memory, endless)
    run = await begin(process, endless.bind())
    assert (run.status, run.reason) == (RunStatus.FAILED, "step_failed")
    assert "runs manage runs at most 8 deep" in run.detail


async def test_flows_in_branches_of_a_graph_wait_for_graphs_beside_each_other(memory: World) -> None:
    @flow
    async def one() -> str:
        return str((await graph(ASKING))["human.gate.label"])

    @flow
    async def two() -> str:
        await sleep("1d")
        return await page("two")

    fan = """digraph fan {
      start [shape=Mdiamond]; exit [shape=Msquare]
      split [shape=component]; one [type="flow:one"]; two [type="flow:two"]; join [shape=tripleoctagon]
      start -> split; split -> one -> join; split -> two -> join; join -> exit
    }"""
    process = await serving(memory, one, two)
    run = await process.start(fan)
    assert (run.status, run.wake_at_us is not None) == (RunStatus.WAITING, True)
    (child,) = [found.row.id for found in await process.store.runs.relatives("run")]
    await process.engine.answer(child, "yes", by="ann")
    run = await process.resume()
    assert run.status is RunStatus.WAITING
    process.clock.advance(DAY_S + 1)
    assert (await process.resume()).status is RunStatus.COMPLETED
    assert await process.is_sound()


async def test_a_graph_that_ends_while_its_flow_gives_its_process_up_is_not_missed(memory: World) -> None:
    """The flow has looked, and not yet written that it waits, when somebody else ends its graph."""
    other = await serving(memory, asking)

    class Meanwhile(Around[RunLog]):
        async def append(self, write: Write, lease: Lease) -> None:
            if write.run_id == "run" and any(record.kind == "AttemptHeld" for record in write.records):
                await other.engine.answer((await child_of(other)).id, "yes", by="ann")
            await self.part.append(write, lease)

    process = await serving(memory, asking, wrap=lambda store: FaultyStore(store, log=Meanwhile))
    await begin(process, asking.bind())
    assert (await process.load()).run.status is RunStatus.QUEUED
    assert result(await process.resume()) == ["yes", "AFTER"]


# -- forks -------------------------------------------------------------------------------------------------


async def test_a_fork_after_a_graph_keeps_its_end_and_one_before_it_runs_another(world: World) -> None:
    process = await serving(world, site)
    await begin(process, site.bind())
    await process.engine.fork("run", ForkRequest(from_step="page#2", new_id="after"))
    assert result(await process.resume("after", original=True))[2] == "success"
    assert steps(world, "draft") == 1
    await process.engine.fork("run", ForkRequest(from_step="graph", new_id="before"))
    assert result(await process.resume("before", original=True))[2] == "success"
    assert steps(world, "draft") == 2


async def test_a_fork_while_a_graph_is_under_way_has_one_of_its_own_and_leaves_the_other(
    memory: World,
) -> None:
    process = await serving(memory, asking)
    await begin(process, asking.bind())
    started = [record.seq for record in await process.log() if record.kind == "CallFinished"]
    await process.engine.fork("run", ForkRequest(started[-1], new_id="fork"))
    run = await process.resume("fork", original=True)
    assert run.status is RunStatus.WAITING
    assert steps(memory, "draft") == 2
    await process.engine.cancel("fork")
    child = await child_of(process)
    assert child.status is RunStatus.WAITING
    await process.engine.answer(child.id, "yes", by="ann")
    assert result(await process.resume()) == ["yes", "AFTER"]


async def test_a_fork_that_is_cancelled_before_it_runs_leaves_the_graph_of_the_other(memory: World) -> None:
    process = await serving(memory, asking)
    await begin(process, asking.bind())
    started = [record.seq for record in await process.log() if record.kind == "CallFinished"]
    await process.engine.fork("run", ForkRequest(started[-1], new_id="fork"))
    await process.engine.cancel("fork")
    assert (await child_of(process)).status is RunStatus.WAITING


# -- killed ------------------------------------------------------------------------------------------------


async def live(process: Process, bound: Bound[Any], run_id: str) -> Run:
    """Bring a flow to its end from whatever state it and its graphs are in, with a yes to every question."""
    try:
        run = (await process.load(run_id)).run
    except RunNotFound:
        run = await begin(process, bound, run_id)
    for _ in range(50):
        if run.is_final:
            break
        assert run.reason != "flow_changed", run.detail
        for listed in await process.store.runs.relatives(run_id):
            if listed.row.status is RunStatus.WAITING:
                await process.engine.answer(listed.row.id, "yes", by="ann")
        run = (await process.load(run_id)).run
        if not run.is_final:
            run = await process.resume(run_id, take_over=run.status is RunStatus.RUNNING)
    return run


@pytest.mark.parametrize("fault", [Fault.DIE_BEFORE, Fault.DIE_AFTER])
@pytest.mark.slow
async def test_a_flow_with_graphs_killed_at_every_append_runs_each_once(world: World, fault: Fault) -> None:
    """The ledger of the steps is outside of the log: what finished is not done again."""

    @flow
    async def whole() -> list[Any]:
        first = await page("first")
        one, two = await gather(graph(ASKING), graph(line("pack", "send"), {"n": 1}))
        return [first, one["human.gate.label"], two["n"], await page("last")]

    process = await serving(world, whole, wrap=writes)
    await live(process, whole.bind(), "whole")
    total = len(process.store.calls)
    assert total > 20
    for at in range(1, total + 1):
        outside.done.clear()
        run_id = f"run-{at}"
        dying = await serving(world, whole, wrap=writes)
        dying.store.fail(fault, within=at)
        try:
            await live(dying, whole.bind(), run_id)
        except Died:
            await dying.die()
        process = await serving(world, whole)
        run = await live(process, whole.bind(), run_id)
        assert result(run) == ["FIRST", "yes", 1, "LAST"], f"killed at {at}"
        children = [one.row for one in await process.store.runs.relatives(run_id)]
        assert len(children) == 2
        assert {one.status for one in children} == {RunStatus.COMPLETED}
        for child in children:
            finished = await process.completed(child.id)
            assert len(set(finished)) == len(finished)
            # A step may have been cut off in the middle, and then it ran once more; never one that finished.
            done = Counter(call.step for call in world.ledger.calls if call.run_id == child.id)
            assert max(done.values()) <= 2
            assert sum(number - 1 for number in done.values()) <= 2
        keys = await answered(process, run_id)
        assert len(set(keys)) == len(keys)
        assert await process.is_sound(run_id)


def writes(store: Any) -> FaultyStore:
    return FaultyStore(store, counted=WRITES)
