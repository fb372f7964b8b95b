"""Branches of a flow: gather and each, their keys, their failures, and what they write together."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import Any, cast

import pytest

from onward.errors import Refused, RunNotFound, StepFailed
from onward.flows.branches import each, gather
from onward.flows.define import flow, step
from onward.flows.handler import FlowHandler
from onward.flows.values import current, now, patch, uuid
from onward.handlers.calls import PastCall, Recorder
from onward.handlers.port import StepContext
from onward.model.result import Result
from onward.model.run import RunStatus
from tests.conformance.faults import Died, Fault
from tests.flows.living import Outside, answered, begin, called, live, result, serving
from tests.world import World

outside = Outside()


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    outside.done.clear()


@step
async def page(name: str) -> str:
    outside.do(f"page {name}")
    await asyncio.sleep(0)
    return name.upper()


@step
async def broken(name: str) -> str:
    outside.do(f"broken {name}")
    raise ValueError(name)


@step(once=True)
async def pay(name: str) -> int:
    return outside.do(f"pay {name}")


@step
async def shaky() -> str:
    if outside.do("shaky") < 2:
        raise ValueError("not yet")
    return "at last"


@step
async def stamp(text: str) -> str:
    outside.do(f"stamp {text}")
    return text


async def two_of(name: str) -> str:
    return await page(f"{name}1") + await page(f"{name}2")


@flow
async def site() -> list[object]:
    front, back = await gather(page("front"), two_of("back"))
    shots = await each(page, ["a", "b", "c"], limit=2)
    paid = await gather(pay("x"), pay("y"))
    try:
        await broken("caught")
    except StepFailed as error:
        front += error.text
    await stamp(str(uuid()))
    await stamp(now().isoformat())
    return [front, back, shots, list(paid)]


SITE = ["FRONTcaught", "BACK1BACK2", ["A", "B", "C"], [1, 1]]


async def test_branches_have_keys_by_position(memory: World) -> None:
    process = await serving(memory, site)
    assert result(await begin(process, site.bind())) == SITE
    keys = await called(process)
    assert sorted(keys) == sorted(
        [
            *("gather.0/page", "gather.1/page", "gather.1/page#2", "each.0/page", "each.1/page"),
            *("each.2/page", "gather#2.0/pay", "gather#2.1/pay", "broken", "stamp", "stamp#2"),
        ]
    )
    assert await process.is_sound()


DONE_BY = {"gather.0/page": "page front", "gather.1/page": "page back1", "each.0/page": "page a"}
"""What the ledger outside calls what these keys do."""


async def killed_at_every_append(world: World, fault: Fault, recovering: type[FlowHandler]) -> None:
    """Kill one process at each call to its store, and let another one go on.

    Fails if a step ran again whose answer the log had, or if anything was paid twice.
    """
    whole = await serving(world, site)
    await begin(whole, site.bind(), "whole")
    for at in range(1, len(whole.store.calls) + 1):
        outside.done.clear()
        run_id = f"run-{at}"
        dying = await serving(world, site)
        dying.store.fail(fault, within=at)
        kept: Counter[str] = Counter()
        try:
            await begin(dying, site.bind(), run_id)
        except Died:
            await dying.die()
            looking = await serving(world, site)
            with contextlib.suppress(RunNotFound):
                kept.update(await answered(looking, run_id))
        done = outside.done.copy()
        process = await world.process(handlers={site.kind: recovering(site)})
        try:
            run = await live(process, site.bind(), run_id)
        except Refused as refused:  # a payment is in doubt
            run = await process.resume(
                run_id, action="continue", answers={key: 1 for key in refused.details["calls"]}
            )
        assert result(run) == SITE
        assert all(outside.done[f"pay {name}"] <= 1 for name in "xy"), "paid twice"
        for key, what in DONE_BY.items():
            if kept[key]:
                assert outside.done[what] == done[what], f"{key} ran again after a kill at call {at}"
        assert await process.is_sound(run_id)


@pytest.mark.parametrize("fault", [Fault.DIE_BEFORE, Fault.DIE_AFTER])
@pytest.mark.slow
async def test_a_flow_killed_at_every_append_repeats_nothing(world: World, fault: Fault) -> None:
    await killed_at_every_append(world, fault, FlowHandler)


class Forgetful:
    """A recorder that forgets the newest answer of each branch."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recorder, name)

    async def history(self) -> list[PastCall]:
        newest = {past.key.rpartition("/")[0]: past for past in await self._recorder.history()}
        return [
            past for past in await self._recorder.history() if newest[past.key.rpartition("/")[0]] != past
        ]


class Mutant(FlowHandler, frozen=True):
    """Serves flows with that recorder."""

    async def run(self, step: StepContext) -> Result:
        step.recorded = cast("Recorder", Forgetful(step.recorder))
        return await super().run(step)


async def test_a_mutant_that_forgets_the_newest_answer_of_a_branch_is_caught(memory: World) -> None:
    """What the test above judges by is a ledger outside: it must see a step that ran again."""
    with pytest.raises(AssertionError, match="ran again"):
        await killed_at_every_append(memory, Fault.DIE_AFTER, Mutant)


async def test_all_branches_end_before_the_first_failure_by_position_is_raised(memory: World) -> None:
    @flow
    async def failing() -> None:
        await gather(page("a"), broken("second"), page("c"), broken("fourth"))

    process = await serving(memory, failing)
    run = await begin(process, failing.bind())
    assert "step 'gather.1/broken' failed: ValueError: second" in run.detail
    assert outside.done == {"page a": 1, "broken second": 1, "page c": 1, "broken fourth": 1}
    await process.resume()
    assert outside.done == {"page a": 1, "broken second": 2, "page c": 1, "broken fourth": 2}


async def test_failures_are_returned_in_their_places_if_asked_for(memory: World) -> None:
    @flow
    async def tolerant() -> list[str]:
        found = await each(broken, ["a", "b"], return_exceptions=True)
        return [str(one) for one in found]

    process = await serving(memory, tolerant)
    assert result(await begin(process, tolerant.bind())) == [
        "step 'each.0/broken' failed: ValueError: a",
        "step 'each.1/broken' failed: ValueError: b",
    ]


async def test_a_failure_counts_only_once_its_own_branch_has_gone_on(memory: World) -> None:
    gate = asyncio.Event()

    @step
    async def late() -> str:
        outside.do("late")
        return "late"

    @flow
    async def beside() -> str:
        found = await gather(shaky(), late())
        return found[0]

    process = await serving(memory, beside)
    run = await begin(process, beside.bind())
    assert run.status is RunStatus.FAILED
    assert result(await process.resume()) == "at last"
    assert outside.done == {"shaky": 2, "late": 1}
    gate.set()


async def test_a_caught_failure_counts_once_branches_after_it_have_recorded_something(memory: World) -> None:
    @flow
    async def lenient() -> str:
        try:
            first = await shaky()
        except StepFailed:
            first = "gave up"
        await gather(page("a"), page("b"))
        if outside.do("stop") < 2:
            raise ValueError("not yet")
        return first

    process = await serving(memory, lenient)
    assert (await begin(process, lenient.bind())).status is RunStatus.FAILED
    assert result(await process.resume()) == "gave up"
    assert outside.done == {"shaky": 1, "page a": 1, "page b": 1, "stop": 2}


async def test_branches_that_finish_together_are_written_together(memory: World) -> None:
    @flow
    async def many() -> int:
        return len(await each(page, [str(number) for number in range(200)], limit=100))

    process = await serving(memory, many)
    assert result(await begin(process, many.bind())) == 200
    appends = process.store.calls.count("log.append")
    assert appends < 30, appends
    assert await process.is_sound()


async def test_an_extra_call_in_a_branch_that_ended_is_refused(memory: World) -> None:
    is_changed = [False]

    async def one(name: str) -> str:
        if is_changed[0]:
            await stamp("new")
        return await page(name)

    @flow
    async def grown() -> str:
        await gather(one("a"), one("b"))
        await stamp("after")
        return await shaky()

    process = await serving(memory, grown)
    await begin(process, grown.bind())
    is_changed[0] = True
    run = await process.resume()
    assert (run.status, run.reason) == (RunStatus.FAILED, "flow_changed")
    assert outside.done["stamp new"] == 0


async def test_a_step_before_a_gather_that_began_is_refused(memory: World) -> None:
    is_changed = [False]

    @flow
    async def moved() -> str:
        if is_changed[0]:
            await stamp("new")
        await gather(page("a"), page("b"))
        return await shaky()

    process = await serving(memory, moved)
    await begin(process, moved.bind())
    is_changed[0] = True
    run = await process.resume()
    assert "the history has 'gather.0/page' (event 5) here, and the code now calls 'stamp'" in run.detail
    assert outside.done["stamp new"] == 0


async def test_fewer_branches_than_the_history_has_are_refused(memory: World) -> None:
    names = ["a", "b", "c"]

    @flow
    async def shrunk() -> str:
        await each(page, list(names))
        return await shaky()

    process = await serving(memory, shrunk)
    await begin(process, shrunk.bind())
    names.pop()
    run = await process.resume()
    assert run.reason == "flow_changed"


@pytest.mark.parametrize("place", ["before a step", "before a gather"])
async def test_a_patch_leaves_old_runs_as_they_were(memory: World, place: str) -> None:
    is_new = [False]

    @flow
    async def patched() -> str:
        if is_new[0] and patch("stamped"):
            await stamp("new")
        if place == "before a step":
            await page("a")
        else:
            await gather(page("a"), page("b"))
        return await shaky()

    process = await serving(memory, patched)
    await begin(process, patched.bind(), "old")
    is_new[0] = True
    assert result(await process.resume("old")) == "at last"
    assert outside.done["stamp new"] == 0
    outside.done.clear()
    await begin(process, patched.bind(), "new")
    assert result(await process.resume("new")) == "at last"
    assert outside.done["stamp new"] == 1


async def test_time_and_chance_are_the_same_whenever_the_flow_runs(memory: World) -> None:
    seen: list[list[str]] = []

    @flow
    async def drawing() -> str:
        drawn = [str(uuid()), str(uuid()), now().isoformat(), str(current().random.random())]
        await page("x")
        drawn += [now().isoformat(), str(uuid())]
        await gather(stamp(str(uuid())), stamp(drawn[0]))
        seen.append(drawn)
        return await shaky()

    process = await serving(memory, drawing)
    await begin(process, drawing.bind())
    process.clock.advance(1_000)
    other = await serving(memory, drawing)
    other.clock.advance(5_000)
    assert result(await other.resume()) == "at last"
    assert seen[0] == seen[1]
    assert len(set(seen[0][:4])) == 4


async def test_a_lost_reply_of_a_group_loses_and_repeats_nothing(memory: World) -> None:
    @step
    async def whole() -> str:
        await asyncio.sleep(0)
        return "whole"

    @flow
    async def mixed() -> list[str]:
        found = await each(lambda number: whole(), range(50), limit=50)
        return found

    process = await serving(memory, mixed)
    process.store.fail(Fault.LOSE_REPLY, within=3)
    assert result(await begin(process, mixed.bind())) == ["whole"] * 50
    assert await process.is_sound()
