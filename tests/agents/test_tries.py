"""How often a provider is asked that fails, and when: as the table in docs/agents.md says, whoever asks.

The requests are counted at a real endpoint. The number of tries is in the log, so no hold, no other process
and no other attempt of the step begins to count anew.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from onward.agents.model import BACKING_OFF, HOLDING, FailureKind
from onward.agents.models import Models
from onward.agents.prices import read_prices
from onward.agents.step.handler import AgentHandler
from onward.engine.control.requests import StartRequest
from onward.engine.stop import StopSwitch
from onward.model.call import AttemptHeld, CallFinished, CallStarted
from onward.model.run import RunStatus
from onward.testing.clock import ManualClock, SeededDice
from onward.testing.model_endpoint import ModelEndpoint
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule
from tests.agents.asking import NAME, always, at_endpoint
from tests.world import Process, World, line

pytestmark = pytest.mark.anyio
SEEDS = (1, 2, 3)
"""Chance decides how long a pause is, and so whether the attempt is held for it."""
HELD_SEED = 2
"""The fourth pause is long enough for that."""


def source(retries: int = 0) -> str:
    return line("tell", tell=f'llm_model="{NAME}", max_retries={retries}')


@asynccontextmanager
async def asked(script: ModelScript) -> AsyncIterator[tuple[Models, ModelEndpoint]]:
    async with at_endpoint(script) as (models, endpoint):
        yield models, endpoint


async def at(world: World, models: Models, *, clock: ManualClock | None = None, seed: int = 1) -> Process:
    """A process whose agents ask the endpoint; the clock of the network is the machine's."""
    clock = clock or ManualClock()
    agent = AgentHandler(models, read_prices({}), clock, SeededDice(seed))
    return await world.process(handlers={"codergen": agent}, clock=clock)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("status", [500, 503, 408])
async def test_a_provider_that_always_fails_is_asked_five_times_in_all(
    world: World, seed: int, status: int
) -> None:
    async with asked(always(status=status)) as (models, endpoint):
        process = await at(world, models, seed=seed)
        run = await process.start(source())
        assert (run.status, run.reason) == (RunStatus.FAILED, "step_failed")
        assert len(endpoint.ledger.entries) == BACKING_OFF.tries_max == 5
        failed = [event.failure for event in await process.events() if isinstance(event, CallFinished)]
        assert failed == [FailureKind.TRANSIENT.value] * 5
        assert await process.is_sound()


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_retry_of_the_step_and_every_resume_asks_once_more(world: World, seed: int) -> None:
    async with asked(always(status=500)) as (models, endpoint):
        process = await at(world, models, seed=seed)
        run = await process.start(source(retries=2))
        assert run.status is RunStatus.FAILED
        assert len(endpoint.ledger.entries) == 5 + 2
        for more in (1, 2):
            again = await at(world, models, seed=seed + more)
            assert (await again.resume()).status is RunStatus.FAILED
            # A person's decision gives the step its retries again.
            assert len(endpoint.ledger.entries) == 5 + 2 + 3 * more
        assert await process.is_sound()


async def test_processes_that_follow_each_other_go_on_counting(world: World) -> None:
    """A worker gives the run back for a longer pause, and another process goes on."""
    async with asked(always(status=500)) as (models, endpoint):
        clock = ManualClock()
        first = await at(world, models, clock=clock, seed=HELD_SEED)
        begun = StartRequest(run_id="run", on_owner_loss="requeue")
        await first.engine.submit(first.pipeline(source()), begun)
        taken = await first.engine.take(StopSwitch())
        assert taken is not None
        run = (await taken[1]).run
        assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "rate_limit")
        assert len(endpoint.ledger.entries) == 4
        second = await at(world, models, clock=clock, seed=HELD_SEED)
        assert (await second.resume()).status is RunStatus.FAILED
        assert len(endpoint.ledger.entries) == 5
        assert await second.is_sound()


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_provider_that_always_says_later_is_asked_ever_more_seldom(world: World, seed: int) -> None:
    async with asked(always(status=429)) as (models, endpoint):
        process = await at(world, models, seed=seed)
        run = await process.start(source())
        assert (run.status, run.reason, run.wake_at_us) == (RunStatus.INTERRUPTED, "rate_limit", None)
        assert len(endpoint.ledger.entries) == HOLDING.tries_max
        pauses = await pauses_s(process)
        assert len(pauses) == HOLDING.tries_max - 1
        for number, pause in enumerate(pauses):
            whole = min(HOLDING.delay_s_first * 2**number, HOLDING.delay_s_max)
            assert whole / 2 - 1 <= pause <= whole + 1
        resumed = await (await at(world, models)).resume()
        assert (resumed.status, resumed.reason) == (RunStatus.INTERRUPTED, "rate_limit")
        assert len(endpoint.ledger.entries) == HOLDING.tries_max + 1
        assert await process.is_sound()


async def test_a_run_that_a_provider_held_too_often_goes_on_when_a_person_says_so(world: World) -> None:
    rule = ScriptRule(times=HOLDING.tries_max, reply=ScriptedReply(status=429, retry_after="1"))
    async with asked(ModelScript(rules=(rule,), default=ScriptedReply(text="Fine."))) as (models, endpoint):
        process = await at(world, models)
        run = await process.start(source())
        assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "rate_limit")
        assert (await process.resume()).status is RunStatus.COMPLETED
        assert len(endpoint.ledger.entries) == HOLDING.tries_max + 1


async def test_a_provider_is_not_asked_before_the_time_that_it_names(world: World) -> None:
    rule = ScriptRule(times=4, reply=ScriptedReply(status=429, retry_after="1000"))
    async with asked(ModelScript(rules=(rule,), default=ScriptedReply(text="Fine."))) as (models, endpoint):
        process = await at(world, models)
        assert (await process.start(source())).status is RunStatus.COMPLETED
        assert len(endpoint.ledger.entries) == 5
        pauses = await pauses_s(process)
        assert len(pauses) == 4
        # The endpoint is asked on the machine's clock, which is years ahead of the manual one.
        assert all(pause >= 1000 for pause in pauses)


async def test_being_asked_to_wait_is_no_failure(world: World) -> None:
    """Six times "too many requests" leave the five tries of a provider that fails as they are."""
    later = [ScriptRule(nth=nth, reply=ScriptedReply(status=429)) for nth in range(1, 7)]
    fails = [ScriptRule(nth=nth, reply=ScriptedReply(status=500)) for nth in range(7, 11)]
    script = ModelScript(rules=(*later, *fails), default=ScriptedReply(text="Fine."))
    async with asked(script) as (models, endpoint):
        process = await at(world, models)
        assert (await process.start(source())).status is RunStatus.COMPLETED
        assert len(endpoint.ledger.entries) == 11


async def test_another_question_has_tries_of_its_own(world: World) -> None:
    """`onward retry` asks anew: its request is another one."""
    async with asked(always(status=500)) as (models, endpoint):
        process = await at(world, models)
        await process.start(source())
        assert len(endpoint.ledger.entries) == 5
        run = await process.resume(step="tell#1", action="retry")
        assert run.status is RunStatus.FAILED
        assert len(endpoint.ledger.entries) == 10


async def pauses_s(process: Process) -> list[float]:
    """The seconds between a request's failure and the next one, as the log has them."""
    began = [record.at_us for record in await process.log() if record.kind == CallStarted.__name__]
    held = [event for event in await process.events() if isinstance(event, AttemptHeld)]
    assert held, "the attempt was held"
    return [(later - sooner) / 1_000_000 for sooner, later in pairwise(began)]
