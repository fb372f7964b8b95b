"""What a worker counts while it works: held against what really happened, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from onward.clock import SystemClock, SystemDice, SystemIds
from onward.engine.control.requests import StartRequest
from onward.engine.engine import Engine, Extensions
from onward.engine.stop import StopSwitch
from onward.errors import LeaseLost, RunUnreadable, StoreUnavailable
from onward.handlers.function import FunctionHandler
from onward.handlers.port import Handler, StepContext
from onward.machine.plan.planner import DRAIN
from onward.model.result import Result
from onward.observe.log import current
from onward.observe.metrics import (
    CUT_OFF,
    SLOW_S,
    STALE_S,
    Health,
    Metrics,
    WatchedHandler,
    slow_after_s,
    watched_store,
)
from onward.store.port.store import Store
from onward.worker import Worker
from tests.conformance.drafts import Draft, claimed, created, held, step
from tests.conformance.faults import Fault, FaultyStore
from tests.conformance.handlers import Act, Doorway, Scripted
from tests.conformance.processes import Connect
from tests.world import line, until

pytestmark = pytest.mark.anyio


class Watching:
    """An engine at a store, with everything around it that counts."""

    def __init__(
        self,
        store: Store,
        script: Mapping[str, Sequence[Act]] | None = None,
        handlers: Mapping[str, Handler] | None = None,
    ) -> None:
        clock = SystemClock()
        self.metrics, self.health = Metrics(), Health(clock.awake_s())
        self.store = watched_store(store, self.metrics, self.health, clock)
        self.engine = Engine(
            self.store,
            clock=clock,
            ids=SystemIds(),
            dice=SystemDice(),
            handlers=handlers or {"codergen": Scripted(script)},
            extensions=Extensions(
                observe=self.metrics.observe,
                around=lambda kind, handler: WatchedHandler(kind, handler, self.metrics, clock),
            ),
        )
        self.stop = StopSwitch()

    async def submit(self, source: str, run_id: str, **start: str) -> None:
        pipeline = self.engine.sources.prepare(source, "<test>")
        await self.engine.submit(pipeline, StartRequest(run_id=run_id, on_owner_loss="requeue"))

    def worker(self, *, until_idle: bool = False) -> Worker:
        return Worker(
            self.engine, SystemClock(), self.stop, poll_s=0.02, metrics=self.metrics, until_idle=until_idle
        )


async def test_claims_attempts_retries_and_ends_are_counted(connect: Connect) -> None:
    watching = Watching(await connect(), {"a": [Result.retry("not yet"), Result.success()]})
    source = line("a", "b", a="max_retries=2")
    for name in ("one", "two"):
        await watching.submit(source, name)
    await watching.worker(until_idle=True).run()
    found = watching.metrics
    assert found.claims.value("line") == found.claim_latency.count() >= 2
    assert found.attempts.value("line", "codergen", "retry") == 2
    assert found.attempts.value("line", "codergen", "success") == 4
    assert found.steps.count("line", "codergen") == 6
    assert found.retries.value("line") == 2
    assert found.stops.value("completed", "") == 2
    assert found.commits.count() >= 6
    assert found.sweeps.value("ok") >= 1
    assert (found.driving.value(), found.lease_losses.value(), found.fenced_writes.value()) == (0, 0, 0)
    assert watching.health.fault(SystemClock().awake_s()) is None
    await watching.engine.close()


async def test_a_write_under_a_lost_lease_is_counted_as_fenced(store: Store, other: Store) -> None:
    watching = Watching(store)
    draft = await held(store)
    await claimed(other, draft)
    write, _ = draft.then(*step(draft), with_row=False)
    with pytest.raises(LeaseLost):
        await watching.store.log.append(write, draft.lease)
    assert watching.metrics.fenced_writes.value() == 1
    assert watching.metrics.commits.count() == 0
    assert watching.health.fault(SystemClock().awake_s()) is None  # a refusal is an answer


async def test_a_run_that_is_lost_while_it_is_driven_is_counted(store: Store, connect: Connect) -> None:
    door = Doorway()
    watching = Watching(await connect(), {"a": [door]})
    await watching.submit(line("a", "b"), "run")
    working = asyncio.create_task(watching.worker().run())
    await door.entered()
    assert watching.metrics.driving.value() == 1
    folded = await watching.engine.journal.load("run")
    await claimed(store, Draft(folded.run, folded.position))
    door.open()
    await until(lambda: watching.metrics.lease_losses.value() == 1)
    watching.stop.request(DRAIN)
    await working
    assert watching.metrics.driving.value() == 0
    await watching.engine.close()


async def test_a_request_about_a_run_that_is_ours_already_is_no_claim(connect: Connect) -> None:
    door = Doorway()
    watching = Watching(await connect(), {"a": [door]})
    await watching.submit(line("a", "b"), "run")
    working = asyncio.create_task(watching.worker(until_idle=True).run())
    await door.entered()
    await watching.engine.pause("run")
    door.open()
    await working
    assert watching.metrics.claims.value("line") == 1
    assert watching.metrics.stops.value("paused", "operator") == 1
    await watching.engine.close()


async def test_an_attempt_that_raises_fails_and_one_that_is_ended_was_cut_off(store: Store) -> None:
    door = Doorway()
    script: Mapping[str, Sequence[Act]] = {"a": [ValueError("no")], "b": [door]}
    watching = Watching(store, script)
    await watching.submit(line("a"), "fails")
    await watching.worker(until_idle=True).run()
    assert watching.metrics.attempts.value("line", "codergen", "fail") == 1
    assert watching.metrics.stops.value("failed", "step_failed") == 1
    await watching.submit(line("b"), "ends")
    working = asyncio.create_task(watching.worker().run())
    await door.entered()
    watching.stop.request(DRAIN)
    watching.stop.request(DRAIN)  # a second time: now
    await working
    assert watching.metrics.attempts.value("line", "codergen", CUT_OFF) == 1
    assert watching.metrics.interrupted.value("line") == 1


async def test_a_handlers_own_lines_are_about_its_run_and_step_also_in_a_thread(store: Store) -> None:
    seen: list[Mapping[str, str]] = []

    def in_a_thread(step: StepContext) -> None:
        seen.append(current())

    async def in_the_loop(step: StepContext) -> None:
        seen.append(current())

    handlers: dict[str, Handler] = {"x": FunctionHandler(in_a_thread), "y": FunctionHandler(in_the_loop)}
    watching = Watching(store, handlers=handlers)
    await watching.submit(line("a", "b", a='type="x"', b='type="y"'), "run")
    await watching.worker(until_idle=True).run()
    assert seen == [{"run": "run", "pipeline": "line", "step": name} for name in ("a#1", "b#1")]


async def test_a_database_that_fails_is_told_until_it_answers_again(store: Store) -> None:
    await created(store)
    faulty = FaultyStore(store, counted={"runs.held"})
    watching = Watching(faulty)
    now_s = SystemClock().awake_s()
    faulty.fail(Fault.REFUSE)
    with pytest.raises(StoreUnavailable):
        await watching.store.runs.held()
    assert watching.health.fault(now_s) == (
        "the database cannot be reached: the connection timed out; this is a test."
    )
    assert watching.metrics.store_errors.value("StoreUnavailable") == 1
    await watching.store.runs.held()
    assert watching.health.fault(now_s) is None


async def test_a_run_that_is_damaged_is_counted_and_the_database_is_well(store: Store) -> None:
    error = RunUnreadable("run", "it is damaged.")
    faulty = FaultyStore(store, Fault.REFUSE, at=1, error=error, counted={"log.take"})
    watching = Watching(faulty)
    assert await watching.engine.take(watching.stop) is None
    assert watching.metrics.store_errors.value("RunUnreadable") == 1
    assert watching.health.fault(SystemClock().awake_s()) is None


def test_a_database_that_hangs_is_told_before_the_call_fails() -> None:
    health = Health(100.0)
    call = health.asking(100.0)
    assert health.fault(100.0 + SLOW_S) is None
    assert health.fault(101.0 + SLOW_S) == "the database has not responded for 6 s."
    health.answered(call, 101.0 + SLOW_S)
    assert health.fault(101.0 + SLOW_S) is None
    assert health.fault(102.0 + SLOW_S + STALE_S) == "no response from the database for 31 s."


@pytest.mark.parametrize(("lease_s", "slow_s"), [(10.0, 10 / 3), (1.0, 1.0), (60.0, SLOW_S), (None, SLOW_S)])
def test_a_database_is_away_when_a_heartbeat_goes_unanswered(lease_s: float | None, slow_s: float) -> None:
    health = Health(0.0)
    health.slow_s = slow_after_s(lease_s)
    health.asking(0.0)
    assert health.fault(slow_s) is None
    assert health.fault(slow_s + 0.01) is not None


def test_a_worker_that_drains_is_not_ready_whatever_else_it_is() -> None:
    health = Health(0.0)
    health.is_draining = True
    assert health.fault(0.0) == "draining: this worker claims no new runs."
