"""Effects at most once: through crashes on either side of them, failures, and callers at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from onward.clock import SystemClock, SystemIds
from onward.engine.effects import AtMostOnce, Once
from onward.errors import EffectFailed, Refused
from onward.handlers.port import StepContext
from onward.model.result import Result
from onward.model.run import RunStatus
from tests.conformance.faults import EFFECTS, Died, Fault, FaultyStore
from tests.conformance.processes import Connect
from tests.world import World, line

PATIENCE_S = 20


class Till:
    """What is outside: it counts how often it was charged."""

    def __init__(self, *, fails: bool = False) -> None:
        self.charged, self._fails = 0, fails

    async def charge(self) -> int:
        self.charged += 1
        if self._fails:
            raise ValueError("declined")
        return self.charged


At = Callable[..., Awaitable[AtMostOnce]]


@pytest.fixture
def stores() -> list[FaultyStore]:
    """The stores of the processes, in their order."""
    return []


@pytest.fixture
async def at(connect: Connect, stores: list[FaultyStore]) -> AsyncIterator[At]:
    """Makes processes, which have the fault at their nth call about an effect."""

    async def at(fault: Fault | None = None, nth: int = 1) -> AtMostOnce:
        store = FaultyStore(await connect(), fault, nth, counted=EFFECTS)
        stores.append(store)
        return AtMostOnce(store.effects, SystemClock(), SystemIds(), store.leases.lease_s)

    yield at
    for store in stores:
        await store.close()


async def test_an_effect_is_made_once_and_its_value_kept(at: At) -> None:
    till = Till()
    for _ in range(3):
        assert await (await at()).call("charge", till.charge) == 1
    assert till.charged == 1


async def test_an_effect_that_failed_is_not_made_again(at: At) -> None:
    till, effects = Till(fails=True), await at()
    with pytest.raises(ValueError, match="declined"):
        await effects.call("charge", till.charge)
    with pytest.raises(EffectFailed, match="ValueError: declined"):
        await effects.call("charge", till.charge)
    assert till.charged == 1


async def test_where_only_success_counts_a_failure_is_forgotten(at: At) -> None:
    till, effects = Till(fails=True), await at()
    for _ in range(2):
        with pytest.raises(ValueError, match="declined"):
            await effects.call("charge", till.charge, Once(only_success=True))
    assert till.charged == 2


@pytest.mark.parametrize(
    ("fault", "nth", "charged", "is_stored"),
    [
        (Fault.DIE_BEFORE, 1, 0, False),
        (Fault.DIE_AFTER, 1, 0, False),
        (Fault.DIE_BEFORE, 2, 1, False),
        (Fault.DIE_AFTER, 2, 1, True),
    ],
)
async def test_death_around_an_effect_never_makes_it_twice(
    stores: list[FaultyStore], at: At, fault: Fault, nth: int, charged: int, is_stored: bool
) -> None:
    """Before its beginning is stored nothing happened; between, it is in doubt; after its end, it is done."""
    till, dying = Till(), await at(fault, nth)
    with pytest.raises(Died):
        await dying.call("charge", till.charge)
    await stores[-1].close()
    assert till.charged == charged
    effects = await at()
    if is_stored or (fault, nth) == (Fault.DIE_BEFORE, 1):
        assert await effects.call("charge", till.charge) == 1
    else:
        with pytest.raises(Refused) as refused:
            await effects.call("charge", till.charge)
        assert refused.value.code == "effect_in_doubt"
        assert till.charged == charged
        assert await effects.call("charge", till.charge, Once(retry=True)) == charged + 1


async def test_a_lost_reply_costs_nothing(at: At) -> None:
    for nth in (1, 2):
        till = Till()
        assert await (await at(Fault.LOSE_REPLY, nth)).call(f"charge {nth}", till.charge) == 1
        assert till.charged == 1


async def test_of_many_callers_one_makes_it_and_the_others_get_its_value(at: At) -> None:
    till = Till()
    callers = [await at() for _ in range(4)]
    values = await asyncio.gather(*(callers[n % 4].call("charge", till.charge) for n in range(12)))
    assert values == [1] * 12


async def test_one_that_is_under_way_can_be_told_instead_of_waited_for(at: At) -> None:
    door, begun = asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        begun.set()
        await door.wait()
        return "done"

    first = asyncio.create_task((await at()).call("charge", slow))
    await begun.wait()
    other = await at()
    for ask in (other.call("charge", slow, Once(wait=False)), other.forget("charge")):
        with pytest.raises(Refused) as refused:
            await ask
        assert refused.value.code == "effect_under_way"
    door.set()
    assert await first == await other.call("charge", slow) == "done"


async def test_a_cancelled_effect_is_in_doubt_at_once(at: At) -> None:
    begun, effects = asyncio.Event(), await at()

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(effects.call("charge", endless))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(Refused) as refused:
        await effects.call("charge", Till().charge)
    assert refused.value.code == "effect_in_doubt"
    await effects.settle("charge", '{"receipt": 7}')
    assert await effects.call("charge", Till().charge) == {"receipt": 7}
    await effects.forget("charge")
    assert await effects.call("charge", Till().charge) == 1


async def test_a_step_that_is_made_again_makes_its_effect_once(world: World) -> None:
    """S1-13: the crash comes after the charge; the second attempt gets the first one's value."""
    till = Till()

    async def pay_and_die(step: StepContext) -> Result:
        await step.effect("charge", till.charge)
        raise Died("here")

    async def pay(step: StepContext) -> Result:
        return Result(context_updates={"paid": await step.effect("charge", till.charge)})

    dying = await world.process({"pay": [pay_and_die]})
    with pytest.raises(Died):
        await dying.start(line("pay"))
    await dying.die()
    run = await (await world.process({"pay": [pay]})).resume()
    assert (run.status, run.context["paid"], till.charged) == (RunStatus.COMPLETED, 1, 1)


async def test_an_effect_that_asks_for_itself_is_refused(at: At) -> None:
    """It would wait for its own end, and renew itself meanwhile."""
    till, effects = Till(), await at()

    async def charge() -> object:
        await till.charge()
        return await effects.call("charge", till.charge)

    with pytest.raises(Refused) as refused:
        async with asyncio.timeout(PATIENCE_S):
            await effects.call("charge", charge)
    assert refused.value.code == "effect_in_itself"
    assert till.charged == 1


async def test_effects_that_wait_for_each_other_do_not_wait_without_end(at: At) -> None:
    """Of two effects of one process, whichever closes the circle is refused."""
    till, effects, begun = Till(), await at(), [asyncio.Event(), asyncio.Event()]

    async def first() -> object:
        begun[0].set()
        await begun[1].wait()
        return await effects.call("second", till.charge)

    async def second() -> object:
        begun[1].set()
        await begun[0].wait()
        return await effects.call("first", till.charge)

    both = effects.call("first", first), effects.call("second", second)
    async with asyncio.timeout(PATIENCE_S):
        ended = await asyncio.gather(*both, return_exceptions=True)
    refusals = [error for error in ended if isinstance(error, Refused | EffectFailed)]
    assert len(refusals) == 2, "the one that is refused fails, and so does the one that waits for it"
    assert till.charged == 0


async def test_an_effect_may_be_made_inside_another(at: At) -> None:
    till, effects = Till(), await at()

    async def outer() -> list[object]:
        return [await effects.call("inner", till.charge)]

    both = effects.call("outer", outer), effects.call("inner", till.charge)
    assert [*await asyncio.gather(*both)] == [[1], 1]
