"""The ledger of a transaction that several writes share: what one of them is refused leaves no trace."""

from __future__ import annotations

import pytest

from onward.errors import LimitReached
from onward.model.call import CallFinished, CallStarted, CallStatus, Reserved
from onward.model.limits import AMOUNT_MAX, CALL_AMOUNT_MAX, NO_AMOUNTS, Amounts
from onward.store.limits import Ledger, ReservationKey
from onward.store.memory.adapter import MemoryDatabase
from onward.store.port.limits import ReservationState, Scope
from onward.store.port.store import Store
from tests.conformance.limits import STEP, beginning, begun, ending, used, working

SCOPE = "project/p"
FIRST = ReservationKey("a", STEP, "m1", 1)


@pytest.fixture
def store() -> Store:
    return MemoryDatabase().connect()


async def ledger_of(store: Store) -> Ledger:
    """A ledger with the open reservation of run a, in a scope that has room for 250 tokens."""
    made = {
        ReservationKey(one.run_id, one.step, one.call, one.number): one
        for one in await store.limits.reservations("a")
    }
    limit = Scope(id=SCOPE, own=Amounts(250, 0, 0), reserved=Amounts(100, 1_000, 1))
    return Ledger({SCOPE: limit}, made)


async def test_a_write_that_settles_one_call_and_is_refused_another_changes_nothing(store: Store) -> None:
    """Otherwise those of its group would be judged by room that is not there."""
    run = await begun(store, await working(store, "a"), SCOPE)
    ledger = await ledger_of(store)
    ends = CallFinished(
        step=STEP, attempt=1, call="m1", number=1, status=CallStatus.OK, type="model", usage=used(30)
    )
    more = Reserved(scopes=(SCOPE,), tokens=300)
    begins = CallStarted(step=STEP, attempt=1, call="m2", number=1, type="model", reserved=more)
    write, _ = run.then(ends, begins, with_row=False)
    assert isinstance(ledger.enter(write), LimitReached)
    assert (ledger.changed, ledger.written, ledger.used) == ({}, {}, [])
    other, _ = beginning(await working(store, "b"), SCOPE, tokens=200)
    assert isinstance(ledger.enter(other), LimitReached), "the first call still has its reservation"


async def test_a_reservation_is_settled_once(store: Store) -> None:
    """Also if its end comes again to the same transaction, or to a later one."""
    run = await begun(store, await working(store, "a"), SCOPE)
    ledger = await ledger_of(store)
    write, _ = ending(run, usage=used(30))
    for _ in range(2):
        assert ledger.enter(write) is None
    later = Ledger(dict(ledger.scopes), dict(ledger.written))
    assert later.enter(write) is None
    assert ledger.written[FIRST].state is ReservationState.SETTLED
    assert ledger.scopes[SCOPE].spent.tokens == later.scopes[SCOPE].spent.tokens == 30
    assert ledger.scopes[SCOPE].reserved == NO_AMOUNTS
    assert (len(ledger.used), later.changed, later.used) == (1, {}, [])


async def test_writes_of_one_transaction_see_what_those_before_them_have_reserved(store: Store) -> None:
    """Running sums: of two that fit alone, the second is refused and may wait."""
    ledger = Ledger({SCOPE: Scope(id=SCOPE, own=Amounts(150, 0, 0))}, {})
    first, _ = beginning(await working(store, "a"), SCOPE)
    second, _ = beginning(await working(store, "b"), SCOPE)
    assert ledger.enter(first) is None
    refused = ledger.enter(second)
    assert isinstance(refused, LimitReached)
    assert (refused.reserved, refused.fits_spent) == (100, True)


async def test_no_sum_grows_beyond_the_largest_amount(store: Store) -> None:
    """A call that is settled in a full scope leaves it as it is, and takes no more than there is away."""
    run = await begun(store, await working(store, "a"), SCOPE, tokens=CALL_AMOUNT_MAX)
    ledger = await ledger_of(store)
    full = Amounts(AMOUNT_MAX, AMOUNT_MAX, AMOUNT_MAX)
    ledger.scopes[SCOPE] = Scope(id=SCOPE, spent=full, reserved=Amounts(1, 1, 0))
    write, _ = ending(run, usage=used(CALL_AMOUNT_MAX), cost_micro=CALL_AMOUNT_MAX)
    assert ledger.enter(write) is None
    assert (ledger.scopes[SCOPE].spent, ledger.scopes[SCOPE].reserved) == (full, NO_AMOUNTS)
