"""Reservations: written with the call that they are for or not at all, and never more than a limit allows."""

from __future__ import annotations

from asyncio import gather

import pytest

from onward.errors import LeaseLost, LimitReached, Refused, StaleHistory
from onward.model.events import RunInterrupted
from onward.model.limits import NO_AMOUNTS, Amounts
from onward.store.port.limits import ReservationState
from onward.store.port.store import Store
from onward.testing.conformance.money.calling import (
    DAY,
    STEP,
    beginning,
    begun,
    ended,
    figures,
    used,
    working,
)
from onward.testing.drafts import claimed, everything_of, requested

ONE = Amounts(100, 1_000, 1)


async def test_a_call_reserves_in_all_its_scopes_at_once(store: Store) -> None:
    scopes = ("chat/c", DAY, "project/p", "run/a")
    await begun(store, await working(store, "a"), *scopes)
    assert [await figures(store, scope) for scope in scopes] == [(NO_AMOUNTS, ONE)] * 4
    (made,) = await store.limits.reservations("a")
    assert (made.step, made.call, made.number, made.token) == (STEP, "m1", 1, 1)
    assert (made.state, made.scopes, made.reserved) == (ReservationState.OPEN, scopes, ONE)


async def test_a_call_that_does_not_fit_writes_nothing_at_all(store: Store) -> None:
    await store.limits.change("run/a", {"tokens": 50})
    run = await working(store, "a")
    before = await everything_of(store, "a")
    write, _ = beginning(run, DAY, "run/a")
    with pytest.raises(LimitReached) as refused:
        await store.log.append(write, run.lease)
    assert await everything_of(store, "a") == before
    assert await store.limits.reservations("a") == []
    assert await figures(store, DAY) == (NO_AMOUNTS, NO_AMOUNTS)
    error = refused.value
    assert (error.scope, error.measure, error.limit, error.wanted) == ("run/a", "tokens", 50, 100)
    assert not error.fits_spent


@pytest.mark.parametrize(("measure", "limit"), [("tokens", 299), ("cost", 2_999), ("calls", 2)])
@pytest.mark.parametrize("scope", ["chat/c", "project/p", DAY, "run/a"])
async def test_every_scope_limits_every_measure(store: Store, scope: str, measure: str, limit: int) -> None:
    await store.limits.change(scope, {measure: limit})
    run = await working(store, "a")
    for number in (1, 2):
        run = await begun(store, run, scope, call=f"m{number}")
    write, _ = beginning(run, scope, call="m3")
    with pytest.raises(LimitReached) as refused:
        await store.log.append(write, run.lease)
    assert (refused.value.scope, refused.value.measure) == (scope, measure)
    assert refused.value.fits_spent  # nothing is spent yet: it may fit when the others have ended
    run = await ended(store, run, "m1", usage=used(10), cost_micro=10)
    if measure == "calls":
        return  # a call that was made counts
    await begun(store, run, scope, call="m3")


async def test_a_scope_without_room_leaves_the_others_of_its_call_as_they_were(store: Store) -> None:
    """Scopes that have been spent in before: a store may charge them one after the other."""
    run = await begun(store, await working(store, "a"), DAY, "project/p", "run/a")
    before = await figures(store, DAY)
    await store.limits.change("run/a", {"tokens": 150})
    write, _ = beginning(run, DAY, "project/p", "run/a", call="m2")
    with pytest.raises(LimitReached):
        await store.log.append(write, run.lease)
    assert [await figures(store, scope) for scope in (DAY, "project/p", "run/a")] == [before] * 3


async def test_a_limit_can_be_used_up_to_the_last_token(store: Store) -> None:
    await store.limits.change("run/a", {"tokens": 200})
    run = await begun(store, await working(store, "a"), "run/a")
    await begun(store, run, "run/a", call="m2")
    assert (await figures(store, "run/a"))[1] == Amounts(200, 2_000, 2)


async def test_what_does_not_fit_what_is_spent_is_said_before_what_may_pass(store: Store) -> None:
    """In one scope only the reservations of others are in the way, in the other what is spent."""
    await store.limits.change("chat/c", {"tokens": 150})
    await store.limits.change("run/b", {"tokens": 50})
    await begun(store, await working(store, "a"), "chat/c")
    run = await working(store, "b")
    write, _ = beginning(run, "chat/c", "run/b")
    with pytest.raises(LimitReached) as refused:
        await store.log.append(write, run.lease)
    assert (refused.value.scope, refused.value.fits_spent) == ("run/b", False)


async def test_a_limit_of_0_is_none_and_a_scope_without_one_has_that_of_its_kind(store: Store) -> None:
    await store.limits.change("chat", {"tokens": 50})
    await store.limits.change("chat/free", {"tokens": 0})
    run = await begun(store, await working(store, "a"), "chat/free")
    write, _ = beginning(run, "chat/c", call="m2")
    with pytest.raises(LimitReached):
        await store.log.append(write, run.lease)
    await store.limits.change("chat/c", {"tokens": 500})
    run = await begun(store, run, "chat/c", call="m2")
    await store.limits.change("chat/c", {"tokens": None})
    (after,) = await store.limits.read(["chat/c"])
    assert (after.own, after.limit.tokens, after.reserved.tokens) == ((None, None, None), 50, 100)


async def test_a_lowered_limit_stops_new_calls_and_undoes_nothing(store: Store) -> None:
    await store.limits.change("run/a", {"tokens": 500})
    run = await begun(store, await working(store, "a"), "run/a")
    await store.limits.change("run/a", {"tokens": 20})
    write, _ = beginning(run, "run/a", call="m2")
    with pytest.raises(LimitReached):
        await store.log.append(write, run.lease)
    await ended(store, run, usage=used(90))
    assert await figures(store, "run/a") == (Amounts(90, 1_000, 1), NO_AMOUNTS)


async def test_the_same_write_again_reserves_once(store: Store) -> None:
    await store.limits.change("run/a", {"tokens": 150})
    run = await working(store, "a")
    write, _ = beginning(run, "run/a")
    for _ in range(3):
        await store.log.append(write, run.lease)
    assert await figures(store, "run/a") == (NO_AMOUNTS, ONE)


async def test_a_write_refused_for_another_reason_reserves_nothing(store: Store, other: Store) -> None:
    run = await working(store, "a")
    stale, _ = beginning(run, DAY)
    after = await begun(store, run, DAY, call="m2")
    with pytest.raises(StaleHistory):
        await store.log.append(stale, run.lease)
    lost, _ = beginning(after, DAY)
    await claimed(other, after)
    with pytest.raises(LeaseLost):
        await store.log.append(lost, after.lease)
    assert await figures(store, DAY) == (ONE, NO_AMOUNTS)  # of the call that the claim ended


async def test_a_refusal_leaves_the_others_of_its_group_alone(store: Store) -> None:
    await store.limits.change("run/b", {"tokens": 50})
    runs = {id: await working(store, id) for id in "abc"}
    writes = [(beginning(run, DAY, f"run/{id}")[0], run.lease) for id, run in runs.items()]
    answers = await gather(*(store.log.append(*write) for write in writes), return_exceptions=True)
    assert [type(answer) for answer in answers] == [type(None), LimitReached, type(None)]
    assert (await figures(store, DAY))[1] == ONE.plus(ONE)


async def test_of_many_that_ask_at_once_as_many_begin_as_fit(store: Store, other: Store) -> None:
    await store.limits.change(DAY, {"tokens": 350})
    runs = [
        (place, await working(place, f"{place is store}-{n}")) for n in range(5) for place in (store, other)
    ]
    writes = [(place, beginning(run, DAY)[0], run.lease) for place, run in runs]
    answers = await gather(
        *(place.log.append(write, lease) for place, write, lease in writes), return_exceptions=True
    )
    assert sum(answer is None for answer in answers) == 3
    assert all(isinstance(answer, LimitReached | None) for answer in answers)
    assert (await figures(store, DAY))[1].tokens == 300


async def test_a_model_without_a_price_is_refused_under_a_limit_on_cost(store: Store) -> None:
    await store.limits.change("project/p", {"cost": 5_000_000})
    run = await working(store, "a")
    write, _ = beginning(run, "project/p", cost_micro=0, is_priced=False)
    with pytest.raises(Refused) as refused:
        await store.log.append(write, run.lease)
    assert refused.value.code == "price_unknown"
    await begun(store, run, "project/other", cost_micro=0, is_priced=False)


async def test_runs_whose_holder_died_with_a_reservation_are_found(store: Store, other: Store) -> None:
    await begun(store, await working(store, "mine"), DAY, "chat/c")
    await begun(other, await working(other, "dead"), DAY)
    assert await store.limits.abandoned(DAY) == []
    await other.close()
    assert await store.limits.abandoned(DAY) == ["dead"]
    assert await store.limits.abandoned("chat/c") == []


async def test_a_stop_settles_what_is_still_reserved(store: Store) -> None:
    run = await begun(store, await working(store, "a"), DAY)
    await requested(store, run, RunInterrupted(reason="crash"))
    assert await figures(store, DAY) == (ONE, NO_AMOUNTS)
