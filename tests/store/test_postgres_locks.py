"""The order of locks in PostgreSQL: runs, chats, messages, scopes. The hottest come last."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from onward.model.call import CallFinished, CallStarted, CallStatus, Reserved, Streamed, Usage
from onward.model.chats.message import ChunkKind, message_id
from onward.store.port.chats.messages import Growth
from onward.store.port.store import Store
from onward.testing.conformance.money.calling import STEP, working
from onward.testing.drafts import Draft
from onward.wiring import open_store

pytestmark = [pytest.mark.postgres, pytest.mark.anyio]
CHAT, SCOPE = "talk", "project/p"


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
        blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while not await one(other, blocked):  # noqa: ASYNC110 - nothing announces that it waits
            await asyncio.sleep(0.01)
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
            message = message_id(run.id, STEP, call, 1)
            chunks = ((ChunkKind.TEXT, "so far"),)
            await store.messages.flush([Growth(chat, message, run.id, run.run.token, 1, chunks)])
            run = await appended(store, run, ends(call))

    await asyncio.gather(*(work(number) for number in range(12)))
    async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as connection:
        counted = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        assert await one(connection, counted) == 0
        assert await one(connection, "SELECT spent_calls FROM scope WHERE id = 'project/p'") == 72
    for store in stores:
        await store.close()
