"""`loop_restart`: the run ends as another one, which is made once and begins at the edge's target."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from onward.engine.stop import StopSwitch
from onward.errors import RunNotFound
from onward.handlers.port import StepContext
from onward.model.events import Event
from onward.model.result import Result
from onward.model.run import Run, RunStatus
from onward.store.port.runs import RunQuery
from onward.store.port.store import Store
from tests.conformance.faults import WRITES, Died, Fault, FaultyStore
from tests.conformance.handlers import Act
from tests.world import Process, World

AGAIN = """digraph again {
  start [shape=Mdiamond]; exit [shape=Msquare]
  plan [prompt="plan"]; work [prompt="work"]
  start -> plan -> work
  work -> exit [condition="context.round=3"]
  work -> plan [condition="context.round!=3", loop_restart=true]
}"""


def counting() -> Act:
    async def act(step: StepContext) -> Result:
        return Result.success(round=step.get("round", 0) + 1, last_response="x")

    return act


async def chain_of(process: Process, run_id: str) -> list[Run]:
    """A run and all that took over from it."""
    runs = [(await process.load(run_id)).run]
    while runs[-1].restarted_as is not None:
        runs.append((await process.load(runs[-1].restarted_as)).run)
    return runs


async def test_the_run_is_completed_as_another_that_is_linked_to_it(world: World) -> None:
    process = await world.process({"work": [counting()]})
    last = await process.start(AGAIN)
    chain = await chain_of(process, "run")
    assert [run.status for run in chain] == [RunStatus.COMPLETED] * 3
    assert [run.reason for run in chain] == ["restarted_as", "restarted_as", ""]
    assert [run.restart_of for run in chain] == [None, "run", chain[1].id]
    assert [run.restarts for run in chain] == [0, 1, 2]
    assert last == chain[-1]
    assert await process.completed(chain[1].id) == ["plan#1", "work#1"]
    assert all([await process.is_sound(run.id) for run in chain])


async def test_the_new_run_has_fresh_counters_and_what_handlers_left_but_not_how_the_old_one_went(
    world: World,
) -> None:
    """C15: everything but the engine's own keys is carried, unless the edge says what to keep."""
    process = await world.process({"work": [counting()]})
    await process.start(AGAIN, inputs={"topic": "tea"})
    second = (await chain_of(process, "run"))[1]
    first_event = (await process.events(second.id))[0]
    assert first_event.context == {"topic": "tea", "round": 1}  # type: ignore[attr-defined]
    kept = AGAIN.replace("loop_restart=true", 'loop_restart=true, loop_restart_keep="round"')
    await process.start(kept, "keeping", inputs={"topic": "tea"})
    second = (await chain_of(process, "keeping"))[1]
    assert (await process.events(second.id))[0].context == {"round": 1}  # type: ignore[attr-defined]


async def test_restarts_have_a_ceiling(world: World) -> None:
    process = await world.process({"work": [counting()]})
    last = await process.start(AGAIN.replace("digraph again {", "digraph again { max_restarts=1;"))
    assert (last.status, last.reason, last.restarts) == (RunStatus.FAILED, "pipeline_error", 1)
    assert "max_restarts" in last.detail


async def test_a_branch_cannot_restart_its_run(world: World) -> None:
    """The checker lets it pass, because the run itself could take the same edge."""
    source = """digraph g {
      start [shape=Mdiamond]; exit [shape=Msquare]; fan [shape=component]; join [shape=tripleoctagon]
      a [prompt=x]; b [prompt=x]
      start -> fan; fan -> a; fan -> b -> join; a -> b [loop_restart=true]; join -> exit
      start -> a [condition="context.alone=yes"]
    }"""
    run = await (await world.process()).start(source)
    assert (run.status, run.reason) == (RunStatus.FAILED, "pipeline_error")
    assert "inside a parallel branch" in run.detail


async def test_asked_to_stop_the_new_run_is_left_queued_and_can_be_resumed(world: World) -> None:
    stop = StopSwitch()

    def observe(run: Run, events: Sequence[Event]) -> None:
        if run.restarted_as is not None:
            stop.request("signal")

    process = await world.process({"work": [counting()]}, observe=observe)
    left = await process.start(AGAIN, stop=stop)
    assert (left.restart_of, left.status) == ("run", RunStatus.QUEUED)
    assert (await (await world.process({"work": [counting()]})).resume(left.id)).status is RunStatus.COMPLETED


async def live(process: Process, run_id: str) -> Run:
    """Bring a run and its successors to an end from whatever state they are found in."""
    try:
        run = (await process.load(run_id)).run
    except RunNotFound:
        run = await process.start(AGAIN, run_id)
    while run.status is not RunStatus.COMPLETED or run.restarted_as is not None:
        if run.restarted_as is not None:
            run = (await process.load(run.restarted_as)).run
        else:
            run = await process.resume(run.id)
    return run


def counting_writes(store: Store) -> FaultyStore:
    return FaultyStore(store, counted=WRITES)


@pytest.mark.parametrize("fault", [Fault.DIE_BEFORE, Fault.DIE_AFTER])
async def test_dying_at_any_write_makes_the_new_run_exactly_once(world: World, fault: Fault) -> None:
    calm = await world.process({"work": [counting()]}, wrap=counting_writes)
    await live(calm, "calm")
    for at in range(1, len(calm.store.calls) + 1):
        run_id = f"run-{at}"
        dying = await world.process({"work": [counting()]}, wrap=counting_writes)
        dying.store.fail(fault, within=at)
        with pytest.raises(Died):
            await live(dying, run_id)
        await dying.die()
        process = await world.process({"work": [counting()]})
        await live(process, run_id)
        chain = await chain_of(process, run_id)
        assert [run.context["round"] for run in chain] == [1, 2, 3]
        assert all([await process.is_sound(run.id) for run in chain])
        listed = await process.store.runs.list(RunQuery(limit=1000))
        assert len(listed) == 3 * (at + 1), "no run was made twice"
