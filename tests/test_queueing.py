"""The Python surface and the queue: runs are left to workers, found, followed and awaited."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from onward import Onward, Run, RunStatus, StepContext, Submission
from onward.clock import SystemClock
from onward.errors import InvalidInput, RefusedInList, StillGoing
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.store import Store
from tests.test_pause import GATED
from tests.world import line

DOUBLE = line("a", a="type=double")


@pytest.fixture
def app(store: Store) -> Onward:
    app = Onward(store)

    @app.handler("double")
    async def double(step: StepContext) -> dict[str, Any]:
        return {"doubled": int(step.get("n") or 0) * 2}

    return app


async def test_a_submitted_run_is_executed_by_a_worker_in_the_same_program(app: Onward) -> None:
    run = await app.submit(await app.pipeline(DOUBLE), inputs={"n": 4})
    assert run.status is RunStatus.QUEUED
    async with app.worker():
        ended = await app.wait(run)
    assert (ended.status, ended.context["doubled"]) == (RunStatus.COMPLETED, 8)


async def test_a_worker_can_be_run_until_nothing_is_left(app: Onward) -> None:
    await app.submit_many(await app.pipeline(DOUBLE), [{"n": n} for n in range(5)])
    assert (await app.worker(until_idle=True).run()).executed == 5


async def test_a_worker_whose_block_ends_hands_its_run_back_after_the_step(store: Store) -> None:
    app, begun, go_on = Onward(store), asyncio.Event(), asyncio.Event()

    @app.handler("first")
    async def first(step: StepContext) -> None:
        begun.set()
        await go_on.wait()

    @app.handler("second")
    async def second(step: StepContext) -> None:
        raise AssertionError("it was to be left to another worker")

    run = await app.submit(await app.pipeline(line("a", "b", a="type=first", b="type=second")))
    async with app.worker() as worker:
        await begun.wait()
        worker.stop()
        go_on.set()
    left = await app.get(run.id)
    assert (left.status, left.next_node) == (RunStatus.QUEUED, "b")


async def test_what_a_block_raises_comes_out_and_its_worker_has_stopped(app: Onward) -> None:
    with pytest.raises(ZeroDivisionError):
        async with app.worker():
            raise ZeroDivisionError
    run = await app.submit(await app.pipeline(DOUBLE))
    assert [task for task in asyncio.all_tasks() if task.get_name() == "onward worker"] == []
    assert (await app.get(run.id)).status is RunStatus.QUEUED


async def test_a_worker_that_fails_ends_the_block_with_its_error(app: Onward) -> None:
    """Otherwise the block would wait for runs that nothing executes."""
    with pytest.raises(InvalidInput, match="concurrency"):
        app.worker(concurrency=0)
    broken = Onward("postgresql://127.0.0.1:1/nothing")
    with pytest.raises(Exception, match=r"cannot reach|refused|connect"):
        async with broken.worker():
            await asyncio.Event().wait()
    assert not asyncio.current_task().cancelling()  # type: ignore[union-attr]


async def test_many_runs_are_created_in_order_and_in_few_transactions(app: Onward) -> None:
    runs = await app.submit_many(await app.pipeline(DOUBLE), [{"n": n} for n in range(300)], tags=["bulk"])
    assert [run.context["n"] for run in runs] == list(range(300))
    found = await app.list(tags=["bulk"], limit=1_000)
    assert {one["id"] for one in found["runs"]} == {run.id for run in runs}


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (Submission(run_id="No Good"), "run id"),
        (Submission(tags=("no good",)), "tag"),
        (Submission(priority=2**40), "priority"),
        (Submission(inputs={"n": object()}), "n"),
        (Submission(run_id="first"), "belongs to an earlier run"),
        (Submission(run_id="there"), "already exists"),
        (Submission(key="used", inputs={"n": 2}), "used for another request"),
    ],
    ids=["id", "tag", "priority", "value", "twice", "exists", "key"],
)
async def test_one_bad_run_of_many_refuses_all_and_is_named(app: Onward, bad: Submission, says: str) -> None:
    pipeline = await app.pipeline(DOUBLE)
    await app.submit(pipeline, run_id="there")
    await app.submit(pipeline, key="used", inputs={"n": 1})
    with pytest.raises(RefusedInList, match=r"^number 3 of the list: .*nothing was created") as refused:
        await app.submit_many(pipeline, [Submission(run_id="first"), {"n": 1}, bad])
    assert (refused.value.number, says in str(refused.value)) == (2, True)
    assert len((await app.list())["runs"]) == 2


async def test_the_same_key_again_finds_the_run_that_the_first_one_created(app: Onward) -> None:
    pipeline = await app.pipeline(DOUBLE)
    first = await app.submit(pipeline, inputs={"n": 1}, key="order-7")
    again = await app.submit(pipeline, inputs={"n": 1}, key="order-7")
    (many,) = await app.submit_many(pipeline, [Submission(inputs={"n": 1}, key="order-7")])
    assert first.id == again.id == many.id


async def test_a_list_has_filters_and_goes_on_where_a_page_ended(app: Onward) -> None:
    pipeline = await app.pipeline(DOUBLE, name="double")
    runs = await app.submit_many(pipeline, [Submission(tags=("x", f"t{n}")) for n in range(5)], tags=["all"])
    await app.cancel(runs[0].id)
    first = await app.list(statuses=["queued"], tags=["x"], limit=3)
    rest = await app.list(statuses=[RunStatus.QUEUED], tags=["x"], limit=3, cursor=first["cursor"])
    assert [one["id"] for one in (*first["runs"], *rest["runs"])] == [run.id for run in reversed(runs[1:])]
    assert rest["cursor"] is None
    (one,) = (await app.list(tags=["t0", "all"]))["runs"]
    assert (one["id"], one["tags"]) == (runs[0].id, ["all", "t0", "x"])
    with pytest.raises(InvalidInput, match="'gone' is not a status; use one of queued"):
        await app.list(statuses=["gone"])


async def test_events_are_followed_until_the_run_has_ended(app: Onward) -> None:
    run = await app.submit(await app.pipeline(DOUBLE))
    assert [event["kind"] async for event in app.events(run.id)] == ["RunCreated"]
    async with app.worker():
        seen = [event["kind"] async for event in app.events(run.id, after=1, follow=True)]
    assert (seen[0], seen[-1]) == ("RunClaimed", "RunCompleted")


async def test_a_wait_ends_at_a_gate(app: Onward) -> None:
    run = await app.submit(await app.pipeline(GATED), simulate=True)
    async with app.worker():
        assert (await app.wait(run.id)).status is RunStatus.WAITING


async def test_a_wait_for_a_run_that_goes_on_ends_with_its_time(app: Onward) -> None:
    run = await app.submit(await app.pipeline(DOUBLE))
    with pytest.raises(StillGoing, match=f"run {run.id} is still queued after 0 s"):
        await app.wait(run, timeout=0)
    with pytest.raises(TimeoutError):
        await app.wait(run, timeout=0)
    with pytest.raises(InvalidInput, match="timeout is -1"):
        await app.wait(run, timeout=-1)


async def test_a_wait_finds_a_run_whose_process_died(store: Store) -> None:
    """Though no worker is there to notice."""
    database = MemoryDatabase()
    theirs, ours = database.connect(), Onward(database.connect())
    dying, begun = Onward(theirs), asyncio.Event()

    @dying.handler("hang")
    async def hang(step: StepContext) -> None:
        begun.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(dying.run(await dying.pipeline(line("a", a="type=hang")), run_id="hung"))
    await begun.wait()
    waiting = asyncio.create_task(ours.wait("hung"))
    theirs.kill()
    assert (await waiting).status is RunStatus.INTERRUPTED
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_scheduled_run_is_due_at_its_time_and_not_before(app: Onward) -> None:
    pipeline = await app.pipeline(DOUBLE)
    later = datetime.now(UTC) + timedelta(hours=1)
    run = await app.schedule_at(pipeline, later, inputs={"n": 1})
    assert run.wake_at_us == int(later.timestamp() * 1_000_000)
    past = await app.schedule_at(pipeline, datetime(2020, 1, 1, tzinfo=UTC))
    assert (await app.worker(until_idle=True).run()).executed == 1
    assert [(await app.get(one.id)).status.value for one in (run, past)] == ["queued", "completed"]
    with pytest.raises(InvalidInput, match="not a time with its zone"):
        await app.schedule_at(pipeline, datetime(2030, 1, 1))


async def test_a_run_in_time_is_taken_when_it_is_due(app: Onward) -> None:
    soon = datetime.now(UTC) + timedelta(milliseconds=300)
    run = await app.schedule_at(await app.pipeline(DOUBLE), soon)
    async with app.worker():
        ended = await app.wait(run)
    assert ended.status is RunStatus.COMPLETED
    assert SystemClock().now_us() >= int(soon.timestamp() * 1_000_000)


async def test_runs_with_one_exclusive_key_are_executed_one_at_a_time(store: Store) -> None:
    app, at_once, most = Onward(store), 0, 0

    @app.handler("count")
    async def count(step: StepContext) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1

    runs: list[Run] = await app.submit_many(
        await app.pipeline(line("a", a="type=count")), [{} for _ in range(4)], exclusive_key="deploy"
    )
    assert {run.exclusive_key for run in runs} == {"deploy"}
    assert (await app.worker(until_idle=True).run()).executed == 4
    assert most == 1


async def test_how_a_lost_owner_is_dealt_with_is_one_of_two_words(app: Onward) -> None:
    with pytest.raises(InvalidInput, match="on_owner_loss is 'panic'; write requeue or interrupt"):
        await app.submit(await app.pipeline(DOUBLE), on_owner_loss="panic")


def test_the_program_on_the_page_works(tmp_path: Path) -> None:
    page = (Path(__file__).parent.parent / "docs/submitting.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:2] == ["[2, 4, 6]", "2 and more"]
