"""Settlements: once for each call, by the scopes that it reserved in, with what it cost or may have cost."""

from __future__ import annotations

from typing import Any

import pytest

from onward.model.call import CallStatus
from onward.model.events import RunPaused, StepStarted
from onward.model.limits import NO_AMOUNTS, Amounts
from onward.store.port.limits import ReservationState, UsageKind, Warned
from onward.store.port.retention import Arrival, Kin
from onward.store.port.store import Store
from onward.testing.conformance.money.calling import (
    DAY,
    STEP,
    beginning,
    begun,
    ended,
    ending,
    figures,
    used,
    working,
)
from onward.testing.drafts import claimed, creation, fork, log_of, requested

ONE = Amounts(100, 1_000, 1)
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
    assert listed == ["chat", "day", "chat/c", "day/2023-11-14", "day/2023-11-13", "run/a"]
    assert len(await store.limits.list(limit=2)) == 2


async def test_a_request_that_ends_a_call_settles_it(store: Store) -> None:
    run = await begun(store, await working(store, "a"), DAY)
    await requested(store, run, RunPaused(reason="operator"))
    assert await figures(store, DAY) == (ONE, NO_AMOUNTS)
