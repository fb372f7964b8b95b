"""How fast the text of many streams is stored, and how much room it takes."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import apsw
import psycopg

from bench.figure import Figure
from onward.clock import SystemClock
from onward.engine.messages.flusher import Flusher
from onward.engine.messages.stream import MessageStream
from onward.model.call import Streamed
from onward.model.chats.message import ChunkKind, chat_of_run, message_id
from onward.store.port.chats.messages import Flushed, Growth, Messages
from onward.store.port.store import Store
from onward.testing.conformance.chats.saying import STEP, speaking
from onward.testing.drafts import Draft
from onward.wiring import open_store

STREAMS = 20
TOKENS_PER_S = 10_000
"""Of all streams together, as fast as twenty agents at five hundred tokens a second."""
SECONDS = 5.0
PAUSE_S = 0.01
_letters = random.Random(1)
TOKENS = ["".join(_letters.choices("abcdefghijklmnopqrstuvwxyz", k=4)) + " " for _ in range(1_000)]
ROOM_MAX = 2.5
SIZE = """
SELECT sum(pg_total_relation_size(oid))::bigint
FROM pg_class
WHERE relname IN ('chunk', 'message', 'chat')
"""


@dataclass
class Timed:
    """A store's messages whose flushes are timed."""

    messages: Messages
    took_s: list[float]

    async def flush(self, batch: Sequence[Growth]) -> Sequence[Flushed]:
        """Flush, and note how long it took."""
        began = time.perf_counter()
        came = await self.messages.flush(batch)
        self.took_s.append(time.perf_counter() - began)
        return came


async def message_streams(db: str, name: str) -> list[Figure]:
    """Twenty streams at the pace of fast models, then as fast as it goes."""
    figures = []
    for per_s in (TOKENS_PER_S, None):
        store = await open_store(db)
        drafts = [await speaking(store) for _ in range(STREAMS)]
        before = _size(db)
        timed = Timed(store.messages, [])
        began, worked = time.perf_counter(), time.process_time()
        tokens = await _streamed(store, drafts, timed, per_s)
        took, work = time.perf_counter() - began, time.process_time() - worked
        room = (_size(db) - before) / (tokens * len(TOKENS[0]))
        await store.close()
        rate, flushes = tokens / took, len(timed.took_s) / took
        slowest_ms = max(timed.took_s) * 1000
        pace = f"{per_s:,} tokens/s wanted" if per_s else "as fast as it goes"
        figures.append(
            Figure(
                f"{name}: {STREAMS} streams, {pace}",
                f"{rate:,.0f} tokens/s, {flushes:.0f} flushes/s, slowest {slowest_ms:.0f} ms, "
                f"{work / took:.0%} of a core, {room:.2f} x the text",
                f">= {TOKENS_PER_S:,}, <= {ROOM_MAX} x",
                rate >= 0.97 * TOKENS_PER_S and room <= ROOM_MAX,
            )
        )
    return figures


async def _streamed(store: Store, drafts: Sequence[Draft], timed: Timed, per_s: int | None) -> int:
    flusher = Flusher(timed, SystemClock())  # type: ignore[arg-type]
    streams = [_stream(flusher, draft) for draft in drafts]
    written = await asyncio.gather(*(_write(stream, per_s) for stream in streams))
    for stream in streams:
        stream.close()
    return sum(written)


def _stream(flusher: Flusher, draft: Draft) -> MessageStream:
    streamed = Streamed(chat=chat_of_run(draft.id), message=message_id(draft.id, STEP, "m1", 1))
    return flusher.open(streamed, run_id=draft.id, token=draft.run.token)


async def _write(stream: MessageStream, per_s: int | None) -> int:
    written, began = 0, time.perf_counter()
    while (passed := time.perf_counter() - began) < SECONDS:
        wanted = written + 50 if per_s is None else int(passed * per_s / STREAMS)
        for token in _letters.choices(TOKENS, k=wanted - written):
            stream.write(ChunkKind.TEXT, token)
        written = wanted
        await stream.ready()
        await asyncio.sleep(0 if per_s is None else PAUSE_S)
    await stream.drain()
    return written


def _size(db: str) -> int:
    if db.startswith("postgres"):
        with psycopg.connect(db) as connection:
            found = connection.execute(SIZE).fetchone()
            return int(found[0]) if found else 0
    copy = f"{db}-copy"
    source, target = apsw.Connection(db, flags=apsw.SQLITE_OPEN_READONLY), apsw.Connection(copy)
    with target.backup("main", source, "main") as backup:
        while not backup.done:
            backup.step()
    source.close()
    target.close()
    size = os.path.getsize(copy)
    os.unlink(copy)
    return size
