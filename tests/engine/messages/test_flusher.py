"""Text on its way into messages: stored soon, once, in order, and never more than a writer may hold."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest

from onward.engine.messages import (
    BEHIND_BYTES,
    EVERY_S,
    FLUSH_BYTES,
    KEPT_S,
    PAUSE_S,
    PAUSE_S_MAX,
    Flusher,
    MessageStream,
    MessageTidying,
    next_flush_s,
)
from onward.errors import StoreCorrupt, StoreUnavailable
from onward.model.call import Streamed
from onward.model.chat import ChunkKind, chat_of_run, message_id
from onward.model.row import MessageState
from onward.redact.redactor import Redactor
from onward.store.port.messages import Flushed, Growth, Messages
from onward.store.port.store import Store
from onward.testing.clock import ManualClock
from tests.conformance.drafts import Draft
from tests.conformance.messages import STEP, answered, appended, heard, only, speaking

pytestmark = pytest.mark.anyio
TEXT, REASONING, TOOL_CALL = ChunkKind.TEXT, ChunkKind.REASONING, ChunkKind.TOOL_CALL
Flush = Callable[[Sequence[Growth]], Awaitable[Sequence[Flushed]]]


@dataclass
class Watched:
    """A store's messages whose flushes are counted, and may go wrong."""

    messages: Messages
    batches: list[Sequence[Growth]] = field(default_factory=list)
    troubles: list[Callable[[Flush, Sequence[Growth]], Awaitable[Sequence[Flushed]]]] = field(
        default_factory=list
    )

    async def flush(self, batch: Sequence[Growth], at_us: int) -> Sequence[Flushed]:
        self.batches.append(batch)
        flush = partial(self.messages.flush, at_us=at_us)
        if self.troubles:
            return await self.troubles.pop(0)(flush, batch)
        return await flush(batch)


async def reply_lost(flush: Flush, batch: Sequence[Growth]) -> Sequence[Flushed]:
    await flush(batch)
    raise StoreUnavailable("the reply was lost.")


async def locked(flush: Flush, batch: Sequence[Growth]) -> Sequence[Flushed]:
    return [Flushed.LATER for _ in batch]


async def broken(flush: Flush, batch: Sequence[Growth]) -> Sequence[Flushed]:
    raise StoreCorrupt("it is damaged.")


@pytest.fixture
def watched(store: Store) -> Watched:
    return Watched(store.messages)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(autojump=False)


@pytest.fixture
def flusher(watched: Watched, clock: ManualClock) -> Flusher:
    return Flusher(watched, clock)  # type: ignore[arg-type]


def stream_of(
    flusher: Flusher, draft: Draft, on_refused: Callable[[], object] | None = None
) -> MessageStream:
    streamed = Streamed(chat=chat_of_run(draft.id), message=message_id(draft.id, STEP, "m1", 1))
    return flusher.open(streamed, run_id=draft.id, token=draft.run.token, on_refused=on_refused)


async def texts(store: Store, draft: Draft) -> list[str]:
    return [text for _, kind, text in await heard(store, chat_of_run(draft.id)) if kind == "text"]


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - nothing announces it
        await asyncio.sleep(0)


async def test_a_refresh_in_the_middle_shows_what_was_said_so_far(
    store: Store, flusher: Flusher, clock: ManualClock, watched: Watched
) -> None:
    """S2-1, S2-9, S2-12, S2-20, S2-25: an empty answer is stored as streaming; then its first words are
    written at once and the others soon, and whoever looks sees them."""
    draft = await speaking(store)
    assert (await only(store, draft.id)).state is MessageState.STREAMING
    assert await texts(store, draft) == []
    with stream_of(flusher, draft) as stream:
        for number in range(3):
            for word in ("Once ", "upon ", "a time "):
                stream.write(TEXT, word)
            if number:
                await clock.until_waiting()
                assert len(watched.batches) == number
                clock.advance(PAUSE_S)
            await until(lambda: not stream.has_rest)
            assert len(watched.batches) == number + 1
            assert await texts(store, draft) == ["Once upon a time "] * (number + 1)
        assert (await only(store, draft.id)).state is MessageState.STREAMING


async def test_much_text_does_not_wait_for_the_pause_to_end(store: Store, flusher: Flusher) -> None:
    draft = await speaking(store)
    with stream_of(flusher, draft) as stream:
        for number in range(3):
            stream.write(TEXT, "a" * FLUSH_BYTES)
            await until(lambda: not stream.has_rest)  # the clock stands still
            assert await texts(store, draft) == ["a" * FLUSH_BYTES] * (number + 1)


async def test_text_that_comes_after_a_silence_is_stored_at_once(
    store: Store, flusher: Flusher, clock: ManualClock
) -> None:
    draft = await speaking(store)
    with stream_of(flusher, draft) as stream:
        for word in ("a", "b"):
            stream.write(TEXT, word)
            await until(lambda: not stream.has_rest)  # the clock stands still
            clock.advance(PAUSE_S)
        assert await texts(store, draft) == ["a", "b"]


@pytest.mark.parametrize(
    ("took_s", "pause_s"), [(0.0, PAUSE_S), (0.01, PAUSE_S), (0.03, 0.12), (0.05, 0.2), (7.0, PAUSE_S_MAX)]
)
def test_flushes_that_are_slow_come_less_often(took_s: float, pause_s: float) -> None:
    assert next_flush_s(100.0, 100.0 + took_s) - (100.0 + took_s) == pytest.approx(pause_s)


async def test_a_slow_store_has_time_between_two_flushes(
    store: Store, watched: Watched, flusher: Flusher, clock: ManualClock
) -> None:
    async def slow(flush: Flush, batch: Sequence[Growth]) -> Sequence[Flushed]:
        clock.advance(2 * PAUSE_S)
        return await flush(batch)

    draft = await speaking(store)
    watched.troubles.append(slow)
    with stream_of(flusher, draft) as stream:
        stream.write(TEXT, "a")
        await until(lambda: not stream.has_rest)
        stream.write(TEXT, "b")
        await clock.until_waiting()
        clock.advance(PAUSE_S)
        await clock.until_waiting()
        assert await texts(store, draft) == ["a"]
        clock.advance(PAUSE_S_MAX)
        await until(lambda: not stream.has_rest)
        assert await texts(store, draft) == ["a", "b"]


async def test_all_streams_share_a_flush(store: Store, flusher: Flusher, watched: Watched) -> None:
    drafts = [await speaking(store) for _ in range(3)]
    streams = [stream_of(flusher, draft) for draft in drafts]
    for stream, draft in zip(streams, drafts, strict=True):
        stream.write(TEXT, draft.id)
    assert await asyncio.gather(*(stream.drain() for stream in streams)) == [True] * 3
    assert [len(batch) for batch in watched.batches] == [3]
    assert [await texts(store, draft) for draft in drafts] == [[draft.id] for draft in drafts]


async def test_what_is_drained_is_durable_before_the_end(store: Store, flusher: Flusher) -> None:
    draft = await speaking(store)
    with stream_of(flusher, draft) as stream:
        stream.write(REASONING, "hm")
        stream.write(TEXT, "a")
        stream.write(TEXT, "b")
        stream.write(TOOL_CALL, "{}")
        stream.write(TOOL_CALL, "{}")
        assert await stream.drain()
        assert await stream.drain()
        await appended(store, draft, answered())
    kinds = [(kind, text) for _, kind, text in await heard(store, chat_of_run(draft.id), 1)]
    assert kinds == [
        ("reasoning", "hm"),
        ("text", "ab"),
        ("tool_call", "{}"),
        ("tool_call", "{}"),
        ("end", "complete"),
    ]


async def test_a_flush_whose_reply_was_lost_stores_nothing_twice(store: Store, watched: Watched) -> None:
    flusher = Flusher(watched, ManualClock())  # type: ignore[arg-type]
    draft = await speaking(store)
    watched.troubles += [reply_lost, reply_lost]
    with stream_of(flusher, draft) as stream:
        stream.write(TEXT, "once")
        draining = asyncio.create_task(stream.drain())
        await until(lambda: watched.batches)
        stream.write(TEXT, " more")
        assert await draining
    assert await texts(store, draft) == ["once", " more"]
    assert len(watched.batches) == 4


async def test_a_chat_that_is_locked_is_tried_again(store: Store, watched: Watched) -> None:
    flusher = Flusher(watched, ManualClock())  # type: ignore[arg-type]
    draft = await speaking(store)
    watched.troubles += [locked, locked]
    with stream_of(flusher, draft) as stream:
        stream.write(TEXT, "once")
        assert await stream.drain()
    assert await texts(store, draft) == ["once"]
    assert len(watched.batches) == 3


async def test_a_refused_stream_tells_its_writer_once_and_drops_the_rest(
    store: Store, flusher: Flusher, watched: Watched
) -> None:
    draft = await speaking(store)
    await appended(store, draft, answered())
    told: list[str] = []
    with stream_of(flusher, draft, lambda: told.append("refused")) as stream:
        stream.write(TEXT, "late")
        assert not await stream.drain()
        stream.write(TEXT, "later")
        assert not await stream.drain()
        await stream.ready()
        assert stream.is_refused
    assert (told, len(watched.batches)) == (["refused"], 1)
    assert await texts(store, draft) == []


async def test_a_writer_that_is_far_ahead_waits(store: Store, watched: Watched) -> None:
    flusher = Flusher(watched, ManualClock())  # type: ignore[arg-type]
    draft = await speaking(store)
    release = asyncio.Event()

    async def slow(flush: Flush, batch: Sequence[Growth]) -> Sequence[Flushed]:
        await release.wait()
        return await flush(batch)

    watched.troubles.append(slow)
    with stream_of(flusher, draft) as stream:
        stream.write(TEXT, "a" * BEHIND_BYTES)
        await asyncio.wait_for(stream.ready(), 10)
        stream.write(TEXT, "ä")
        waiting = asyncio.create_task(stream.ready())
        await until(lambda: watched.batches)
        assert not waiting.done()
        release.set()
        await waiting
        assert await stream.drain()
    assert "".join(await texts(store, draft)) == "a" * BEHIND_BYTES + "ä"


async def test_what_keeps_the_store_from_taking_text_is_raised_and_another_drain_tries_again(
    store: Store, flusher: Flusher, watched: Watched
) -> None:
    draft = await speaking(store)
    watched.troubles.append(broken)
    with stream_of(flusher, draft) as stream:
        stream.write(TEXT, "kept")
        with pytest.raises(StoreCorrupt):
            await stream.drain()
        assert await stream.drain()
    assert await texts(store, draft) == ["kept"]


async def test_one_bad_stream_does_not_keep_the_others(
    store: Store, flusher: Flusher, watched: Watched
) -> None:
    good, bad = await speaking(store), await speaking(store)
    watched.troubles += [broken, broken]
    streams = [stream_of(flusher, bad), stream_of(flusher, good)]
    for stream in streams:
        stream.write(TEXT, "text")
    came = await asyncio.gather(*(stream.drain() for stream in streams), return_exceptions=True)
    assert isinstance(came[0], StoreCorrupt)
    assert came[1] is True
    for stream in streams:
        stream.close()


async def test_half_characters_are_joined_or_replaced(store: Store, flusher: Flusher) -> None:
    draft = await speaking(store)
    with stream_of(flusher, draft) as stream:
        for piece in ("a\ud83d", "\ude00b", "\ud83d", "\0"):
            stream.write(TEXT, piece)
        assert await stream.drain()
    assert await texts(store, draft) == ["a\U0001f600b\N{REPLACEMENT CHARACTER}\0"]


async def test_there_is_no_task_when_nothing_streams(store: Store, flusher: Flusher) -> None:
    before = asyncio.all_tasks()
    draft = await speaking(store)
    stream = stream_of(flusher, draft)
    assert asyncio.all_tasks() == before
    stream.write(TEXT, "a")
    assert await stream.drain()
    await until(lambda: asyncio.all_tasks() == before)
    stream.write(TEXT, "dropped")
    await flusher.close()
    assert asyncio.all_tasks() == before
    assert await texts(store, draft) == ["a"]


async def test_workers_seal_what_has_ended_and_tidy_it_a_day_later(store: Store) -> None:
    draft = await speaking(store)
    flusher = Flusher(store.messages, ManualClock())
    with stream_of(flusher, draft) as stream:
        stream.write(TEXT, "all")
        assert await stream.drain()
    after = await appended(store, draft, answered())
    clock = ManualClock(after.run.updated_at_us, autojump=False)
    tidying = MessageTidying(store.messages, clock)
    assert await tidying.tidy() == 1
    assert (await only(store, draft.id)).content is not None
    clock.advance(KEPT_S)
    assert await tidying.tidy() == 0
    clock.advance(EVERY_S)
    assert await tidying.tidy() == 1
    assert (await only(store, draft.id)).is_tidied
    assert await store.messages.content(message_id(draft.id, STEP, "m1", 1)) == ((TEXT, "all"),)


async def test_a_secret_that_comes_in_pieces_is_stored_nowhere(
    store: Store, watched: Watched, clock: ManualClock
) -> None:
    secret = "correct-horse-battery"
    flusher = Flusher(watched, clock, redactor=Redactor({"KEY": secret}))  # type: ignore[arg-type]
    draft = await speaking(store)
    with stream_of(flusher, draft) as stream:
        for piece in ("it is correct", "-horse-", "batt"):
            stream.write(TEXT, piece)
            await until(lambda: not stream.has_rest)
            clock.advance(PAUSE_S)
        stream.write(TEXT, "ery, and corr")
        stream.write(TOOL_CALL, f"use {secret}")
        assert await stream.drain()
    sent = "".join(text for batch in watched.batches for growth in batch for _, text in growth.chunks)
    assert secret not in sent
    parts = await store.messages.content(message_id(draft.id, STEP, "m1", 1))
    assert parts == ((TEXT, "it is [redacted KEY], and corr"), (TOOL_CALL, "use [redacted KEY]"))
