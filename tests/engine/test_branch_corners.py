"""Branches in the corners: goal gates inside them, loops through them, races that end while one begins."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from onward.engine.control.requests import StartRequest
from onward.engine.stop import StopSwitch
from onward.errors import Refused
from onward.handlers.port import StepContext
from onward.model.events import AttemptInterrupted, Event, StepFinished
from onward.model.gate import GateDecided
from onward.model.result import Result
from onward.model.run import RunStatus
from tests.conformance.handlers import Doorway
from tests.world import Process, World, until


def pipeline(nodes: str, edges: str) -> str:
    ends = "start [shape=Mdiamond]; exit [shape=Msquare]"
    pair = "fan [shape=component]; join [shape=tripleoctagon]"
    return f"digraph g {{ {ends}; {pair}; {nodes}; start -> fan; {edges} }}"


BROKEN = Result.fail("not good enough", retryable=False)
GOAL = pipeline(
    "a [prompt=x]; b [prompt=x]; goal [prompt=x, goal_gate=true, retry_target=fan]",
    'fan -> a -> goal -> join; goal -> join [condition="outcome=fail"]; fan -> b -> join -> exit',
)


async def test_a_goal_in_a_branch_is_met_when_its_branch_meets_it_the_next_time(world: World) -> None:
    """D28, D31: the last outcome of a node counts, whichever fan-out its branch belonged to. K9."""

    async def better(step: StepContext) -> Result:
        return BROKEN if step.step.startswith("fan#1") else Result.success()

    process = await world.process({"goal": [better]})
    run = await process.start(GOAL)
    assert (run.status, run.reroutes) == (RunStatus.COMPLETED, 1)
    assert run.outcomes["goal"] == "success"


async def test_a_goal_in_a_branch_can_be_met_outside_of_it(world: World) -> None:
    """D31: its retry target may be the goal itself, which the run then reaches without a fan-out."""

    async def alone(step: StepContext) -> Result:
        return BROKEN if "/" in step.step else Result.success()

    process = await world.process({"goal": [alone]})
    run = await process.start(GOAL.replace("retry_target=fan", "retry_target=goal"))
    assert (run.status, run.reroutes) == (RunStatus.COMPLETED, 1)
    assert world.ledger.steps[-1] == "goal#1"


async def test_a_goal_that_one_of_several_branches_missed_is_unmet(world: World) -> None:
    """D28: branches finish in any order, so a success beside it must not hide the failure."""

    async def picky(step: StepContext) -> Result:
        return BROKEN if "fan#1.a/" in step.step else Result.success()

    source = GOAL.replace("fan -> b -> join", "fan -> b -> goal; join").replace(", retry_target=fan", "")
    run = await (await world.process({"goal": [picky]})).start(source)
    assert (run.status, run.reason, run.stopped_step) == (RunStatus.FAILED, "goal_unmet", "goal")
    again = await (await world.process()).resume()
    assert again.status is RunStatus.COMPLETED, "a resume goes back to the goal itself"


async def test_what_branches_counted_goes_when_they_are_joined(world: World) -> None:
    """The state of a run does not grow with the number of fan-outs behind it."""
    source = pipeline(
        "a [prompt=x]; b [prompt=x]; tick [prompt=x]",
        'fan -> a -> join; fan -> b -> join -> tick -> exit;tick -> fan [condition="context.again=yes"]',
    )

    async def tick(step: StepContext) -> Result:
        return Result.success(again="yes" if step.execution < 20 else "no")

    run = await (await world.process({"tick": [tick]})).start(source)
    nodes = {"start", "fan", "join", "a", "b", "tick", "exit"}
    assert (run.visits["fan"], run.visits["tick"]) == (20, 20)
    assert nodes == run.outcomes.keys() >= run.visits.keys() | run.executions.keys()
    assert run.retries == {}


async def test_a_branch_that_leads_back_to_its_own_fan_out_is_stopped_with_a_reason(world: World) -> None:
    """Opening the same branches inside themselves would never end. The run itself may go that way."""
    source = pipeline(
        "a [prompt=x]; b [prompt=x]",
        'fan -> a -> join; a -> fan [condition="outcome=fail"]; fan -> b -> join -> exit;'
        'start -> a [condition="context.alone=yes"]',
    )
    process = await world.process({"a": [BROKEN]})
    run = await process.start(source)
    assert (run.status, run.reason) == (RunStatus.FAILED, "pipeline_error")
    assert "a branch of fan leads back to it" in run.detail
    assert sorted(world.ledger.steps) == ["fan#1.a/a#1", "fan#1.b/b#1"]


async def test_a_node_visited_too_often_in_one_branch_lets_the_others_finish_first(world: World) -> None:
    """C10: the ceiling counts for each line, and stops the run when no other line can go on."""
    source = pipeline(
        "a [prompt=x]; b [prompt=x]; c [prompt=x]",
        "fan -> a -> a; a -> join [weight=-1]; fan -> b -> c -> join -> exit",
    ).replace("digraph g {", "digraph g { graph [max_visits=3];")
    run = await (await world.process()).start(source)
    assert (run.status, run.reason) == (RunStatus.FAILED, "pipeline_error")
    assert "node a was visited 3 times" in run.detail
    assert world.ledger.steps.count("fan#1.a/a#1") == 1
    assert {"fan#1.b/c#1", "fan#1.a/a#3"} <= set(world.ledger.steps)


async def test_a_branch_may_lead_straight_to_the_join(world: World) -> None:
    run = await (await world.process()).start(
        pipeline("a [prompt=x]", "fan -> a -> join; fan -> join -> exit")
    )
    assert run.status is RunStatus.COMPLETED
    assert [(r["id"], r["status"], r["last_node"]) for r in run.context["parallel.results"]] == [
        ("a", "success", "a"),
        ("join", "success", "fan"),
    ]


ASKING = pipeline(
    'ask [shape=hexagon, label="Go?"]; a [prompt=x]; c [prompt=x]',
    "fan -> a -> join -> exit; fan -> ask; ask -> c [label=yes]; ask -> join [label=no]; c -> join",
).replace("shape=component", "shape=component, join_policy=first_success")


async def test_an_answer_that_comes_too_late_for_a_race_leaves_nothing_behind(world: World) -> None:
    """The gate was decided and its branch lost before it went on: there is no question any more."""
    door = Doorway()
    process, person = await world.process({"a": [door]}), await world.process()
    running = asyncio.create_task(
        process.start(ASKING.replace("join -> exit", "join -> last -> exit; last [prompt=x]"))
    )
    await door.entered()
    hold = Doorway()
    process.agent.script["last"] = [hold]
    await person.engine.answer("run", "yes", by="ann", run=False)
    door.open()
    await hold.entered()
    seen = (await person.load()).run
    assert (seen.gates, [g.gate for g in await gates_decided(person)]) == ({}, ["fan#1.ask/ask#1"])
    with pytest.raises(Refused, match="has no open gate"):
        await person.engine.answer("run", "no", by="bob", run=False)
    hold.open()
    assert (await running).status is RunStatus.COMPLETED


async def gates_decided(process: Process) -> list[GateDecided]:
    return [event for event in await process.events() if isinstance(event, GateDecided)]


async def test_a_pause_while_one_branch_waits_for_its_retry_keeps_its_number(world: World) -> None:
    """K15 for branches."""
    source = pipeline(
        "a [prompt=x, max_retries=3]; b [prompt=x]", "fan -> a -> join; fan -> b -> join -> exit"
    )
    door, stop = Doorway(), StopSwitch()
    process = await world.process({"a": [Result.retry("busy"), Result.success()], "b": [door]})
    process.clock.autojump = False
    running = asyncio.create_task(process.start(source, stop=stop))
    await door.entered()
    await until(lambda: process.clock.waiting > 0)
    stop.request("signal")
    door.open()
    run = await running
    assert (run.status, run.open_steps["fan#1.a/a#1"].retries_spent) == (RunStatus.PAUSED, 1)
    process.clock.autojump = True
    assert (await process.resume()).status is RunStatus.COMPLETED
    assert world.ledger.attempts("a") == [1, 2]


async def test_starting_at_another_node_leaves_the_branches_behind(world: World) -> None:
    """`--from` while branches are open: their attempts are closed, and what they came to is kept."""
    door, seen = Doorway(), list[Event]()
    process = await world.process(
        {"b": [door], "goal": [BROKEN]}, observe=lambda run, events: seen.extend(events)
    )
    running = asyncio.create_task(process.start(GOAL))
    await door.entered()
    await until(lambda: any(isinstance(e, StepFinished) and e.node == "goal" for e in seen))
    await process.die()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    second = await world.process()
    run = await second.resume(from_node="fan")
    assert (run.status, run.reroutes) == (RunStatus.COMPLETED, 0)
    assert "fan#2.b/b#1" in world.ledger.steps
    closed = [event.step for event in await second.events() if isinstance(event, AttemptInterrupted)]
    assert "fan#1.b/b#1" in closed
    assert await second.is_sound()


async def test_a_changed_pipeline_must_still_have_the_join_of_open_branches(
    world: World, tmp_path: Path
) -> None:
    """K6 for branches: where they are to meet is part of what is recorded."""
    path = tmp_path / "fan.dot"
    source = pipeline(
        "a [prompt=x]; b [prompt=x]; c [prompt=x]", "fan -> a -> c -> join; fan -> b -> c; join -> exit"
    )
    path.write_text(source, encoding="utf-8")
    door, stop = Doorway(), StopSwitch()
    process = await world.process({"a": [door], "b": [door]})
    read = process.engine.sources.read(str(path))
    running = asyncio.create_task(process.engine.start(read, StartRequest(run_id="run"), stop))
    await door.entered()
    stop.request("signal")
    door.open()
    assert (await running).run.status is RunStatus.PAUSED
    path.write_text(source.replace("join", "meet"), encoding="utf-8")
    with pytest.raises(Refused, match="run needs: join"):
        await process.resume(accept_changes=True)
    path.write_text(
        source.replace("c [prompt=x]", "c [prompt=y]; d [prompt=x]").replace("c -> join", "c -> d -> join"),
        encoding="utf-8",
    )
    run = await process.resume(accept_changes=True)
    assert (run.status, "fan#1.a/d#1" in world.ledger.steps) == (RunStatus.COMPLETED, True)
