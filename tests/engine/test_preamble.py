"""What a step is told about its run when it asks, read from the end of the log."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from onward.engine.attempt import EVENTS_READ
from onward.engine.control.requests import ForkRequest
from onward.engine.log import READ_ALL
from onward.handlers.port import StepContext
from onward.model.result import Result
from onward.model.run import RunStatus
from onward.store.port.log import RunLog, StoredEvent
from onward.store.port.store import Store
from tests.conformance.faults import Around, Fault, FaultyStore
from tests.conformance.handlers import Act
from tests.engine.test_parallel import fan
from tests.engine.test_resume_doors import crashed
from tests.world import World, line


class Asked:
    """An act that asks for its preamble and keeps what it was told."""

    def __init__(self, *modes: str) -> None:
        self.modes, self.told = modes or ("",), list[str]()

    async def __call__(self, step: StepContext) -> Result:
        self.told += [await step.preamble(mode) for mode in self.modes]
        return Result.success()


class Counting:
    """Wraps a store and keeps how much was asked for in each reading back."""

    def __init__(self) -> None:
        self.limits: list[int] = []

    def __call__(self, store: Store) -> FaultyStore:
        limits = self.limits

        class Counted(Around[RunLog]):
            async def read(self, run_id: str, *, after: int, limit: int) -> Sequence[StoredEvent]:
                if limit < READ_ALL:  # else a heartbeat saw the log grow and looks for requests
                    limits.append(limit)
                return await self.part.read(run_id, after=after, limit=limit)

        return FaultyStore(store, log=Counted)


async def test_a_step_is_told_what_its_fidelity_says(world: World) -> None:
    asks = Asked()
    process = await world.process({"a": [Result.success(topic="tides")], "b": [asks]})
    source = line("a", "b").replace("digraph line {", 'digraph line {\n  goal="a story"')
    await process.start(source)
    assert asks.told == [
        "Goal: a story\nRun: run\n\nCompleted stages:\n- a: success\n\nContext:\n- topic = tides"
    ]


async def test_a_step_may_ask_for_another_mode_and_full_tells_nothing(world: World) -> None:
    asks = Asked("truncate", "full", "summary:high")
    process = await world.process({"a": [asks]})
    await process.start(line("a"))
    assert asks.told[:2] == ["Run: run", ""]
    assert asks.told[2].startswith("Run: run\n\nSo far: steps finished: 1;")


async def test_a_mode_that_does_not_exist_fails_the_step_with_a_sentence(world: World) -> None:
    process = await world.process({"a": [Asked("best")]})
    assert "'best' is not a fidelity; use one of full, " in (await process.start(line("a"))).detail


async def test_a_step_that_does_not_ask_costs_no_reading(world: World) -> None:
    asks, counting = Asked(), Counting()
    process = await world.process({"c": [asks]}, wrap=counting)
    await process.start(line("a", "b", "c", "d"))
    assert (len(asks.told), len(counting.limits)) == (1, 1)


async def test_a_resumed_step_is_told_what_happened_before_it_and_that_it_was_cut_off(world: World) -> None:
    """R6, K12: the summary that stands in for the lost session speaks of what the dead process did."""
    source = line("a", "b", "c").replace("digraph line {", "digraph line {\n  default_fidelity=full")
    await crashed(world, source, at="b")
    asks = Asked()
    run = await (await world.process({"b": [asks]})).resume()
    assert run.status is RunStatus.COMPLETED
    (told,) = asks.told
    assert "Completed stages:\n- a: success\n" in told
    assert "- the run was interrupted (crash): " in told
    assert "- user resumed the run\n" in told


async def test_a_branch_is_told_its_own_story(world: World) -> None:
    """C18: not that of the branch beside it, whichever was faster."""
    asks, last = {name: Asked() for name in "bd"}, Asked()
    script: dict[str, list[Act]] = {
        "a": [Result.success(mine="a")],
        "c": [Result.success(mine="c")],
        "b": [asks["b"]],
        "d": [asks["d"]],
        "last": [last],
    }
    process = await world.process(script)
    await process.start(fan("a -> b", "c -> d"), inputs={"shared": 1})
    for name, before in (("b", "a"), ("d", "c")):
        (told,) = asks[name].told
        assert told == (
            f"Run: run\n\nCompleted stages:\n- {before}: success\n\nContext:\n- mine = {before}\n- shared = 1"
        )
    assert "Completed stages:\n- fan: success\n- join: success\n" in last.told[0]


async def test_a_fork_is_told_what_its_parent_did(world: World) -> None:
    asks = Asked("summary:medium")
    process = await world.process({"b": [asks]})
    await process.start(line("a", "b"))
    point = next(c["seq"] for c in await process.checkpoints() if c["current_node"] == "a")
    await process.engine.fork("run", ForkRequest(point, new_id="child"))
    await process.resume("child", original=True)
    assert "Run: child" in asks.told[1]
    assert f"- the run was forked from run run at event {point}" in asks.told[1]
    assert "- a: success\n" in asks.told[1]


async def test_the_cost_of_asking_does_not_grow_with_the_runs_age(world: World) -> None:
    """Only the end of a long log is read, and the text says that there was more."""
    nodes = [f"n{number}" for number in range(EVENTS_READ["compact"])]
    asks, counting = Asked(), Counting()
    process = await world.process({nodes[-1]: [asks]}, wrap=counting)
    await process.start(line(*nodes))
    assert counting.limits == [EVENTS_READ["compact"]]
    assert "- earlier stages are left out\n" in asks.told[0]


@pytest.mark.parametrize("times", [3, 1_000])
async def test_a_database_that_is_out_of_reach_while_a_step_asks(world: World, times: int) -> None:
    """A short outage is waited for; a long one costs an attempt and not the step."""
    asks = Asked()
    process = await world.process()

    async def ask(step: StepContext) -> Result:
        if step.attempt == 1:
            process.store.fail(Fault.REFUSE, times=times)
        try:
            return await asks(step)
        finally:
            process.store.fault = None  # it is over when the step gives up

    process.agent.script["a"] = [ask]
    run = await process.start(line("a", a="max_retries=1"))
    assert run.status is RunStatus.COMPLETED
    assert len(asks.told) == 1
    assert world.ledger.attempts("a") == ([1] if times == 3 else [1, 2])
