"""Branches: beside each other, each with its own checkpoints; a crash repeats only what was unfinished."""

from __future__ import annotations

import asyncio

import pytest

from onward.engine.control.requests import ForkRequest
from onward.engine.stop import StopSwitch
from onward.errors import Refused, RunNotFound
from onward.handlers.port import StepContext
from onward.model.events import AttemptInterrupted, BranchFinished, StepStatus
from onward.model.ids import branch_of
from onward.model.result import Result
from onward.model.run import Run, RunStatus
from onward.store.port.store import Store
from tests.conformance.faults import WRITES, Died, Fault, FaultyStore
from tests.conformance.handlers import Act, Doorway
from tests.world import Process, World, until


def fan(*branches: str, fan: str = "", join: str = "", **attrs: str) -> str:
    """A fan-out to `branches`, each a chain like "a -> b", that meet at `join` and go on to `last`."""
    nodes = dict.fromkeys(node.strip() for branch in branches for node in branch.split("->"))
    declared = "\n".join(f'  {node} [prompt="do it", {attrs.get(node, "")}]' for node in (*nodes, "last"))
    edges = "\n".join(f"  fan -> {branch} -> join" for branch in branches)
    return f"""digraph fan {{
  start [shape=Mdiamond]; exit [shape=Msquare]
  fan [shape=component, {fan}]; join [shape=tripleoctagon, {join}]
{declared}
{edges}
  start -> fan
  join -> last -> exit
}}"""


def by_branch(completed: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for step in completed:
        found.setdefault(branch_of(step), []).append(step.rpartition("/")[2])
    return found


def results_of(run: Run) -> dict[str, str]:
    return {result["id"]: result["status"] for result in run.context["parallel.results"]}


async def test_every_branch_runs_on_its_own_copy_of_the_context_and_they_meet_at_the_fan_in(
    world: World,
) -> None:
    """D43, D44, P20, C8: branches stop at the fan-in and the run goes on there; nothing is merged."""

    async def note(step: StepContext) -> Result:
        return Result.success(seen=[*step.get("seen", []), step.node.id])

    process = await world.process({key: [note] for key in "abcd"})
    run = await process.start(fan("a -> b", "c", "d"), inputs={"seen": ["before"]})
    assert run.status is RunStatus.COMPLETED
    assert by_branch(await process.completed()) == {
        "": ["start#1", "fan#1", "join#1", "last#1", "exit#1"],
        "fan#1.a": ["a#1", "b#1"],
        "fan#1.c": ["c#1"],
        "fan#1.d": ["d#1"],
    }
    assert run.context["seen"] == ["before"]
    assert {r["id"]: r["context"] for r in run.context["parallel.results"]} == {
        "a": {"seen": ["before", "a", "b"]},
        "c": {"seen": ["before", "c"]},
        "d": {"seen": ["before", "d"]},
    }
    assert (run.parallels, list(run.branches)) == ({}, [""])
    assert await process.is_sound()


async def test_branches_are_under_way_at_the_same_time_but_no_more_than_max_parallel(world: World) -> None:
    """D43."""
    doors = {name: Doorway() for name in "abcd"}
    process = await world.process({name: [door] for name, door in doors.items()})
    running = asyncio.create_task(process.start(fan(*"abcd", fan="max_parallel=2")))
    await doors["a"].entered()
    await doors["b"].entered()
    assert sorted(world.ledger.steps) == ["fan#1.a/a#1", "fan#1.b/b#1"]
    doors["b"].open()
    await doors["c"].entered()
    assert "fan#1.d/d#1" not in world.ledger.steps
    for door in doors.values():
        door.open()
    assert (await running).status is RunStatus.COMPLETED


async def test_with_room_for_one_a_branch_is_finished_before_the_next_begins(world: World) -> None:
    process = await world.process()
    await process.start(fan("a -> b", "c -> d", fan="max_parallel=1"))
    assert world.ledger.steps == [
        *("fan#1.a/a#1", "fan#1.a/b#1", "fan#1.c/c#1", "fan#1.c/d#1"),
        "last#1",
    ]


async def crashed_in(world: World, source: str, node: str) -> Process:
    """A process that died inside `node`, when every other branch had done what it could."""
    door = Doorway()
    process = await world.process({node: [door]})
    running = asyncio.create_task(process.start(source))
    await door.entered()
    before = -1
    while before != len(process.store.calls):
        before = len(process.store.calls)
        for _ in range(100):
            await process.clock.until_idle()  # however long a database takes
            await asyncio.sleep(0)
    await process.die()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return await world.process()


async def test_a_crash_in_the_middle_repeats_only_the_branch_that_was_unfinished(world: World) -> None:
    """K14, O17: the other branches have their checkpoints, and the one that was cut off keeps its number."""
    process = await crashed_in(world, fan("a -> b", "c", "d -> e"), "b")
    world.ledger.calls.clear()
    run = await process.resume()
    assert (run.status, world.ledger.steps) == (RunStatus.COMPLETED, ["fan#1.a/b#1", "last#1"])
    assert world.ledger.attempts("b") == [1]
    assert results_of(run) == {"a": "success", "c": "success", "d": "success"}
    assert await process.is_sound()


async def test_a_failed_branch_makes_a_partial_success_and_its_reason_is_kept(world: World) -> None:
    process = await world.process({"b": [Result.fail("no luck", retryable=False)]})
    run = await process.start(fan("a", "b -> c"))
    assert (run.status, run.outcomes["fan"]) == (RunStatus.COMPLETED, "partial_success")
    assert results_of(run) == {"a": "success", "b": "fail"}
    assert run.context["parallel.results"][1]["failure_reason"] == "no luck"
    assert (run.context["parallel.fan_in.best_id"], "c" in run.outcomes) == ("a", False)


async def test_a_fan_in_fails_only_when_every_branch_failed(world: World) -> None:
    """C9: it then has the ways out of any failed step. D44."""
    broken = {key: [Result.fail("broken", retryable=False)] for key in "ab"}
    run = await (await world.process(broken)).start(fan("a", "b"))
    assert (run.status, run.reason) == (RunStatus.FAILED, "step_failed")
    assert "every branch failed" in run.detail
    rescued = await (await world.process(broken)).start(fan("a", "b", join="retry_target=last"), "second")
    assert (rescued.status, rescued.outcomes["join"]) == (RunStatus.COMPLETED, "fail")


async def test_the_fan_in_prefers_status_then_score_then_name(world: World) -> None:
    """D44."""

    async def scores(step: StepContext) -> Result:
        score = {"a": 1, "b": 7.5, "c": 7.5, "d": 99}[step.node.id]
        status = StepStatus.PARTIAL_SUCCESS if step.node.id == "d" else StepStatus.SUCCESS
        return Result(status=status, context_updates={"score": score})

    run = await (await world.process({key: [scores] for key in "abcd"})).start(fan(*"abcd"))
    assert (run.context["parallel.fan_in.best_id"], run.context["parallel.fan_in.best_outcome"]) == (
        "b",
        "success",
    )


@pytest.mark.parametrize(
    ("answer", "best"),
    [
        (Result(preferred_label="b"), "b"),
        (Result(suggested_next_ids=("nowhere", "b")), "b"),
        (Result(context_updates={"last_response": "I would take b, clearly."}), "b"),
        (Result(context_updates={"last_response": "both a and b are fine"}), "a"),
        (Result(), "a"),
    ],
)
async def test_with_a_prompt_a_model_chooses_and_the_rule_decides_if_it_names_none(
    world: World, answer: Result, best: str
) -> None:
    process = await world.process({"join": [answer]})
    run = await process.start(fan("a", "b", join='prompt="Which is best?"'))
    assert (run.status, run.context["parallel.fan_in.best_id"]) == (RunStatus.COMPLETED, best)
    assert "join#1" in world.ledger.steps


async def test_the_first_success_wins_and_the_losers_have_ended_before_it_is_recorded(world: World) -> None:
    slow, asked = Doorway(), Doorway()
    process = await world.process({"a": [slow], "b": [asked]})
    running = asyncio.create_task(process.start(fan("a", "b", "c -> d", fan="join_policy=first_success")))
    await slow.entered()
    await asked.entered()
    asked.open()
    run = await running
    assert slow.was_cancelled
    assert run.status is RunStatus.COMPLETED
    events = await process.events()
    ended = [(event.branch, event.status) for event in events if isinstance(event, BranchFinished)]
    assert dict(ended)["fan#1.a"] == "cancelled"
    stops = [event.step for event in events if isinstance(event, AttemptInterrupted)]
    assert stops == ["fan#1.a/a#1"]
    assert results_of(run)["a"] == "skipped"
    assert run.context["parallel.fan_in.best_id"] in ("b", "c")


async def test_without_any_success_the_first_success_policy_fails_and_the_fan_in_decides(
    world: World,
) -> None:
    broken = {key: [Result.fail("broken", retryable=False)] for key in "ab"}
    run = await (await world.process(broken)).start(
        fan("a", "b", fan="join_policy=first_success", join="retry_target=last")
    )
    assert (run.status, run.outcomes["fan"], run.outcomes["join"]) == (RunStatus.COMPLETED, "fail", "fail")


ASKING = """digraph asking {
  start [shape=Mdiamond]; exit [shape=Msquare]
  fan [shape=component]; join [shape=tripleoctagon]
  a [prompt="do"]; b [prompt="do"]; c [prompt="do"]; last [prompt="do"]
  ask [shape=hexagon, label="Go?"]
  start -> fan; fan -> ask; fan -> a -> b -> join
  ask -> c [label="[Y] yes"]; ask -> join [label="[N] no"]; c -> join
  join -> last -> exit
}"""


async def test_a_gate_in_a_branch_stops_the_run_only_when_no_other_branch_can_go_on(world: World) -> None:
    process = await world.process()
    run = await process.start(ASKING)
    assert (run.status, list(run.gates)) == (RunStatus.WAITING, ["fan#1.ask/ask#1"])
    assert world.ledger.steps == ["fan#1.a/a#1", "fan#1.a/b#1"]
    run = (await process.engine.answer("run", "yes", by="ann")).run
    assert run.status is RunStatus.COMPLETED
    assert world.ledger.steps[2:] == ["fan#1.ask/c#1", "last#1"]
    assert await process.is_sound()


async def test_an_answer_reaches_a_branch_while_another_is_at_work(world: World) -> None:
    door = Doorway()
    process, person = await world.process({"b": [door]}), await world.process()
    running = asyncio.create_task(process.start(ASKING))
    await door.entered()
    await person.engine.answer("run", "yes", by="ann", run=False)
    process.clock.advance(process.store.leases.heartbeat_s + 1)
    await until(lambda: "fan#1.ask/c#1" in world.ledger.steps)
    door.open()
    assert (await running).status is RunStatus.COMPLETED


async def test_a_retry_waits_in_its_branch_while_the_others_go_on(world: World) -> None:
    process = await world.process({"a": [Result.retry("busy"), Result.success()]})
    running = asyncio.create_task(process.start(fan("a", "b -> c -> d", a="max_retries=3")))
    await until(lambda: "fan#1.b/d#1" in world.ledger.steps)
    process.clock.advance(0.5)  # the first retry comes within 0.3 s
    assert ((await running).status, world.ledger.attempts("a")) == (RunStatus.COMPLETED, [1, 2])


async def test_doubt_in_a_branch_stops_the_run_only_when_no_other_branch_can_go_on(world: World) -> None:
    process = await crashed_in(world, fan("a -> b", "c -> d", a="repeatable=false"), "a")
    with pytest.raises(Refused, match="must not be repeated blindly"):
        await process.resume()
    run = await process.resume(action="skip")
    assert run.status is RunStatus.COMPLETED
    assert world.ledger.steps.count("fan#1.a/a#1") == 1
    assert by_branch(await process.completed())["fan#1.a"] == ["a#1", "b#1"]


async def test_a_signal_lets_every_branch_finish_its_step_and_begins_no_other(world: World) -> None:
    """K16 for branches: what is under way is finished, and the rest waits for the resume."""
    doors, stop = {name: Doorway() for name in "ac"}, StopSwitch()
    process = await world.process({name: [door] for name, door in doors.items()})
    running = asyncio.create_task(process.start(fan("a -> b", "c -> d"), stop=stop))
    for door in doors.values():
        await door.entered()
    stop.request("signal")
    doors["a"].open()
    await until(lambda: process.store.calls.count("log.append") >= 1)
    assert not running.done()
    doors["c"].open()
    run = await running
    assert (run.status, run.reason) == (RunStatus.PAUSED, "signal")
    assert sorted(world.ledger.steps) == ["fan#1.a/a#1", "fan#1.c/c#1"]
    assert (await process.resume()).status is RunStatus.COMPLETED
    assert sorted(world.ledger.steps[2:]) == ["fan#1.a/b#1", "fan#1.c/d#1", "last#1"]


@pytest.mark.parametrize("how", ["second signal", "pause now", "cancel"])
async def test_stopping_now_ends_what_is_under_way_in_every_branch(world: World, how: str) -> None:
    doors, stop = {name: Doorway() for name in "ab"}, StopSwitch()
    process = await world.process({name: [door] for name, door in doors.items()})
    person = await world.process()
    running = asyncio.create_task(process.start(fan("a", "b"), stop=stop))
    for door in doors.values():
        await door.entered()
    if how == "second signal":
        stop.request("signal", now=True)
    elif how == "pause now":
        await person.engine.pause("run", after="now")
    else:
        await person.engine.cancel("run")
    process.clock.advance(process.store.leases.heartbeat_s + 1)
    run = await running
    assert run.status is (RunStatus.CANCELLED if how == "cancel" else RunStatus.PAUSED)
    assert all(door.was_cancelled for door in doors.values())
    assert await process.is_sound()
    if how != "cancel":
        again = await world.process()
        assert (await again.resume()).status is RunStatus.COMPLETED
        assert again.agent.ledger.attempts("a") == [1, 1]


async def test_a_lost_lease_ends_every_branch(world: World) -> None:
    doors = {name: Doorway() for name in "ab"}
    process, thief = await world.process({n: [d] for n, d in doors.items()}), await world.process()
    running = asyncio.create_task(process.start(fan("a", "b")))
    for door in doors.values():
        await door.entered()
    taken = await thief.resume(take_over=True)
    assert taken.status is RunStatus.COMPLETED
    process.clock.advance(process.store.leases.heartbeat_s + 1)
    (outcome,) = await asyncio.gather(running, return_exceptions=True)
    assert type(outcome).__name__ == "LeaseLost"
    assert all(door.was_cancelled for door in doors.values())
    assert await thief.is_sound()


NESTED = """digraph nested {
  start [shape=Mdiamond]; exit [shape=Msquare]
  outer [shape=component]; inner [shape=component]
  meet [shape=tripleoctagon]; join [shape=tripleoctagon]
  a [prompt="do"]; b [prompt="do"]; c [prompt="do"]; d [prompt="do"]
  start -> outer; outer -> a -> inner; outer -> d -> join
  inner -> b -> meet; inner -> c -> meet
  meet -> join -> exit
}"""


async def test_fan_outs_nest(world: World) -> None:
    process = await world.process()
    run = await process.start(NESTED)
    assert run.status is RunStatus.COMPLETED
    found = by_branch(await process.completed())
    assert found[""] == ["start#1", "outer#1", "join#1", "exit#1"]
    assert found["outer#1.a"] == ["a#1", "inner#1", "meet#1"]
    assert found["outer#1.a/inner#1.b"] == ["b#1"]
    assert found["outer#1.d"] == ["d#1"]
    assert await process.is_sound()


async def test_a_branch_that_loses_with_branches_of_its_own_is_closed_from_within(world: World) -> None:
    doors = {name: Doorway() for name in "bc"}
    script = {name: [door] for name, door in doors.items()}
    process = await world.process({**script, "d": [when_entered(*doors.values())]})
    run = await process.start(NESTED.replace("outer [", "outer [join_policy=first_success, "))
    assert run.status is RunStatus.COMPLETED
    assert all(door.was_cancelled for door in doors.values())
    assert results_of(run) == {"a": "skipped", "d": "success"}
    assert await process.is_sound()


def when_entered(*doors: Doorway) -> Act:
    """An act that succeeds when somebody stands in every door."""

    async def act(step: StepContext) -> Result:
        for door in doors:
            await door.entered()
        return Result.success()

    return act


async def test_two_edges_to_one_node_are_two_branches(world: World) -> None:
    source = fan("a", "a")
    process = await world.process()
    run = await process.start(source)
    assert by_branch(await process.completed()).keys() == {"", "fan#1.a", "fan#1.a.2"}
    assert [result["id"] for result in run.context["parallel.results"]] == ["a", "a.2"]


async def test_an_edge_whose_condition_does_not_hold_opens_no_branch(world: World) -> None:
    source = fan("a", "b").replace("fan -> b", 'fan -> b [condition="context.wanted=yes"]; b')
    process = await world.process()
    await process.start(source)
    assert "fan#1.b" not in by_branch(await process.completed())
    await process.start(source, "second", inputs={"wanted": "yes"})
    assert "fan#1.b" in by_branch(await process.completed("second"))


async def test_a_fork_at_a_branchs_checkpoint_keeps_the_other_branches(world: World) -> None:
    process = await world.process()
    await process.start(fan("a -> b", "c -> d", fan="max_parallel=1"))
    point = next(c["seq"] for c in await process.checkpoints() if c["current_node"] == "a")
    child = (await process.engine.fork("run", ForkRequest(point, new_id="child"))).run
    world.ledger.calls.clear()
    run = await process.resume(child.id)
    assert run.status is RunStatus.COMPLETED
    assert world.ledger.steps == ["fan#1.a/b#1", "fan#1.c/c#1", "fan#1.c/d#1", "last#1"]
    assert await process.is_sound("child")


async def test_a_node_that_is_visited_in_a_branch_and_outside_is_counted_by_line(world: World) -> None:
    """Identity does not depend on what other branches did first."""
    source = fan("a -> b", "c -> b").replace("join -> last", "join -> b2; b2 [prompt=x]; b2 -> last")
    process = await world.process()
    await process.start(source)
    found = by_branch(await process.completed())
    assert (found["fan#1.a"], found["fan#1.c"]) == (["a#1", "b#1"], ["c#1", "b#1"])


async def test_dying_at_every_append_of_a_fan_out_comes_to_the_same_end(world: World) -> None:
    """K1 for branches: before and after each write; no finished step is performed again. K14."""
    calm = await world.process(wrap=_counting_writes)
    expected = by_branch(await _finished(calm, "calm"))
    for at in range(1, len(calm.store.calls) + 1):
        for fault in (Fault.DIE_BEFORE, Fault.DIE_AFTER):
            run_id = f"r{at}-{fault.name.lower().replace('_', '-')}"
            dying = await world.process(wrap=_counting_writes)
            dying.store.fail(fault, within=at)
            try:
                await dying.start(CRASHING, run_id)
            except Died:
                await dying.die()
            last = await world.process()
            before = list(await last.completed(run_id))
            performed = len(world.ledger.calls)
            assert by_branch(await _finished(last, run_id)) == expected
            again = [c.step for c in world.ledger.calls[performed:] if c.step in before]
            assert again == []
            assert await last.is_sound(run_id)


CRASHING = fan("a -> b", "c", "d -> e", fan="max_parallel=2")


def _counting_writes(store: Store) -> FaultyStore:
    return FaultyStore(store, counted=WRITES)


async def _finished(process: Process, run_id: str) -> list[str]:
    try:
        run = (await process.load(run_id)).run
    except RunNotFound:
        run = await process.start(CRASHING, run_id)
    if not run.is_final:
        run = await process.resume(run_id)
    assert run.status is RunStatus.COMPLETED
    return await process.completed(run_id)
