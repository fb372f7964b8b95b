"""How fast the text of many streams is stored, and how much room it takes."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import apsw
import psycopg

from bench.figure import Figure
from onward.clock import SystemClock
from onward.engine.messages import Flusher, MessageStream
from onward.model.call import Streamed
from onward.model.chat import ChunkKind, chat_of_run, message_id
from onward.store.port.messages import Flushed, Growth, Messages
from onward.store.port.store import Store
from onward.wiring import open_store
from tests.conformance.drafts import Draft
from tests.conformance.messages import STEP, speaking

STREAMS = 20
TOKENS_PER_S = 10_000
"""Of all streams together, as fast as twenty agents at five hundred tokens a second."""
SECONDS = 5.0
PAUSE_S = 0.01
_letters = random.Random(1)
TOKENS = ["".join(_letters.choices("abcdefghijklmnopqrstuvwxyz", k=4)) + " " for _ in range(1_000)]
ROOM_MAX = 2.5
SIZES = """
SELECT sum(pg_total_relation_size(oid)) FILTER (WHERE relname IN ('chunk', 'message', 'chat')),
    sum(pg_total_relation_size(oid))
FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""
PAGES = """
SELECT sum(pgsize) FILTER (WHERE tbl_name IN ('chunk', 'message', 'chat')), sum(pgsize)
FROM dbstat
LEFT JOIN sqlite_schema ON sqlite_schema.name = dbstat.name
WHERE aggregate = TRUE
"""


@dataclass
class Timed:
    """A store's messages whose flushes are timed."""

    messages: Messages
    took_s: list[float]

    async def flush(self, batch: Sequence[Growth], at_us: int) -> Sequence[Flushed]:
        """Flush, and note how long it took."""
        began = time.perf_counter()
        came = await self.messages.flush(batch, at_us)
        self.took_s.append(time.perf_counter() - began)
        return came


async def message_streams(db: str, name: str) -> list[Figure]:
    """Twenty streams at the pace of fast models, then as fast as it goes."""
    figures = []
    for per_s in (TOKENS_PER_S, None):
        store = await open_store(db)
        drafts = [await speaking(store) for _ in range(STREAMS)]
        before, _ = stored_bytes(db)
        timed = Timed(store.messages, [])
        began, worked = time.perf_counter(), time.process_time()
        tokens = await _streamed(store, drafts, timed, per_s)
        took, work = time.perf_counter() - began, time.process_time() - worked
        room = (stored_bytes(db)[0] - before) / (tokens * len(TOKENS[0]))
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


async def sink_rate(db: str) -> float:
    """Tokens per second of twenty streams into the database, as fast as it goes."""
    store = await open_store(db)
    drafts = [await speaking(store) for _ in range(STREAMS)]
    began = time.perf_counter()
    tokens = await _streamed(store, drafts, Timed(store.messages, []), None)
    rate = tokens / (time.perf_counter() - began)
    await store.close()
    return rate


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


def stored_bytes(db: str) -> tuple[int, int]:
    """The bytes of messages with their chunks, and of all that is stored."""
    if db.startswith("postgres"):
        with psycopg.connect(db) as postgres:
            found = postgres.execute(SIZES).fetchone()
    else:
        sqlite = apsw.Connection(db, flags=apsw.SQLITE_OPEN_READONLY)
        found = sqlite.execute(PAGES).fetchone()
        sqlite.close()
    assert found is not None
    return int(found[0] or 0), int(found[1])
