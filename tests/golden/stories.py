"""How each run of a golden database came to stand as it does, and what a later version must make of it.

The ways on: `resume` by a person, `answer` a gate, `command` on the command line, `worker` when it is due,
`refused` where a resume must be refused, and `none` where the run is over or another run takes care of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from onward.engine.control.requests import ForkRequest, StartRequest
from onward.engine.stop import StopSwitch
from onward.handlers.port import StepContext
from onward.machine.decide.owner_loss import LOSSES_MAX
from onward.model.gate import Answer
from onward.model.result import Result
from onward.model.run import Simulation
from tests.cli.shell import pipeline
from tests.conformance.faults import Died
from tests.conformance.handlers import Act, Doorway
from tests.golden.maker import LEASE_S, Maker
from tests.world import line

Story = Callable[[Maker], Awaitable[None]]
ABC = line("a", "b", "c")
BROKEN = Result.fail("no luck", retryable=False)
NOTING = "echo $ONWARD_STEP >> ledger"
TOOLS = pipeline(("a", NOTING), ("b", NOTING), ("c", NOTING))
GATED = """digraph gated {
  start [shape=Mdiamond]; exit [shape=Msquare]
  ask [shape=hexagon, label="Ship it?"]
  work [prompt="do it"]
  start -> work -> ask
  ask -> exit [label="[Y] yes"]
  ask -> work [label="[N] no"]
}"""
TIMED = GATED.replace('"Ship it?"', '"Ship it?", human.timeout=60s, human.default_choice=exit')
NO_TAKER = """digraph verdict {
  start [shape=Mdiamond]; exit [shape=Msquare]
  ask [shape=hexagon, label="Ship it?"]
  start -> ask; ask -> exit [label="[Y] yes"]
}"""
FAN = """digraph fan {
  start [shape=Mdiamond]; exit [shape=Msquare]
  fan [shape=component]; join [shape=tripleoctagon]
  a [prompt="do"]; b [prompt="do"]; c [prompt="do"]; last [prompt="do"]
  start -> fan; fan -> a -> b -> join; fan -> c -> join; join -> last -> exit
}"""
TWO_GATES = """digraph both {
  start [shape=Mdiamond]; exit [shape=Msquare]
  fan [shape=component]; join [shape=tripleoctagon]
  left [shape=hexagon, label="Left?"]; right [shape=hexagon, label="Right?"]; last [prompt="do"]
  start -> fan; fan -> left; fan -> right
  left -> join [label="[L] go"]; right -> join [label="[R] go"]; join -> last -> exit
}"""
GOAL = """digraph goal {
  graph [retry_target=work, max_reroutes=1]
  start [shape=Mdiamond]; exit [shape=Msquare]
  work [prompt="work", goal_gate=true, continue_on_fail=true]
  start -> work -> exit
}"""
NO_WAY = """digraph nowhere {
  start [shape=Mdiamond]; exit [shape=Msquare]
  a [prompt="a"]; b [prompt="b"]
  start -> a; a -> b [condition="context.flag=on"]; b -> exit
}"""
ENDLESS = """digraph endless {
  graph [max_visits=2]
  start [shape=Mdiamond]; exit [shape=Msquare]
  a [prompt="a"]; b [prompt="b"]
  start -> a -> b; b -> a; b -> exit [condition="context.never=true"]
}"""
AGAIN = """digraph again {
  start [shape=Mdiamond]; exit [shape=Msquare]
  work [prompt="work"]
  start -> work
  work -> exit [condition="context.round=2"]
  work -> work [condition="context.round!=2", loop_restart=true]
}"""
DEAD_END = """digraph dead_end {
  start [shape=Mdiamond]; exit [shape=Msquare]
  a [prompt="a"]; b [prompt="b"]
  start -> a; a -> b [condition="outcome=success"]; a -> exit [condition="outcome=fail"]
}"""
PARENT = """digraph parent {
  graph [stack.child_dotfile="child.dot"]
  start [shape=Mdiamond]; exit [shape=Msquare]
  manage [shape=house]; after [prompt="do"]
  start -> manage -> after -> exit
}"""
CEILING = line("a").replace("digraph line {", "digraph ceiling { graph [max_running=1];")


async def queued(maker: Maker) -> None:
    process = await maker.process()
    for source, start in (
        (ABC, StartRequest(run_id="queued", priority=5, exclusive_key="chat-1")),
        (CEILING, StartRequest(run_id="queued-ceiling")),
        (ABC, StartRequest(run_id="queued-stuck")),
    ):
        await process.engine.submit(process.pipeline(source), start)
    await process.store.measures.note_stuck("queued-stuck", "its claim failed")
    maker.expect("queued", "worker", "completed", ["a#1", "b#1", "c#1"])
    maker.expect("queued-ceiling", "worker", "completed", ["a#1"])
    maker.expect("queued-stuck", "worker", "completed", ["a#1", "b#1", "c#1"])


async def held(maker: Maker) -> None:
    """Running, and the process that holds them is dead."""
    await maker.died(ABC, "b", "held", exclusive_key="chat-2")
    maker.expect("held", "resume", "completed", ["b#1", "c#1"])
    await maker.died(ABC, "b", "held-requeue", on_owner_loss="requeue")
    maker.expect("held-requeue", "worker", "completed", ["b#1", "c#1"])
    await maker.died(line("a", "pay", "b", pay="repeatable=false"), "pay", "held-in-doubt")
    maker.expect("held-in-doubt", "resume", "completed", ["b#1"], action="skip")


async def held_with_requests(maker: Maker) -> None:
    """Somebody asked, and the holder died before it heard."""
    for run_id, ends in (("held-pause-asked", "paused"), ("held-cancel-asked", "cancelled")):
        door = Doorway()
        process, other = await maker.process({"b": [door]}), await maker.process()
        running = asyncio.create_task(process.start(ABC, run_id))
        ask = other.engine.pause if ends == "paused" else other.engine.cancel
        await door.entered()
        process.store.is_dead = True  # it hears nothing any more
        await ask(run_id, by="ann")
        await maker.die_under(process, running)
        maker.expect(run_id, "worker", ends, [])


async def interrupted(maker: Maker) -> None:
    for run_id, is_restart in (("interrupted-crash", False), ("interrupted-restart", True)):
        await maker.died(ABC, "b", run_id)
        await _swept(maker, run_id, is_restart=is_restart)
        maker.expect(run_id, "resume", "completed", ["b#1", "c#1"])
    await maker.died(line("a", "pay", "b", pay="repeatable=false"), "pay", "in-doubt")
    await _swept(maker, "in-doubt")
    maker.expect("in-doubt", "resume", "completed", ["pay#1", "b#1"], action="retry")


async def _swept(maker: Maker, run_id: str, *, is_restart: bool = False) -> None:
    """Take one run from its dead owner; those of other stories stay held."""
    process = await maker.process()
    await process.engine._sweeper._take(run_id, is_restart=is_restart)


async def waiting(maker: Maker) -> None:
    process = await maker.process()
    await process.start(GATED, "asking")
    maker.expect("asking", "answer", "completed", [], answers=[["ask#1", "yes"]])
    await process.start(GATED, "asking-again")
    await process.engine.answer("asking-again", "no", by="ann", text="not yet")
    maker.expect("asking-again", "answer", "completed", [], answers=[["ask#2", "yes"]])
    await process.start(TIMED, "asking-deadline")
    maker.expect("asking-deadline", "worker", "completed", [])
    await process.start(TWO_GATES, "asking-twice")
    gates = ["fan#1.left/left#1", "fan#1.right/right#1"]
    maker.expect("asking-twice", "answer", "completed", ["last#1"], answers=[[g, "go"] for g in gates])


async def failed(maker: Maker) -> None:
    process = await maker.process({"b": [BROKEN]})
    await process.start(ABC, "failed-step")
    maker.expect("failed-step", "resume", "completed", ["b#1", "c#1"])
    process = await maker.process({"work": [BROKEN]})
    await process.start(GOAL, "failed-goal")
    maker.expect("failed-goal", "resume", "completed", ["work#3"])
    process = await maker.process()
    await process.start(NO_WAY, "failed-no-way")
    maker.expect("failed-no-way", "resume", "completed", ["b#1"], from_node="b")
    await process.start(ENDLESS, "failed-pipeline")
    maker.expect("failed-pipeline", "resume", "completed", [], from_node="exit")
    await process.start(NO_TAKER, "failed-rejected")
    await process.engine.answer("failed-rejected", Answer.reject("not like this"), by="ann")
    maker.expect("failed-rejected", "refused", "failed", [])


async def crash_loop(maker: Maker) -> None:
    """Made first, while no other run is due."""
    await maker.died(ABC, "b", "failed-crash-loop", on_owner_loss="requeue")
    for _ in range(LOSSES_MAX - 1):
        await _swept(maker, "failed-crash-loop")
        maker.clock.advance(LEASE_S)
        process = await maker.process({"b": [Died("here")]})
        taken = await process.engine.take(StopSwitch())
        assert taken is not None
        try:
            await taken[1]
        except Died:
            await maker.die(process)
    await _swept(maker, "failed-crash-loop")
    maker.expect("failed-crash-loop", "resume", "completed", ["b#1", "c#1"])


async def paused(maker: Maker) -> None:
    stop = StopSwitch()
    process = await maker.process({"b": [_stopping(stop)]}, files=True)
    await process.start(ABC, "paused-signal", stop=stop)
    maker.expect("paused-signal", "resume", "completed", ["c#1"])
    await process.engine.submit(process.pipeline(ABC), StartRequest(run_id="paused-operator"))
    await process.engine.pause("paused-operator", by="ann")
    await process.engine.steer("paused-operator", "be brief", by="ann")
    maker.expect("paused-operator", "resume", "completed", ["a#1", "b#1", "c#1"])


def _stopping(stop: StopSwitch) -> Act:
    async def act(step: StepContext) -> Result:
        stop.request("signal")
        return Result.success()

    return act


async def over(maker: Maker) -> None:
    process = await maker.process({"a": [_storing], "work": [_counting]}, files=True)
    await process.start(ABC, "completed", inputs={"topic": "tea"})
    await process.start(DEAD_END, "completed-dead-end")
    await process.start(AGAIN, "completed-restarted")
    await process.start(GATED, "cancelled")
    await process.engine.cancel("cancelled", by="ann")
    for run_id in ("completed", "completed-dead-end", "completed-restarted"):
        maker.expect(run_id, "none", "completed", [])
    maker.expect("cancelled", "none", "cancelled", [])


async def _storing(step: StepContext) -> Result:
    step.artifacts.store("report", "the report", {"pages": [1, 2, 3]})
    return replace(Result.success(large="x" * 5000, small=1), response="an answer " * 500)


async def _counting(step: StepContext) -> Result:
    return Result.success(round=step.get("round", 0) + 1)


async def branches(maker: Maker) -> None:
    door = Doorway()
    process = await maker.process({"b": [door]})
    running = asyncio.create_task(process.start(FAN, "branches"))

    await door.entered()
    while "fan#1.c/c#1" not in await process.completed("branches"):  # noqa: ASYNC110 - the log tells no one
        await asyncio.sleep(0)
    await maker.die_under(process, running)
    maker.expect("branches", "resume", "completed", ["fan#1.a/b#1", "last#1"])
    race = FAN.replace("shape=component", "shape=component, join_policy=first_success")
    process = await maker.process({"a": [Doorway()]})
    await process.start(race, "branches-raced")
    maker.expect("branches-raced", "none", "completed", [])


async def forks(maker: Maker) -> None:
    """Of the run `completed`: one that nobody has begun, and one whose process died."""
    process = await maker.process({"c": [Died("here")]})
    (after_a,) = [
        point["seq"] for point in await process.checkpoints("completed") if point["next_node_id"] == "b"
    ]
    await process.engine.fork(
        "completed", ForkRequest(after_a, changes={"topic": "coffee"}, by="ann", new_id="fork")
    )
    await process.engine.fork("completed", ForkRequest(after_a, by="ann", new_id="fork-held"))
    try:
        await process.resume("fork-held", original=True)
    except Died:
        await maker.die(process)
    maker.expect("fork", "resume", "completed", ["b#1", "c#1"])
    maker.expect("fork-held", "resume", "completed", ["c#1"])


async def managed(maker: Maker) -> None:
    """A parent whose process died while its child was in its second step."""
    maker.write("child.dot", line("a", "b"))
    path = maker.write("parent.dot", PARENT)
    process = await maker.process({"b": [Died("here")]})
    try:
        await process.engine.start(process.engine.sources.read(path), StartRequest(run_id="manager"))
    except Died:
        await maker.die(process)
    maker.expect("manager", "resume", "completed", ["b#1", "after#1"])


async def retrying(maker: Maker) -> None:
    """One whose process died before the next attempt, and one that was handed back until its time."""
    slow = line("a", "b", "c", b='max_retries=3, retry_policy="patient"')
    maker.clock.autojump = True
    process = await maker.process({"b": [Result.retry("busy"), Died("here")]})
    try:
        await process.start(slow, "retrying")
    except Died:
        await maker.die(process)
    maker.expect("retrying", "resume", "completed", ["b#1", "c#1"])
    process = await maker.process({"b": [Result.retry("busy")] * 3})
    await process.engine.submit(process.pipeline(slow), StartRequest(run_id="retry-scheduled", priority=9))
    taken = await process.engine.take(StopSwitch())
    assert taken is not None
    assert taken[0].run.id == "retry-scheduled"
    await taken[1]
    maker.clock.autojump = False
    maker.expect("retry-scheduled", "worker", "completed", ["b#1", "c#1"])


async def changed(maker: Maker) -> None:
    """Its definition was mended, and the finished step got its way on."""
    path = maker.write("nowhere.dot", NO_WAY)
    process = await maker.process({"b": [Died("here")]})
    await process.engine.start(process.engine.sources.read(path), StartRequest(run_id="changed"))
    maker.write("nowhere.dot", NO_WAY.replace("context.flag=on", "outcome=success"))
    try:
        await process.resume("changed", accept_changes=True)
    except Died:
        await maker.die(process)
    maker.expect("changed", "resume", "completed", ["b#1"])


async def long(maker: Maker) -> None:
    """So long that it has a snapshot."""
    nodes = [f"n{number}" for number in range(14)]

    async def growing(step: StepContext) -> Result:
        return Result.success(text=step.node.id + "x" * 3900)

    await maker.died(line(*nodes), nodes[-1], "long", {node: [growing] for node in nodes[:-1]})
    maker.expect("long", "resume", "completed", [f"{nodes[-1]}#1"])


async def for_commands(maker: Maker) -> None:
    """Runs of shell commands and a simulated one, which the command line can continue by itself."""
    process = await maker.process({"b": [BROKEN]})
    await process.start(TOOLS, "cli-failed")
    maker.expect("cli-failed", "command", "completed", ["b#1", "c#1"], words=["resume", "cli-failed"])
    asking = TOOLS.replace("a -> b", 'a -> ask; ask -> b [label="[Y] yes"]; b').replace(
        "digraph line {", 'digraph line { ask [shape=hexagon, label="Go?"];'
    )
    await process.start(asking, "cli-asking")
    words = ["answer", "cli-asking", "yes"]
    maker.expect("cli-asking", "command", "completed", ["b#1", "c#1"], words=words)
    await maker.died(TOOLS, "c", "cli-held")
    maker.expect("cli-held", "command", "completed", ["c#1"], words=["resume", "cli-held"])
    await process.start(GATED, "cli-simulated", simulation=Simulation(real_tools=True))
    maker.expect("cli-simulated", "command", "completed", [], words=["answer", "cli-simulated", "yes"])


async def effects(maker: Maker) -> None:
    """One that was done, and one of which nobody knows."""
    process = await maker.process()
    await process.engine.effect("golden/done", lambda: {"paid": 7})
    await process.store.effects.begin("golden/begun", "token", at_us=maker.clock.now_us())
    await maker.die(process)


STORIES: tuple[Story, ...] = (
    crash_loop,
    retrying,
    queued,
    held,
    held_with_requests,
    interrupted,
    waiting,
    failed,
    paused,
    over,
    branches,
    forks,
    managed,
    changed,
    long,
    for_commands,
    effects,
)
