"""Flushes: what the streams of a process have new, in one transaction, four times a second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from onward.clock import Clock
from onward.engine.log.retry_store import OUT_OF_REACH, retry_store
from onward.engine.messages.stream import MessageStream
from onward.errors import StoreUnavailable
from onward.model.call import Streamed
from onward.model.chat import text_of
from onward.redact.redactor import NOTHING_SECRET, Redactor
from onward.store.port.messages import Flushed, Messages

log = logging.getLogger("onward.messages")
TICK_S = 0.25
LOCKED_S = 0.02
"""How long to leave a chat alone that others have locked."""
BATCH_MAX = 200


class Flusher:
    """Stores the text of all messages that this process streams.

    It has a task only while there is something to store. What the `redactor` knows is never stored. `note`,
    `forget` and `turn_of` are for its streams.
    """

    def __init__(
        self,
        messages: Messages,
        clock: Clock,
        *,
        redactor: Redactor = NOTHING_SECRET,
        tick_s: float = TICK_S,
    ) -> None:
        self._redactor = redactor
        self._messages, self._clock, self._tick_s = messages, clock, tick_s
        self._waiting: dict[MessageStream, None] = {}
        self._open: set[MessageStream] = set()
        self._urgent, self._turn = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._told = ""

    def open(
        self,
        streamed: Streamed,
        *,
        run_id: str,
        token: int,
        on_refused: Callable[[], object] | None = None,
    ) -> MessageStream:
        """A stream into the message of a call whose start is recorded under this lease token.

        `on_refused` is called once, if the message is not streaming under this token any more: ask for the
        lease.
        """
        stream = MessageStream(
            self, streamed, run_id=run_id, token=token, redactor=self._redactor, on_refused=on_refused
        )
        self._open.add(stream)
        return stream

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return len(self._open)

    async def text_of(self, message: str) -> str:
        """What is stored of the text of a message, without its reasoning and its tools."""
        return text_of(await self._messages.content(message) or ())

    async def close(self) -> None:
        """Store nothing more but what is under way."""
        self._is_closed = True
        for stream in list(self._waiting):
            stream.close()
        if self._task is not None:
            self._urgent.set()
            await self._task

    def note(self, stream: MessageStream, *, is_urgent: bool) -> None:
        """A stream has something new."""
        if self._is_closed:
            return
        self._waiting[stream] = None
        if is_urgent:
            self._urgent.set()
        if self._task is None:
            self._task = asyncio.create_task(self._flush_all())

    def forget(self, stream: MessageStream) -> None:
        """A stream has nothing more."""
        self._waiting.pop(stream, None)
        self._open.discard(stream)

    async def turn_of(self, stream: MessageStream) -> None:
        """Flush now, and wait for it. Raises what keeps the store from taking this stream's text."""
        if self._is_closed:
            raise StoreUnavailable("the store was closed before all text of a message was stored.")
        turn = self._turn
        self.note(stream, is_urgent=True)
        await turn.wait()
        if stream.failure is not None:
            raise stream.failure

    async def _flush_all(self) -> None:
        try:
            while self._waiting:
                await self._clock.wait_s(self._tick_s, self._urgent)
                self._urgent.clear()
                streams = [stream for stream in self._waiting if stream.has_rest][:BATCH_MAX]
                is_locked = await self._flush(streams)
                for stream in [stream for stream in self._waiting if not stream.has_rest]:
                    del self._waiting[stream]
                turn, self._turn = self._turn, asyncio.Event()
                turn.set()
                if is_locked:
                    await self._clock.wait_s(LOCKED_S, asyncio.Event())
        finally:
            self._task = None

    async def _flush(self, streams: Sequence[MessageStream]) -> bool:
        """Flush these; says whether others had locked a chat."""
        try:
            grown = [(stream, sent) for stream in streams if (sent := stream.growth()).chunks]
            if not grown:
                return False
            batch = [sent for _, sent in grown]
            answers = await retry_store(
                self._clock, lambda: self._messages.flush(batch, self._clock.now_us())
            )
        except Exception as error:  # of any kind: whoever waits must know
            if len(streams) > 1 and not isinstance(error, OUT_OF_REACH):
                return any([await self._flush([stream]) for stream in streams])  # it may be about one alone
            self._fail(streams, error)
            return False
        for (stream, sent), came in zip(grown, answers, strict=True):
            self._waiting[stream] = self._waiting.pop(stream, None)  # the others first, if not all fitted
            stream.settle(sent, came)
        self._told = ""
        return Flushed.LATER in answers

    def _fail(self, streams: Sequence[MessageStream], error: Exception) -> None:
        for stream in streams:
            stream.failure = error
        if self._told != str(error):
            self._told = str(error)
            log.warning("the text of %d messages is not stored yet: %s", len(streams), error)
