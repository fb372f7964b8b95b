"""A handler that blocks the event loop is named, with its stack."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from onward import Onward, RunStatus, StepContext
from onward.handlers.function import find_culprit
from onward.threads import LoopWatch
from tests.world import line

TOLD = "onward.blocked"


class Told(logging.Handler):
    """Keeps warnings, and lets a blocking function end when one has come."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.has_come = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.has_come.set()

    def block(self) -> None:
        """Block this thread until the warning has come."""
        assert self.has_come.wait(30), "there was no warning"


@pytest.fixture
async def app() -> AsyncIterator[Onward]:
    app = Onward(":memory:")
    app.blocked_s = 0.05
    yield app
    await app.close()


@pytest.fixture
def told() -> Iterator[Told]:
    told, log = Told(), logging.getLogger(TOLD)
    log.addHandler(told)
    log.propagate = False
    yield told
    log.removeHandler(told)
    log.propagate = True


@pytest.mark.parametrize("limit", ["", ', timeout="60s"'], ids=["without a time limit", "with one"])
async def test_a_blocking_handler_is_named_with_its_run_step_and_stack(
    app: Onward, told: Told, limit: str
) -> None:
    """With a time limit it runs in a task of its own."""

    @app.handler("slow")
    async def slow(step: StepContext) -> None:
        await asyncio.sleep(0)
        told.block()

    run = await app.run(await app.pipeline(line("a", a=f"type=slow{limit}")), run_id="stuck")
    assert run.status is RunStatus.COMPLETED
    (record,) = told.records
    assert record.levelno == logging.WARNING
    said = record.getMessage()
    assert "slow of step a#1 of run stuck has blocked the event loop for 0.05 s" in said
    assert (vars(record)["run"], vars(record)["step"]) == ("stuck", "a#1")
    assert vars(record)["handler"].endswith("slow")
    assert record.stack_info is not None
    assert "told.block()" in record.stack_info
    assert "_run_once" not in record.stack_info


async def test_what_does_not_block_is_not_named(app: Onward, told: Told) -> None:
    """Neither a wait, nor a plain function, nor many short blocks with an await between them."""
    app.blocked_s = 0.3

    @app.handler("waits")
    async def waits(step: StepContext) -> None:
        await asyncio.sleep(0.5)

    @app.handler("thread")
    def thread(step: StepContext) -> None:
        threading.Event().wait(0.5)

    @app.handler("many")
    async def many(step: StepContext) -> None:
        for _ in range(50):
            threading.Event().wait(0.01)
            await asyncio.sleep(0)

    source = line("a", "b", "c", a="type=waits", b="type=thread", c="type=many")
    assert (await app.run(await app.pipeline(source))).status is RunStatus.COMPLETED
    assert told.records == []


async def test_each_call_is_told_once_however_long_it_blocks(app: Onward, told: Told) -> None:
    @app.handler("slow")
    async def slow(step: StepContext) -> None:
        told.block()
        threading.Event().wait(0.2)
        told.has_come.clear()

    # In memory nothing waits, so the second step begins before the loop has answered.
    await app.run(await app.pipeline(line("a", "b", a="type=slow", b="type=slow")))
    assert [vars(record)["step"] for record in told.records] == ["a#1", "b#1"]


async def test_what_blocks_outside_of_a_handler_is_not_told(app: Onward, told: Told) -> None:
    watch = LoopWatch(0.02, find_culprit)
    threading.Event().wait(0.3)
    watch.stop()
    assert told.records == []


async def test_a_watch_ends_with_its_app(app: Onward) -> None:
    """And is not there if nothing can block, or if it is not wanted."""

    def watching() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "onward loop watch"}

    before = watching()  # those of earlier tests may end at any moment
    await app.engine()
    assert watching() <= before

    @app.handler("slow")
    async def slow(step: StepContext) -> None: ...

    await app.close()
    await app.engine()
    (thread,) = watching() - before
    await app.close()
    await asyncio.to_thread(thread.join)
    app.blocked_s = 0
    await app.engine()
    assert watching() <= before
