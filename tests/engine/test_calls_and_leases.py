"""A call after the deadline of its lease: the database says whose the run is, before anything is done.

The attempts of a process that misses its deadline are ended by an alarm. One that was frozen may come to a
call before its alarm rings; here none ever does.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from onward.errors import LeaseLost
from onward.handlers.function import FunctionHandler
from onward.handlers.port import StepContext
from onward.model.run import AttemptState, Run, RunStatus
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.leases import Lease, Leases
from onward.store.port.store import Store
from onward.testing.clock import ManualClock
from tests.conformance.faults import Around, FaultyStore
from tests.world import Process, World, line, until

LEASE_S = 10.0
SOURCE = line("work", work="type=work")
Work = Callable[[StepContext], Awaitable[Any]]


class Woken(ManualClock):
    """The clock of a process that was frozen and has just been woken."""

    def alarm(self, at_s: float, ring: Callable[[], object]) -> Any:
        return super().alarm(math.inf, ring)


class Unanswered(Around[Leases]):
    """Answers no renewal before the test says so."""

    def __init__(self, part: Leases, store: FaultyStore) -> None:
        super().__init__(part, store)
        self.asked, self.may_answer = 0, asyncio.Event()

    async def renew(self, leases: Sequence[Lease]) -> Mapping[str, int]:
        self.asked += 1
        await self.may_answer.wait()
        return await self.part.renew(leases)


class Late(World):
    """Processes at a database whose clock is not theirs; `made` are the calls that were made."""

    def __init__(self) -> None:
        self.clock, self.database_clock = Woken(autojump=False), ManualClock(autojump=False)
        self.made: list[str] = []
        database = MemoryDatabase(now_us=self.database_clock.now_us)

        async def connect() -> Store:
            return database.connect(LEASE_S)

        super().__init__(connect, "memory")

    async def at_its_call(self, work: Work) -> tuple[Process, Unanswered, asyncio.Task[Run]]:
        """A process whose lease has run out inside its step, and that has come to what `work` calls."""

        async def sleeps_and_works(step: StepContext) -> None:
            await self.clock.until_waiting()  # its heartbeat does
            self.clock.advance(LEASE_S)
            await work(step)

        wrap, handlers = partial(FaultyStore, leases=Unanswered), {"work": FunctionHandler(sleeps_and_works)}
        process = await self.process(handlers=handlers, wrap=wrap, clock=self.clock)
        driving = asyncio.create_task(process.start(SOURCE))
        leases = process.store.leases
        assert isinstance(leases, Unanswered)
        await until(lambda: leases.asked == 2 or driving.done())  # its heartbeat asks, and its call
        return process, leases, driving

    async def make(self) -> str:
        self.made.append("a call")
        return "an answer"


@pytest.fixture
def late() -> Late:
    return Late()


@pytest.mark.parametrize("repeatable", [True, False])
async def test_a_call_after_the_deadline_waits_for_the_renewal_and_is_then_made(
    late: Late, repeatable: bool
) -> None:
    """It is neither made before the answer, nor dropped: the lease was still ours."""
    answers: list[str] = []

    async def work(step: StepContext) -> None:
        answers.append(await step.call("ask", late.make, repeatable=repeatable))

    process, leases, driving = await late.at_its_call(work)
    assert late.made == [], "the database has not said yet whose the run is"
    assert "CallStarted" not in await process.kinds()
    leases.may_answer.set()
    run = await driving
    assert (run.status, late.made, answers) == (RunStatus.COMPLETED, ["a call"], ["an answer"])
    assert (await process.kinds()).count("StepStarted") == 1, "it was the same try"


async def test_a_question_after_the_deadline_waits_for_the_renewal_and_is_then_asked(late: Late) -> None:
    process, leases, driving = await late.at_its_call(lambda step: step.ask("approve", "Is it good?"))
    assert "GateOpened" not in await process.kinds()
    leases.may_answer.set()
    run = await driving
    assert run.status is RunStatus.WAITING
    assert run.open_steps["work#1"].state is AttemptState.HELD


async def test_a_call_after_the_deadline_of_a_run_that_was_taken_is_never_made(late: Late) -> None:
    async def work(step: StepContext) -> None:
        await step.call("ask", late.make)

    _, leases, driving = await late.at_its_call(work)
    late.database_clock.advance(LEASE_S)

    async def other_work(step: StepContext) -> None:
        assert await step.call("ask", other.make) == "an answer"

    other = Late()
    taker = await late.process(handlers={"work": FunctionHandler(other_work)})
    assert (await taker.resume()).status is RunStatus.COMPLETED
    leases.may_answer.set()
    with pytest.raises(LeaseLost):
        await driving
    assert (late.made, other.made) == ([], ["a call"])
