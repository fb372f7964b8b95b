"""Limits: calls reserve what they may cost and settle what they cost, never more than is allowed.

A reservation is written with the call that it is for or not at all. A call is settled once, by the scopes
that it reserved in, with what it cost or may have cost. First stand calls as a holder writes them; other
tests use them as well.
"""

from __future__ import annotations

from asyncio import gather
from typing import Any

import pytest

from onward.errors import LeaseLost, LimitReached, Refused, StaleHistory
from onward.model.call import CallFinished, CallLost, CallStarted, CallStatus, Reserved, Usage
from onward.model.events import RunInterrupted, RunPaused, StepStarted
from onward.model.limits import CALL_AMOUNT_MAX, NO_AMOUNTS, Amounts
from onward.store.port.limits import ReservationState, UsageKind, Warned
from onward.store.port.log import Write
from onward.store.port.retention import Arrival, Kin
from onward.store.port.store import Store
from tests.conformance.drafts import Draft, claimed, creation, everything_of, fork, held, log_of, requested

STEP = "start#1"
DAY = "day/2023-11-14"


async def working(store: Store, run_id: str, **fields: Any) -> Draft:
    """A held run with a step under way."""
    run = await held(store, run_id, **fields)
    write, begun = run.then(StepStarted(step=STEP, node="start", attempt=1), with_row=False)
    await store.log.append(write, run.lease)
    return begun


def beginning(
    run: Draft, *scopes: str, call: str = "m1", number: int = 1, **reserved: Any
) -> tuple[Write, Draft]:
    """The write that begins a call, with what it reserves in these scopes."""
    amounts = Reserved(scopes=scopes, **{"tokens": 100, "cost_micro": 1_000, **reserved})
    started = CallStarted(
        step=STEP, attempt=1, call=call, number=number, type="model", model="acme:small", reserved=amounts
    )
    return run.then(started, with_row=False)


def ending(run: Draft, call: str = "m1", number: int = 1, **fields: Any) -> tuple[Write, Draft]:
    """The write that ends a call, by itself with its usage, and without a status as lost."""
    if fields.pop("lost", False):
        return run.then(CallLost(step=STEP, call=call, number=number), with_row=False)
    given: dict[str, Any] = {"status": CallStatus.OK, "type": "model", "model": "acme:small", **fields}
    return run.then(CallFinished(step=STEP, attempt=1, call=call, number=number, **given), with_row=False)


async def begun(store: Store, run: Draft, *scopes: str, **reserved: Any) -> Draft:
    """The run after a call has begun."""
    write, after = beginning(run, *scopes, **reserved)
    await store.log.append(write, run.lease)
    return after


async def ended(store: Store, run: Draft, call: str = "m1", number: int = 1, **fields: Any) -> Draft:
    """The run after a call has ended."""
    write, after = ending(run, call, number, **fields)
    await store.log.append(write, run.lease)
    return after


def used(tokens: int) -> Usage:
    """Usage of so many tokens."""
    return Usage(input=tokens - tokens // 3, output=tokens // 3)


async def figures(store: Store, scope: str) -> tuple[Amounts, Amounts]:
    """What is spent and what is reserved in a scope."""
    (found,) = await store.limits.read([scope])
    return found.spent, found.reserved


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


ERROR = CallStatus.ERROR


@pytest.mark.parametrize(
    ("fields", "charged", "is_estimated"),
    [
        ({"usage": used(70), "cost_micro": 700}, Amounts(70, 700, 1), False),
        ({"usage": used(70)}, Amounts(70, 1_000, 1), False),
        ({"usage": used(500), "cost_micro": 9_000}, Amounts(500, 9_000, 1), False),
        ({"status": CallStatus.ERROR, "error": "no"}, Amounts(0, 0, 1), False),
        (
            {"status": CallStatus.ERROR, "error": "no", "usage": used(9), "cost_micro": 3},
            Amounts(9, 3, 1),
            False,
        ),
        ({"status": CallStatus.ERROR, "error": "cut", "is_cost_unknown": True}, ONE, True),
        ({"lost": True}, ONE, True),
    ],
)
async def test_a_call_is_charged_what_it_cost(
    store: Store, fields: dict[str, Any], charged: Amounts, is_estimated: bool
) -> None:
    """A lost one is charged what it reserved; one that failed and says nothing only counts as a call."""
    run = await begun(store, await working(store, "a"), DAY, "run/a")
    await ended(store, run, **fields)
    for scope in (DAY, "run/a"):
        assert await figures(store, scope) == (charged, NO_AMOUNTS)
    (made,) = await store.limits.reservations("a")
    assert (made.state, made.charged, made.is_estimated) == (ReservationState.SETTLED, charged, is_estimated)
    (row,) = await store.limits.usage(UsageKind.RUN, limit=10)
    assert (row.what, row.tokens, row.cost_micro, row.calls, row.estimated) == (
        "a",
        *charged,
        int(is_estimated),
    )


async def test_the_same_end_again_is_charged_once(store: Store) -> None:
    run = await begun(store, await working(store, "a"), DAY)
    write, _ = ending(run, usage=used(60), cost_micro=6)
    for _ in range(3):
        await store.log.append(write, run.lease)
    assert await figures(store, DAY) == (Amounts(60, 6, 1), NO_AMOUNTS)


async def test_a_claim_settles_what_the_dead_holder_had_reserved(store: Store, other: Store) -> None:
    run = await begun(store, await working(store, "a"), DAY, "chat/c")
    run = await begun(store, run, DAY, call="m2")
    run = await ended(store, run, "m2", usage=used(10), cost_micro=1)
    await store.close()
    await claimed(other, run)
    assert await figures(other, DAY) == (Amounts(110, 1_001, 2), NO_AMOUNTS)
    assert await figures(other, "chat/c") == (ONE, NO_AMOUNTS)
    assert [made.is_estimated for made in await other.limits.reservations("a")] == [True, False]


async def test_a_call_made_again_reserves_and_is_charged_again(store: Store) -> None:
    run = await begun(store, await working(store, "a"), DAY)
    run = await ended(store, run, status=CallStatus.ERROR, error="no", usage=used(20), cost_micro=2)
    run = await begun(store, run, DAY, number=2)
    await ended(store, run, number=2, usage=used(30), cost_micro=3)
    assert await figures(store, DAY) == (Amounts(50, 5, 2), NO_AMOUNTS)
    assert [made.number for made in await store.limits.reservations("a")] == [1, 2]


async def test_a_call_is_settled_on_the_day_it_reserved_on(store: Store) -> None:
    """It began before midnight and ends after it; the scopes of the reservation count."""
    run = await begun(store, await working(store, "a"), "day/2023-11-13")
    await ended(store, run, usage=used(60), cost_micro=6)
    assert await figures(store, "day/2023-11-13") == (Amounts(60, 6, 1), NO_AMOUNTS)
    (row,) = await store.limits.usage(UsageKind.DAY, limit=10)
    assert row.what == "2023-11-13"


async def test_a_fork_begins_at_nothing_and_settles_nothing_of_its_parent(store: Store) -> None:
    run = await begun(store, await working(store, "a"), DAY, "run/a")
    write, _ = fork(run, "b")
    await store.log.create(write, "fork")
    assert await figures(store, DAY) == (NO_AMOUNTS, ONE)
    assert await store.limits.reservations("b") == []
    await ended(store, run, usage=used(60), cost_micro=6)
    assert await figures(store, DAY) == (Amounts(60, 6, 1), NO_AMOUNTS)


async def test_an_imported_run_spends_nothing_here(store: Store) -> None:
    write, far = creation("far", owner="1@elsewhere/1")
    step, working_ = far.then(StepStarted(step=STEP, node="start", attempt=1))
    call, _ = beginning(working_, DAY)
    await store.carrying.receive(Arrival(write, lambda: iter([(*step.records, *call.records)])))
    assert len(await log_of(store, "far")) == 4
    assert await figures(store, DAY) == (NO_AMOUNTS, NO_AMOUNTS)
    assert await store.limits.reservations("far") == []


async def test_usage_is_put_together_by_whatever_is_asked(store: Store) -> None:
    first = await working(store, "a", pipeline="story")
    first = await begun(store, first, "chat/c", "day/2023-11-13", "project/p", "run/a")
    await ended(store, first, usage=used(60), cost_micro=6)
    second = await begun(store, await working(store, "b", pipeline="tale"), "chat/c", DAY, "run/b")
    await ended(store, second, usage=used(30), cost_micro=9, model="acme:large")
    found = {
        by: [(row.what, row.tokens, row.cost_micro) for row in await store.limits.usage(by, limit=10)]
        for by in UsageKind
    }
    assert found == {
        UsageKind.RUN: [("b", 30, 9), ("a", 60, 6)],
        UsageKind.CHAT: [("c", 90, 15)],
        UsageKind.PROJECT: [("", 30, 9), ("p", 60, 6)],
        UsageKind.DAY: [("2023-11-14", 30, 9), ("2023-11-13", 60, 6)],
        UsageKind.PIPELINE: [("tale", 30, 9), ("story", 60, 6)],
        UsageKind.MODEL: [("acme:large", 30, 9), ("acme:small", 60, 6)],
    }
    assert len(await store.limits.usage(UsageKind.RUN, limit=1)) == 1


async def test_what_was_spent_survives_the_run_that_spent_it(store: Store) -> None:
    run = await begun(store, await working(store, "a"), DAY, "run/a")
    run = await ended(store, run, usage=used(60), cost_micro=6)
    over = await requested(store, run, RunPaused(reason="operator"))
    gone = Kin(id="a", head=over.position.seq, status=over.run.status)
    assert await store.retention.delete([gone]) == ["a"]
    assert await figures(store, DAY) == (Amounts(60, 6, 1), NO_AMOUNTS)
    assert await figures(store, "run/a") == (NO_AMOUNTS, NO_AMOUNTS)
    assert await store.limits.reservations("a") == []
    (row,) = await store.limits.usage(UsageKind.RUN, limit=10)
    assert (row.what, row.tokens) == ("a", 60)


async def test_a_limit_that_is_nearly_spent_is_said_once(store: Store, other: Store) -> None:
    await store.limits.change(DAY, {"tokens": 1_000})
    run = await begun(store, await working(store, "a"), DAY, tokens=900)
    assert store.limits.take_warnings("a") == ()
    run = await ended(store, run, usage=used(800))
    assert list(store.limits.take_warnings("a")) == [Warned(DAY, "tokens", 1_000, 800)]
    assert store.limits.take_warnings("a") == ()
    second = await begun(other, await working(other, "b"), DAY, call="m2")
    await ended(other, second, "m2", usage=used(100))
    assert other.limits.take_warnings("b") == ()
    await store.limits.change(DAY, {"tokens": 1_100})
    run = await begun(store, run, DAY, call="m3")
    await ended(store, run, "m3", usage=used(10))
    assert list(store.limits.take_warnings("a")) == [Warned(DAY, "tokens", 1_100, 910)]


async def test_a_scope_that_is_nearly_spent_is_charged_once_like_the_others_of_its_call(store: Store) -> None:
    await store.limits.change("run/a", {"tokens": 1_000})
    run = await begun(store, await working(store, "a"), DAY, "run/a", tokens=900)
    await ended(store, run, usage=used(800), cost_micro=7)
    assert list(store.limits.take_warnings("a")) == [Warned("run/a", "tokens", 1_000, 800)]
    assert [await figures(store, scope) for scope in (DAY, "run/a")] == [(Amounts(800, 7, 1), NO_AMOUNTS)] * 2
    (settled,) = await store.limits.reservations("a")
    assert (settled.state, settled.charged) == (ReservationState.SETTLED, Amounts(800, 7, 1))


async def test_scopes_are_listed_with_the_defaults_first_and_the_newest_day_before_older_ones(
    store: Store,
) -> None:
    for scope in ("run/a", "day/2023-11-13", "day", "chat/c", "day/2023-11-14"):
        await store.limits.change(scope, {"calls": 3})
    listed = [scope.id for scope in await store.limits.list(limit=10)]
    assert listed == ["chat", "day", "run", "chat/c", "day/2023-11-14", "day/2023-11-13", "run/a"]
    assert len(await store.limits.list(limit=2)) == 2


async def test_a_request_that_ends_a_call_settles_it(store: Store) -> None:
    run = await begun(store, await working(store, "a"), DAY)
    await requested(store, run, RunPaused(reason="operator"))
    assert await figures(store, DAY) == (ONE, NO_AMOUNTS)


ABSURD = 2**63 - 1


@pytest.mark.parametrize(
    "fields",
    [
        {"usage": Usage(input=ABSURD), "cost_micro": 7},
        {"usage": Usage(input=2**62, output=2**62), "cost_micro": 7},
        {"usage": Usage(output=ABSURD, cached=ABSURD), "cost_micro": ABSURD},
        {"usage": used(60), "cost_micro": ABSURD},
        {"usage": used(60), "cost_micro": -1},
        {"usage": Usage(input=-5), "cost_micro": 7},
        {"status": ERROR, "error": "no", "usage": Usage(reasoning=ABSURD)},
    ],
)
@pytest.mark.parametrize("is_alone", [True, False])
async def test_a_usage_that_no_model_can_have_is_charged_as_what_was_reserved(
    store: Store, other: Store, fields: dict[str, Any], is_alone: bool
) -> None:
    """Once, like a call whose cost is not known; and no other call of the day is in its way."""
    run = await begun(store, await working(store, "a"), DAY, "run/a")
    write, run = ending(run, **fields)
    await (store if is_alone else other).log.append(write, run.lease)
    assert await figures(store, DAY) == (ONE, NO_AMOUNTS)
    (made,) = await store.limits.reservations("a")
    assert (made.state, made.charged, made.is_estimated) == (ReservationState.SETTLED, ONE, True)
    second = await begun(store, await working(store, "b"), DAY)
    await ended(store, second, usage=used(60), cost_micro=6)
    assert await figures(store, DAY) == (Amounts(160, 1_006, 2), NO_AMOUNTS)
    (row,) = await store.limits.usage(UsageKind.DAY, limit=10)
    assert (row.tokens, row.input + row.output, row.calls, row.estimated) == (160, 60, 2, 1)


async def test_what_calls_reserve_has_an_end(store: Store, other: Store) -> None:
    """The books of a run that reserves what no database can add up are like those of any other."""
    await store.limits.change("run/b", {"tokens": 1_000})
    most = Amounts(CALL_AMOUNT_MAX, CALL_AMOUNT_MAX, 1)
    run, calls = await working(store, "a"), ("m1", "m2", "m3")
    for call in calls:
        run = await begun(store, run, DAY, "run/a", call=call, tokens=ABSURD, cost_micro=ABSURD)
    assert await figures(store, DAY) == (NO_AMOUNTS, most.plus(most).plus(most))
    run = await ended(store, run, "m1", lost=True)
    run = await ended(store, run, "m2", usage=used(60), cost_micro=6)
    await store.close()
    await claimed(other, run)
    assert await figures(other, DAY) == (most.plus(most).plus(Amounts(60, 6, 1)), NO_AMOUNTS)
    second = await begun(other, await working(other, "b"), DAY, "run/b")
    await ended(other, second, usage=used(60), cost_micro=6)
    assert await figures(other, "run/b") == (Amounts(60, 6, 1), NO_AMOUNTS)


async def test_the_largest_calls_are_added_up_exactly(store: Store) -> None:
    run, most = await working(store, "a"), Usage(input=CALL_AMOUNT_MAX)
    for number in range(1, 4):
        run = await begun(store, run, DAY, "run/a", number=number)
        run = await ended(store, run, number=number, usage=most, cost_micro=CALL_AMOUNT_MAX)
    assert await figures(store, DAY) == (Amounts(3 * CALL_AMOUNT_MAX, 3 * CALL_AMOUNT_MAX, 3), NO_AMOUNTS)
    (row,) = await store.limits.usage(UsageKind.DAY, limit=10)
    assert (row.input, row.tokens, row.cost_micro) == (3 * CALL_AMOUNT_MAX,) * 3
