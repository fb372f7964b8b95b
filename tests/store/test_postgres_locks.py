"""The order of locks in PostgreSQL: runs, chats, messages, scopes. The hottest come last."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from onward.model.call import CallFinished, CallStarted, CallStatus, Reserved, Streamed, Usage
from onward.model.chat import ChunkKind, message_id
from onward.model.events import AttemptInterrupted
from onward.store.port.messages import Flushed, Growth
from onward.store.port.store import Store
from onward.wiring import open_store
from tests.conformance.drafts import Draft
from tests.conformance.limits import STEP, working

pytestmark = [pytest.mark.postgres, pytest.mark.anyio]
CHAT, SCOPE = "talk", "project/p"
PATIENCE_S = 60
"""Whoever waits longer waits for a lock."""


def begins(run: Draft, call: str, chat: str = CHAT) -> CallStarted:
    """A call that reserves, and whose text grows in a chat."""
    return CallStarted(
        step=STEP,
        attempt=1,
        call=call,
        number=1,
        type="model",
        model="acme:small",
        reserved=Reserved(scopes=(SCOPE,), tokens=10),
        streamed=Streamed(chat=chat, message=message_id(run.id, STEP, call, 1)),
    )


def ends(call: str) -> CallFinished:
    usage = Usage(input=1, output=1)
    return CallFinished(
        step=STEP, attempt=1, call=call, number=1, status=CallStatus.OK, type="model", usage=usage
    )


async def appended(store: Store, run: Draft, *events: Any) -> Draft:
    write, after = run.then(*events, with_row=False)
    await store.log.append(write, run.lease)
    return after


async def one(connection: psycopg.AsyncConnection[Any], statement: str) -> Any:
    found = await (await connection.execute(statement.encode())).fetchone()
    return None if found is None else found[0]


async def until_blocked(connection: psycopg.AsyncConnection[Any]) -> None:
    """Wait until a statement waits for a lock."""
    blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    while not await one(connection, blocked):  # noqa: ASYNC110 - nothing announces that it waits
        await asyncio.sleep(0.01)


def growth(run: Draft, chat: str, call: str = "m1") -> Growth:
    """The first text of a call."""
    message, chunks = message_id(run.id, STEP, call, 1), ((ChunkKind.TEXT, "so far"),)
    return Growth(chat, message, run.id, run.run.token, 1, chunks)


@pytest.mark.parametrize("which", ["begins", "ends"])
async def test_a_call_that_waits_for_its_chat_holds_no_scope(postgres_url: str, which: str) -> None:
    """Whoever holds the chat can be slow; calls of other chats in the same scope must not wait for it."""
    store = await open_store(postgres_url)
    run = await working(store, "run")
    run = await appended(store, run, begins(run, "m1"))
    event = ends("m1") if which == "ends" else begins(run, "m2")
    async with (
        await psycopg.AsyncConnection.connect(postgres_url) as chat,
        await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as other,
    ):
        await chat.execute("SELECT n FROM chat WHERE id = 'talk' FOR NO KEY UPDATE")
        waiting = asyncio.ensure_future(appended(store, run, event))
        await until_blocked(other)
        assert await one(other, "SELECT id FROM scope WHERE id = 'project/p' FOR UPDATE NOWAIT") == SCOPE
        with pytest.raises(psycopg.errors.LockNotAvailable):
            await one(other, "SELECT id FROM run WHERE id = 'run' FOR UPDATE NOWAIT")
        await chat.commit()
        await waiting
    await store.close()


async def test_many_calls_in_shared_chats_and_scopes_never_wait_for_each_other_in_a_circle(
    postgres_url: str,
) -> None:
    """Begin, flush, end: from several processes, in two chats and one scope. A deadlock would be an error."""
    stores = [await open_store(postgres_url) for _ in range(3)]

    async def work(number: int) -> None:
        store = stores[number % len(stores)]
        run = await working(store, f"run-{number}")
        for nth in range(6):
            call, chat = f"m{nth}", f"chat-{(number + nth) % 2}"
            run = await appended(store, run, begins(run, call, chat))
            await store.messages.flush([growth(run, chat, call)], 1)
            run = await appended(store, run, ends(call))

    await asyncio.gather(*(work(number) for number in range(12)))
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        counted = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        assert await one(connection, counted) == 0
        assert await one(connection, "SELECT spent_calls FROM scope WHERE id = 'project/p'") == 72
    for store in stores:
        await store.close()


async def test_a_flush_waits_neither_for_a_locked_chat_nor_for_an_append_that_does(postgres_url: str) -> None:
    """The streams of other chats go on; the one that was passed over is told to come again, not that it is
    refused."""
    store = await open_store(postgres_url)
    here, there = await working(store, "here"), await working(store, "there")
    here, there = (
        await appended(store, here, begins(here, "m1")),
        await appended(store, there, begins(there, "m1", "elsewhere")),
    )
    plain = replace(begins(here, "m2"), reserved=None)
    batch = [growth(here, CHAT), growth(there, "elsewhere")]
    async with (
        await psycopg.AsyncConnection.connect(postgres_url) as chat,
        await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as other,
    ):
        await chat.execute("SELECT n FROM chat WHERE id = 'talk' FOR NO KEY UPDATE")
        waiting = asyncio.ensure_future(appended(store, here, plain))
        await until_blocked(other)
        async with asyncio.timeout(PATIENCE_S):
            assert [*await store.messages.flush(batch, 1)] == [Flushed.LATER, Flushed.STORED]
        await chat.commit()
        await waiting
    assert [*await store.messages.flush(batch, 2)] == [Flushed.STORED, Flushed.STORED]
    await store.close()


async def test_a_reservation_that_waits_for_a_hot_scope_keeps_no_other_append_waiting(
    postgres_url: str,
) -> None:
    """Its connection is not the one that all appends of the process share."""
    store = await open_store(postgres_url)
    run, free = await working(store, "run"), await working(store, "free")
    run = await appended(store, run, begins(run, "m1"))
    async with (
        await psycopg.AsyncConnection.connect(postgres_url) as scope,
        await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as other,
    ):
        await scope.execute("SELECT id FROM scope WHERE id = 'project/p' FOR NO KEY UPDATE")
        waiting = asyncio.ensure_future(appended(store, run, begins(run, "m2")))
        await until_blocked(other)
        async with asyncio.timeout(PATIENCE_S):
            await appended(store, free, AttemptInterrupted(step=STEP, attempt=1, why="enough"))
        assert not waiting.done()
        await scope.commit()
        await waiting
    await store.close()
