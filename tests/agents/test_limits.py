"""Agents under limits: a call that does not fit is not made, and the run continues when there is room."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest

from onward.agents.model import Finished, TokenUsage
from onward.engine.control.requests import Resume
from onward.errors import LimitReached, Refused
from onward.model.call import CallStarted, HoldsLifted, LimitWarned
from onward.model.limits import CALL_AMOUNT_MAX, CALLS_PER_RUN, NO_AMOUNTS, Amounts
from onward.model.run import RunStatus
from onward.store.port.limits import ReservationState, UsageKind
from onward.store.port.log import RunLog
from onward.testing.clock import ManualClock
from onward.testing.script import ModelScript, ScriptedReply
from tests.agents.test_agent_step import NAME, Scripted, at, calls, model
from tests.conformance.faults import Around, FaultyStore
from tests.conformance.limits import begun, working
from tests.world import World, line

pytestmark = pytest.mark.anyio


async def test_what_an_agent_costs_is_in_the_tables_and_adds_up_to_the_log(world: World) -> None:
    process = await at(world, model())
    await process.start(line("a", "b"), chat="c", project="p")
    answers = await calls(process)
    tokens = sum(one.usage.tokens for one in answers if one.usage is not None)
    cost = sum(one.cost_micro or 0 for one in answers)
    scopes = await process.store.limits.read(["chat/c", "project/p", "run/run"])
    assert [(one.spent, one.reserved) for one in scopes] == [((tokens, cost, 2), (0, 0, 0))] * 3
    (used,) = await process.store.limits.usage(UsageKind.MODEL, limit=9)
    assert (used.what, used.tokens, used.cost_micro, used.calls) == (NAME, tokens, cost, 2)
    assert await process.is_sound()


@pytest.mark.parametrize("scope", ["chat/c", "project/p", "run/run", "day"])
async def test_a_spent_limit_interrupts_the_run_and_a_raised_one_continues_it(
    world: World, scope: str
) -> None:
    """S0-11, S0-32, B0-4, B0-5: whichever scope it is, and again on the resumed run."""
    scripted = model()
    process = await at(world, scripted)
    await process.store.limits.change(scope, {"calls": 1})
    run = await process.start(line("a", "b", "c"), chat="c", project="p")
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "limit")
    assert scope in run.detail
    assert len(scripted.received) == 1
    await process.store.limits.change(scope, {"calls": 2})
    run = await process.resume()
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "limit")
    kind = scope.partition("/")[0]
    resumed = await process.engine.resume("run", Resume(raises=((kind, "calls", 9),)))
    assert resumed.run.status is RunStatus.COMPLETED
    assert len(scripted.received) == 3
    assert await process.is_sound()


async def test_a_run_makes_300_requests_until_a_person_allows_more(world: World) -> None:
    """Design §14: a ceiling that every run has, in a new database and in an old one, for restarts too."""
    scripted = model()
    process = await at(world, scripted)
    (scope,) = await process.store.limits.read(["run/run"])
    assert scope.limit == Amounts(calls=CALLS_PER_RUN) == Amounts(calls=300)
    loop = 'a [max_visits=1000]; start -> a; a -> a; a -> exit [condition="outcome=fail"]'
    run = await process.start(f"digraph g {{ start [shape=Mdiamond]; exit [shape=Msquare]; {loop} }}")
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "limit")
    assert len(scripted.received) == 300
    with pytest.raises(Refused, match=r"--raise run\.calls=600"):
        await process.resume()
    resumed = await process.engine.resume("run", Resume(raises=(("run", "calls", 310),)))
    assert (resumed.run.status, len(scripted.received)) == (RunStatus.INTERRUPTED, 310)
    assert await process.is_sound()


async def test_a_new_run_may_have_higher_ceilings(world: World) -> None:
    scripted = model()
    process = await at(world, scripted)
    loop = 'a; start -> a; a -> a; a -> exit [condition="outcome=fail"]'
    run = await process.start(
        f"digraph g {{ start [shape=Mdiamond]; exit [shape=Msquare]; {loop} }}",
        raises=(("run", "visits", 400), ("run", "calls", 350)),
    )
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "limit")
    assert (len(scripted.received), run.max_visits) == (350, 400)


async def test_a_model_without_a_price_is_not_asked_under_a_limit_on_cost(world: World) -> None:
    scripted = model()
    process = await at(world, scripted)
    await process.store.limits.change("run", {"cost": 1_000_000})
    run = await process.start(line("a", a='llm_model="free"'))
    assert run.status is RunStatus.FAILED
    assert "price" in run.detail
    assert scripted.received == []
    assert not [event for event in await process.events() if isinstance(event, CallStarted)]


async def test_a_limit_that_is_nearly_spent_is_said_in_the_log_once(world: World) -> None:
    process = await at(world, model())
    await process.store.limits.change("run/run", {"calls": 5})
    run = await process.start(line("a", "b", "c", "d", "e"))
    assert run.status is RunStatus.COMPLETED
    said = [event for event in await process.events() if isinstance(event, LimitWarned)]
    assert said == [LimitWarned(scope="run/run", measure="calls", limit=5, spent=4)]
    assert await process.is_sound()


class RaisedMeanwhile(Around[RunLog]):
    """A log beside which a person raises the limit at the very moment at which it refuses a call."""

    async def append(self, *values: Any, **named: Any) -> Any:
        try:
            return await self.part.append(*values, **named)
        except LimitReached:
            await self.store.store.limits.change("run/run", {"calls": 9})
            raise


async def test_a_limit_that_is_raised_before_the_run_stops_does_not_stop_it(world: World) -> None:
    """Nothing was held yet when it was raised, so nothing was lifted: the hold is judged once more."""
    scripted = model()
    process = await at(world, scripted, wrap=partial(FaultyStore, log=RaisedMeanwhile))
    await process.store.limits.change("run/run", {"calls": 1})
    run = await process.start(line("a", "b"))
    assert run.status is RunStatus.COMPLETED
    assert len(scripted.received) == 2
    assert [event.kind for event in await process.events() if isinstance(event, HoldsLifted)]
    assert await process.is_sound()


async def test_calls_that_were_made_before_a_resume_still_count(world: World) -> None:
    """B0-12, B0-17: the limit on calls is the run's, however often it is resumed, and stops it as a limit."""
    scripted = model()
    process = await at(world, scripted)
    await process.store.limits.change("run/run", {"calls": 2})
    run = await process.start(line("a", "b", "c", "d"))
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "limit")
    with pytest.raises(Refused, match="has spent 2 of 2 calls"):
        await process.resume()
    resumed = await process.engine.resume("run", Resume(raises=(("run", "calls", 3),)))
    assert (resumed.run.status, resumed.run.reason) == (RunStatus.INTERRUPTED, "limit")
    assert len(scripted.received) == 3


async def test_a_ceiling_shrinks_to_what_a_limit_leaves_before_the_run_is_stopped(world: World) -> None:
    """B0-17: a run is not stopped while there is room for an answer."""
    scripted = model()
    process = await at(world, scripted)
    await process.store.limits.change("run/run", {"tokens": 1_000})
    run = await process.start(line("a"))
    assert run.status is RunStatus.COMPLETED
    (asked,) = scripted.received
    assert asked.request.max_tokens is not None
    assert 64 <= asked.request.max_tokens < 1_000


async def test_a_call_waits_for_what_others_reserved_and_a_dead_ones_share_is_freed(world: World) -> None:
    """I36: a waiter looks for the dead owner in its way, also in a foreground process."""
    dead = await world.process()
    await dead.store.limits.change("chat/c", {"calls": 2})
    await begun(dead.store, await working(dead.store, "dead", chat="c"), "chat/c", calls=2)
    await dead.die()
    scripted = model()
    process = await at(world, scripted)
    run = await process.start(line("a"), chat="c")
    assert (run.status, run.reason) == (RunStatus.INTERRUPTED, "limit")
    assert scripted.received == []
    (settled,) = await process.store.limits.reservations("dead")
    assert (settled.state, settled.charged.calls) == (ReservationState.SETTLED, 2)


class Miscounting(Scripted):
    """A model of somebody else's that counts what no model can have used."""

    counted = TokenUsage()
    named = "req"

    def _finished(self, *values: Any) -> Finished:
        told = super()._finished(*values)
        return msgspec.structs.replace(told, usage=self.counted, request_id=self.named)


@pytest.mark.parametrize(
    "counted",
    [
        TokenUsage(input=2**64 - 1),
        TokenUsage(input=2**62, output=2**62),
        TokenUsage(input=10**40, output=1),
        TokenUsage(output=-1),
    ],
)
async def test_a_model_that_counts_what_cannot_be_is_asked_once_and_stops_nothing(
    world: World, counted: TokenUsage
) -> None:
    """Its answer counts, its call is charged what it had reserved, and the books of the day stay open."""
    scripted = Miscounting(ModelScript(default=ScriptedReply(text="Fine.")), clock=ManualClock())
    scripted.counted = counted
    process = await at(world, scripted)
    run = await process.start(line("a", "b"), chat="c")
    assert run.status is RunStatus.COMPLETED
    assert len(scripted.received) == 2
    made = await process.store.limits.reservations("run")
    assert [(one.charged, one.is_estimated) for one in made] == [(one.reserved, True) for one in made]
    assert await process.is_sound()
    await process.store.limits.change("chat/c", {"tokens": 0})
    honest = await at(world, model())
    assert (await honest.start(line("a"), "next", chat="c")).status is RunStatus.COMPLETED
    (spent,) = await honest.store.limits.read(["chat/c"])
    assert (spent.spent.calls, spent.reserved.calls) == (3, 0)


async def test_a_run_that_died_in_such_a_call_can_be_taken_over_cancelled_and_resumed(world: World) -> None:
    """Also where what it reserved is more than a database can add up: nothing stops the sweep of others."""
    first = await world.process()
    for name in ("a", "b", "c"):
        await begun(
            first.store, await working(first.store, name), "project/p", tokens=2**63 - 1, cost_micro=2**63 - 1
        )
    await first.die()
    second = await at(world, model())
    swept = await second.engine.recover()
    assert (sorted(run.id for run in swept.stopped), swept.broken) == (["a", "b", "c"], ())
    (spent,) = await second.store.limits.read(["project/p"])
    assert (spent.spent.tokens, spent.reserved) == (3 * CALL_AMOUNT_MAX, NO_AMOUNTS)
    await second.engine.cancel("a")
    assert (await second.load("a")).run.status is RunStatus.CANCELLED


@pytest.mark.parametrize("text", ["half \ud83d of it", "\ud83d", "a\0b", "é" * 2_000])
async def test_an_answer_and_a_request_id_of_any_characters_are_kept(world: World, text: str) -> None:
    """A model of somebody else's may split a character. The answer is paid for, so it is not asked again."""
    scripted = Miscounting(ModelScript(default=ScriptedReply(text=text, chunk=1)), clock=ManualClock())
    scripted.named = text
    process = await at(world, scripted)
    run = await process.start(line("a"), chat="c")
    assert run.status is RunStatus.COMPLETED
    assert len(scripted.received) == 1
    (answer,) = await calls(process)
    assert answer.request_id == text.replace("\ud83d", "\N{REPLACEMENT CHARACTER}")[:1_000]
    assert await process.is_sound()
