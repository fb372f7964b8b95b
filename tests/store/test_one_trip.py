"""A call that begins or ends alone is charged in the trip of its events, and judged as if it had waited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import psycopg
import pytest

from onward.errors import LimitReached, StaleHistory
from onward.model.limits import NO_AMOUNTS, Amounts
from onward.store.postgres.adapter import PostgresStore
from tests.conformance.limits import DAY, beginning, begun, ended, figures, used, working
from tests.store.proxy import Loss, Proxy, Trips

pytestmark = [pytest.mark.postgres, pytest.mark.anyio]
SCOPES = (DAY, "project/p", "run/a")
ONE, SPENT = Amounts(100, 1_000, 1), Amounts(60, 1_000, 1)
Connection = psycopg.AsyncConnection[Any]


@pytest.fixture
def store(proxied_store: PostgresStore) -> PostgresStore:
    return proxied_store


@pytest.fixture
async def other(postgres_ready_url: str) -> AsyncIterator[Connection]:
    """A transaction of somebody else."""
    async with await psycopg.AsyncConnection.connect(postgres_ready_url) as connection:
        yield connection


BLOCKED = b"""
SELECT count(*)
FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND datname = current_database()
"""


async def waits_for_a_lock(postgres_url: str) -> None:
    """Return when a transaction waits for another."""
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        while (await (await connection.execute(BLOCKED)).fetchone()) == (0,):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)


async def after_a_change(url: str, other: Connection, change: str, call: Awaitable[Any]) -> Any:
    """What a call answers that waits for a scope which somebody else has just changed."""
    await other.execute(change.encode())
    waiting = asyncio.ensure_future(call)
    await waits_for_a_lock(url)
    await other.commit()
    return await waiting


async def test_a_call_begins_and_ends_with_one_trip_each(proxy: Proxy, store: PostgresStore) -> None:
    run = await begun(store, await working(store, "a"), *SCOPES)  # makes the rows of its scopes
    proxy.alter = trips = Trips()
    run = await ended(store, run, usage=used(60))
    assert trips.number == 1
    await begun(store, run, *SCOPES, call="m2")
    assert trips.number == 2
    assert [await figures(store, scope) for scope in SCOPES] == [(SPENT, ONE)] * 3


async def test_an_end_that_was_refused_is_charged_with_one_trip_when_it_comes_again(
    proxy: Proxy, store: PostgresStore
) -> None:
    """A write at a place that is taken charges nothing, so nothing is forgotten."""
    older = await begun(store, await working(store, "a"), *SCOPES)
    run = await begun(store, older, *SCOPES, call="m2")
    with pytest.raises(StaleHistory):
        await ended(store, older, usage=used(60))
    proxy.alter = trips = Trips()
    await ended(store, run, usage=used(60))
    assert trips.number == 1
    assert [await figures(store, scope) for scope in SCOPES] == [(SPENT, ONE)] * 3


@pytest.mark.parametrize("loss", [Loss.REQUEST, Loss.REPLY])
async def test_a_lost_connection_charges_once(proxy: Proxy, store: PostgresStore, loss: Loss) -> None:
    run = await working(store, "a")
    run = await ended(store, await begun(store, run, *SCOPES), usage=used(60))
    proxy.lose(loss)
    run = await begun(store, run, *SCOPES, call="m2")
    assert await figures(store, DAY) == (SPENT, ONE)
    proxy.lose(loss)
    await ended(store, run, "m2", usage=used(60))
    assert proxy.losses == 2
    assert [await figures(store, scope) for scope in SCOPES] == [(SPENT.plus(SPENT), NO_AMOUNTS)] * 3


async def test_a_call_that_waited_is_refused_by_what_is_reserved_then(
    postgres_ready_url: str, store: PostgresStore, other: Connection
) -> None:
    await store.limits.change("project/p", {"tokens": 200})
    run = await begun(store, await working(store, "a"), *SCOPES)
    write, _ = beginning(run, *SCOPES, call="m2")
    taken = "UPDATE scope SET reserved_tokens = reserved_tokens + 1 WHERE id = 'project/p'"
    with pytest.raises(LimitReached) as refused:
        await after_a_change(postgres_ready_url, other, taken, store.log.append(write, run.lease))
    assert (refused.value.scope, refused.value.reserved) == ("project/p", 101)
    assert await figures(store, DAY) == (NO_AMOUNTS, ONE)


async def test_a_call_that_waited_fits_what_was_given_back(
    postgres_ready_url: str, store: PostgresStore, other: Connection
) -> None:
    await store.limits.change("project/p", {"tokens": 200})
    run = await begun(store, await working(store, "a"), *SCOPES)
    run = await begun(store, run, *SCOPES, call="m2")
    given = "UPDATE scope SET reserved_tokens = reserved_tokens - 100 WHERE id = 'project/p'"
    await after_a_change(postgres_ready_url, other, given, begun(store, run, *SCOPES, call="m3"))
    assert [reserved.tokens for _, reserved in [await figures(store, scope) for scope in SCOPES]] == [
        300,
        200,
        300,
    ]


async def test_a_limit_that_is_nearly_spent_after_the_wait_is_warned_of(
    postgres_ready_url: str, store: PostgresStore, other: Connection
) -> None:
    await store.limits.change("project/p", {"tokens": 1_000})
    run = await begun(store, await working(store, "a"), *SCOPES)
    spent = "UPDATE scope SET spent_tokens = spent_tokens + 740 WHERE id = 'project/p'"
    await after_a_change(postgres_ready_url, other, spent, ended(store, run, usage=used(60)))
    (warned,) = store.limits.take_warnings("a")
    assert (warned.scope, warned.measure, warned.limit, warned.spent) == ("project/p", "tokens", 1_000, 800)
    run = await begun(store, await working(store, "b"), *SCOPES)
    await ended(store, run, usage=used(60))
    assert not store.limits.take_warnings("b")  # it was said
    assert (await figures(store, "project/p"))[0].tokens == 860


@pytest.mark.parametrize("scopes", [3, 5_000])
async def test_scopes_are_locked_in_the_order_of_their_ids(
    postgres_ready_url: str, store: PostgresStore, other: Connection, scopes: int
) -> None:
    """Whoever waits for a scope holds those before it, and none behind it: so nobody waits in a circle."""
    run = await begun(store, await working(store, "a"), "run/a", "project/p", DAY)
    async with await psycopg.AsyncConnection.connect(postgres_ready_url, autocommit=True) as connection:
        made = "INSERT INTO scope (id, kind) SELECT 'chat/' || n, 'chat' FROM generate_series(4, %s) AS n"
        await connection.execute(made.encode(), (scopes,))
        await connection.execute("ANALYZE")
        await other.execute("SELECT id FROM scope WHERE id = 'project/p' FOR UPDATE")
        waiting = asyncio.ensure_future(begun(store, run, "run/a", "project/p", DAY, call="m2"))
        await waits_for_a_lock(postgres_ready_url)
        free = await connection.execute("SELECT id FROM scope WHERE id = 'run/a' FOR UPDATE NOWAIT")
        assert await free.fetchone() == ("run/a",)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await connection.execute(f"SELECT id FROM scope WHERE id = '{DAY}' FOR UPDATE NOWAIT".encode())
        await other.commit()
        await waiting


async def test_no_limit_is_oversold_by_many_processes_at_once(postgres_ready_url: str) -> None:
    stores = [await PostgresStore.open(postgres_ready_url) for _ in range(6)]
    await stores[0].limits.change(DAY, {"tokens": 1_000})

    async def call_until_full(store: PostgresStore, name: str) -> int:
        run, made = await working(store, name), 0
        while True:
            try:
                run = await begun(store, run, DAY, f"run/{name}", call=f"m{made + 1}")
            except LimitReached:
                return made
            made += 1

    made = await asyncio.gather(*(call_until_full(store, f"r{n}") for n, store in enumerate(stores)))
    assert sum(made) == 10
    assert (await figures(stores[0], DAY))[1] == Amounts(1_000, 10_000, 10)
    for store in stores:
        await store.close()
