"""Forks inside a flow: what was answered before stays answered, and only the rest is done again."""

from __future__ import annotations

import pytest

from onward.engine.control.requests import ForkRequest
from onward.errors import InvalidInput, StepNotFound
from onward.flows.branches import gather
from onward.flows.define import flow, step
from onward.flows.values import now, uuid
from onward.model.run import Run, RunStatus
from tests.flows.living import Outside, begin, result, serving
from tests.world import Process, World

outside = Outside()


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    outside.done.clear()


@step
async def page(name: str) -> str:
    outside.do(f"page {name}")
    return f"{name} {outside.done[f'page {name}']}"


@step
async def stamp(text: str) -> str:
    outside.do("stamp")
    return text


@step(once=True)
async def pay() -> int:
    return outside.do("pay")


@flow
async def site() -> list[str]:
    first = await page("first")
    mark = str(uuid())
    front, back = await gather(page("front"), page("back"))
    await stamp(mark)
    await stamp(now().isoformat())
    paid = await pay()
    return [first, front, back, await page("last"), str(paid)]


async def forked(process: Process, start: str, run_id: str = "run", new_id: str = "fork") -> Run:
    await process.engine.fork(run_id, ForkRequest(from_step=start, new_id=new_id))
    return await process.resume(new_id, original=True)


async def test_a_fork_before_a_step_keeps_all_that_came_before(memory: World) -> None:
    process = await serving(memory, site)
    await begin(process, site.bind())
    before = outside.done.copy()
    run = await forked(process, "page#2")
    assert result(run) == ["first 1", "front 1", "back 1", "last 2", "1"]
    assert outside.done - before == {"page last": 1}
    assert await process.is_sound("fork")


async def test_a_fork_before_the_first_step_does_everything_again(memory: World) -> None:
    process = await serving(memory, site)
    await begin(process, site.bind())
    run = await forked(process, "page")
    assert result(run)[0] == "first 2"
    assert outside.done["pay"] == 2


async def test_a_fork_before_a_step_that_was_never_called_says_where_the_steps_are_listed(
    memory: World,
) -> None:
    process = await serving(memory, site)
    await begin(process, site.bind())
    with pytest.raises(StepNotFound, match=r"'pge'.*`onward calls run` lists the steps of its flow"):
        await forked(process, "pge")


async def test_a_fork_of_a_fork_draws_what_each_run_drew(memory: World) -> None:
    process = await serving(memory, site)
    await begin(process, site.bind())
    process.clock.advance(1_000)
    await forked(process, "stamp#2", new_id="child")
    process.clock.advance(1_000)
    run = await forked(process, "pay", run_id="child", new_id="grandchild")
    assert result(run)[0] == "first 1"
    again = await forked(process, "page#2", run_id="grandchild", new_id="fourth")
    assert result(again)[:3] == ["first 1", "front 1", "back 1"]


async def test_a_fork_takes_the_event_of_a_call_as_its_checkpoint(memory: World) -> None:
    process = await serving(memory, site)
    await begin(process, site.bind())
    log = await process.log()
    place = next(record.seq for record in log if record.kind == "CallFinished")
    await process.engine.fork("run", ForkRequest(place, new_id="fork"))
    run = await process.resume("fork", original=True)
    assert run.status is RunStatus.COMPLETED
    assert outside.done["page first"] == 1
    started = next(record.seq for record in log if record.kind == "StepStarted")
    with pytest.raises(InvalidInput, match="is not a checkpoint"):
        await process.engine.fork("run", ForkRequest(started, new_id="other"))


async def test_a_fork_of_a_flow_that_changed_continues_with_the_new_code(memory: World) -> None:
    is_changed = [False]

    @flow
    async def edited() -> list[str]:
        first = await page("first")
        second = await page("new") if is_changed[0] else await stamp("old")
        return [first, second]

    process = await serving(memory, edited)
    await begin(process, edited.bind())
    is_changed[0] = True
    assert result(await forked(process, "stamp")) == ["first 1", "new 1"]
