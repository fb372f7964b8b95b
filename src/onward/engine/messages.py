"""Text on its way into messages, and what becomes of it afterwards.

- `Flusher`: what the streams of a process have new is stored in one transaction, again and again.
- `MessageStream`: the text of one message, cut into chunks and kept until it is durable. Known secrets are
  taken out before, also if one comes in pieces.
- `Saying`: what people and Onward say. These messages are whole from the start, and stored before anything
  is done.
- `ChatHistory`: what was said before a run, for its agents.
- `MessageTidying`: the text of a message that has ended is sealed soon, and its chunks are deleted a day
  later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Self

import msgspec
from msgspec.structs import replace

from onward.clock import Clock, Ids
from onward.engine.persist import OUT_OF_REACH, retry_store
from onward.errors import InvalidInput, StoreError, StoreGone, StoreUnavailable
from onward.model.call import CallFinished, Streamed
from onward.model.chat import (
    RUN_CHATS,
    RUNNING_TEXT,
    WRITTEN,
    ChunkKind,
    EarlierMessage,
    Intake,
    Message,
    Part,
    Role,
    joined_parts,
    reading_of_message,
    seal_parts,
    text_of,
)
from onward.model.limits import check_name, check_scoped, check_text
from onward.model.row import MessageState
from onward.model.run import Run
from onward.model.values import whole_text
from onward.redact.redactor import NOTHING_SECRET, RedactingStream, Redactor
from onward.store.codec import content_hash
from onward.store.port.messages import Flushed, Growth, Intakes, MessageQuery, Messages

log = logging.getLogger("onward.messages")
PAUSE_S = 0.05
"""From the end of a flush to the next, unless there is much to store or flushes are slow."""
PAUSE_FACTOR = 4
"""A slow flush is followed by a pause of so many times its length: flushing takes a fifth of the time."""
PAUSE_S_MAX = 0.25
"""Readers do not wait longer than this for a slow store to rest."""
LOCKED_S = 0.02
"""How long to leave a chat alone that others have locked."""
BATCH_MAX = 200


Hear = Callable[[str, Sequence[tuple[ChunkKind, str]]], None]
"""Hears what was added to a message."""


class Flusher:
    """Stores the text of all messages that this process streams.

    The first text is stored at once, and what follows soon after the last flush is done, so readers of an
    answer that is cut off find nearly all of it. It has a task only while there is something to store. What
    the `redactor` knows is never stored. `hear` gets what was stored. `note`,
    `forget` and `turn_of` are for its streams.
    """

    def __init__(
        self,
        messages: Messages,
        clock: Clock,
        *,
        redactor: Redactor = NOTHING_SECRET,
        pause_s: float = PAUSE_S,
        hear: Hear | None = None,
    ) -> None:
        self._redactor, self._hear = redactor, hear
        self._messages, self._clock, self._pause_s = messages, clock, pause_s
        self._next_s = 0.0
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
                await self._until_due()
                began_s = self._clock.awake_s()
                streams = [stream for stream in self._waiting if stream.has_rest][:BATCH_MAX]
                is_locked = await self._flush(streams)
                self._next_s = next_flush_s(began_s, self._clock.awake_s(), self._pause_s)
                for stream in [stream for stream in self._waiting if not stream.has_rest]:
                    del self._waiting[stream]
                turn, self._turn = self._turn, asyncio.Event()
                turn.set()
                if is_locked:
                    await self._clock.wait_s(LOCKED_S, asyncio.Event())
        finally:
            self._task = None

    async def _until_due(self) -> None:
        if (left_s := self._next_s - self._clock.awake_s()) > 0:
            await self._clock.wait_s(left_s, self._urgent)
        else:
            await asyncio.sleep(0)  # what others write in this turn of the loop is stored with it
        self._urgent.clear()

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
            if self._hear is not None and came is Flushed.STORED:
                self._hear(sent.message, sent.chunks)
        self._told = ""
        return Flushed.LATER in answers

    def _fail(self, streams: Sequence[MessageStream], error: Exception) -> None:
        for stream in streams:
            stream.failure = error
        if self._told != str(error):
            self._told = str(error)
            log.warning("the text of %d messages is not stored yet: %s", len(streams), error)


def next_flush_s(began_s: float, ended_s: float, pause_s: float = PAUSE_S) -> float:
    """When to flush again after a flush that began and ended at these times."""
    return ended_s + max(pause_s, min((ended_s - began_s) * PAUSE_FACTOR, PAUSE_S_MAX))


CHUNK_CHARACTERS_MAX = 16 * 1024
FLUSH_CHUNKS_MAX = 8
FLUSH_BYTES = 2 * 1024
"""As much as this is not kept waiting for the pause to end."""
BEHIND_BYTES = 256 * 1024
"""A stream that has more than this to store makes its writer wait."""


class MessageStream:
    """Writes the text of one message. It is used in the event loop of its flusher, by one writer.

    `is_refused`: the store did not take it, because the message is not streaming under this token any more.
    The writer should ask whether it still has the lease; what it writes from now on is dropped.
    """

    def __init__(
        self,
        flusher: Flusher,
        streamed: Streamed,
        *,
        run_id: str,
        token: int,
        redactor: Redactor,
        on_refused: Callable[[], object] | None,
    ) -> None:
        self._flusher, self._on_refused = flusher, on_refused
        self._streamed, self._run_id, self._token = streamed, run_id, token
        self._written: list[tuple[ChunkKind, list[str]]] = []
        self._chunks: list[tuple[ChunkKind, str]] = []
        self._stored: list[tuple[ChunkKind, str]] = []
        self._redaction = ChunkRedaction(redactor)
        self._first = 1  # the message's start is chunk 0
        self._fresh = self._behind = 0
        self._is_closed = self._is_draining = False
        self.is_refused = False
        self.failure: Exception | None = None

    @property
    def has_rest(self) -> bool:
        """Whether something is not durable yet."""
        return bool(self._chunks or self._written or (self._is_draining and self._redaction.holds))

    def write(self, kind: ChunkKind, text: str) -> None:
        """Add text. It is stored with the next flush; `ready` says when there is room for more.

        Text and reasoning may come in pieces of any size; each `tool_call` and `tool_result` is whole.
        """
        if kind not in WRITTEN:
            raise ValueError(f"a stream does not write {kind.value!r} chunks")
        if self._is_closed or self.is_refused or not text:
            return
        written = self._written
        if written and written[-1][0] is kind and kind in RUNNING_TEXT:
            written[-1][1].append(text)
        else:
            written.append((kind, [text]))
        size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        self._behind += size
        self._fresh += size
        self._flusher.note(self, is_urgent=self._fresh >= FLUSH_BYTES)

    async def ready(self) -> None:
        """Wait while much is not stored yet: what a writer holds in memory has an end.

        Raises what keeps the store from taking it.
        """
        while self._behind > BEHIND_BYTES and not self.is_refused:
            await self._flusher.turn_of(self)

    async def drain(self) -> bool:
        """Wait until everything so far is durable; False if it was refused. Call it before the call's end is
        recorded. Raises what keeps the store from taking it.

        What was held back, because it may be the beginning of a secret, is stored too: what follows is
        another text."""
        self._is_draining = True
        try:
            while self.has_rest and not self.is_refused:
                await self._flusher.turn_of(self)
        finally:
            self._is_draining = False
        return not self.is_refused

    def with_text(self, finished: CallFinished) -> CallFinished:
        """The end of the message's call, with the text of the message, unless some of it is not stored."""
        if self.is_refused or self.has_rest:
            return finished
        content = seal_parts(joined_parts(self._stored))
        name = content_hash(content)
        return replace(finished, said=name, nodes={**finished.nodes, name: content})

    def close(self) -> None:
        """Write nothing more; what is not durable is dropped, unless it is under way."""
        self._is_closed = True
        self._drop()
        self._flusher.forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def growth(self) -> Growth:
        """What to flush now. What was sent once is sent again in the same chunks."""
        for kind, pieces in self._written:
            self._cut(self._redaction.feed(kind, whole_text("".join(pieces))))
        if self._is_draining:
            self._cut(self._redaction.finish())
        self._written, self._fresh = [], 0
        chunks = tuple(self._chunks[:FLUSH_CHUNKS_MAX])
        chat, message = self._streamed.chat, self._streamed.message
        return Growth(chat, message, self._run_id, self._token, self._first, chunks)

    def _cut(self, pieces: Iterable[tuple[ChunkKind, str]]) -> None:
        for kind, text in pieces:
            step = CHUNK_CHARACTERS_MAX if kind in RUNNING_TEXT else max(len(text), 1)
            self._chunks += [(kind, text[at : at + step]) for at in range(0, len(text), step)]

    def settle(self, sent: Growth, came: Flushed) -> None:
        """Note what came of a flush."""
        self.failure = None
        if came is Flushed.STORED:
            del self._chunks[: len(sent.chunks)]
            self._stored += sent.chunks
            self._first = sent.next_index
            if not self.has_rest:
                self._behind = 0
            else:
                self._behind -= sum(len(text.encode()) for _, text in sent.chunks)
        elif came is Flushed.REFUSED and not self._is_closed:
            self.is_refused = True
            self._drop()
            if self._on_refused is not None:
                self._on_refused()

    def _drop(self) -> None:
        self._written, self._chunks, self._behind, self._fresh = [], [], 0, 0


Piece = tuple[ChunkKind, str]


class ChunkRedaction:
    """Redacts the text of one message. What may be the beginning of a secret is held back."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._running: tuple[ChunkKind, RedactingStream] | None = None

    @property
    def holds(self) -> bool:
        """Whether something may be held back."""
        return self._running is not None

    def feed(self, kind: ChunkKind, text: str) -> list[Piece]:
        """What can be stored of the text so far."""
        if self._redactor.is_empty:
            return [(kind, text)]
        passed = self.finish() if self._running is not None and self._running[0] is not kind else []
        if kind not in RUNNING_TEXT:
            return [*passed, (kind, self._redactor.redact(text))]
        if self._running is None:
            self._running = kind, RedactingStream(self._redactor)
        return [*passed, (kind, self._running[1].feed(text))]

    def finish(self) -> list[Piece]:
        """The rest."""
        if self._running is None:
            return []
        kind, stream = self._running
        self._running = None
        return [(kind, stream.finish())]


SAID_CHARACTERS_MAX = 1_000_000


class Saying(msgspec.Struct, frozen=True):
    """Stores what people say in chats, without secrets."""

    messages: Messages
    clock: Clock
    ids: Ids
    redactor: Redactor

    async def say(self, chat: str, text: str) -> Message:
        """Store a user's message at the end of a chat; when this returns, it is durable."""
        check_said(chat, text)
        message, content = self.message(chat, text, id=self.ids.unique())
        return await self._store(message, content)

    async def tell(self, chat: str, text: str, *, id: str) -> Message:
        """Store what Onward itself says in a chat. Under the same id, it is said once."""
        message, content = self.message(chat, text, id=id, role=Role.SYSTEM)
        return await self._store(message, content)

    def message(self, chat: str, text: str, *, id: str, role: Role = Role.USER) -> tuple[Message, bytes]:
        """A whole message without secrets, and its sealed text; nothing is stored."""
        content = seal_parts([Part(ChunkKind.TEXT, self.redactor.redact(text))])
        now_us = self.clock.now_us()
        message = Message(
            id=id,
            chat=chat,
            run_id="",
            step="",
            call="",
            number=0,
            role=role,
            state=MessageState.COMPLETE,
            model="",
            begun_at_us=now_us,
            changed_at_us=now_us,
            ended_at_us=now_us,
            first_position=0,
            last_position=0,
            content=content_hash(content),
            is_tidied=True,
        )
        return message, content

    async def _store(self, message: Message, content: bytes) -> Message:
        await retry_store(self.clock, lambda: self.messages.say(message, content))
        (stored,) = await self.messages.list(MessageQuery(ids=(message.id,)))
        return stored


def check_said(chat: str, text: str) -> None:
    """Refuse what cannot be said in a chat, or not in this one."""
    if not check_name("the chat", chat):
        raise InvalidInput("the chat is missing; write its name, such as support-17.")
    check_scoped("the chat", chat)
    if chat.startswith(RUN_CHATS):
        raise InvalidInput(f"{chat!r} is the chat of a run, which only its models can use; name another.")
    check_text("the message", text)
    if not text or len(text) > SAID_CHARACTERS_MAX:
        raise InvalidInput(f"a message has 1 to {SAID_CHARACTERS_MAX:,} characters; this has {len(text):,}.")


HISTORY_CHARACTERS_MAX = 12_000
EARLIER_CHARACTERS_MAX = 4_000
HISTORY_LOOKED_AT_MAX = 500
LEFT_OUT = "Earlier messages of this chat are left out."


class ChatHistory(msgspec.Struct, frozen=True):
    """Reads what was said in a chat before a run, for its agents.

    That is what users said up to the message that started the run, and the last thing that the agents of each
    earlier run said. What Onward says itself, and what models say that read messages, is left out. The newest
    messages count, up to a number of them and of characters; a long one is shortened.
    """

    messages: Messages
    intakes: Intakes

    async def before(self, run: Run, count: int) -> tuple[EarlierMessage, ...]:
        """The last `count` messages before a run, oldest first; fewer if they are long.

        If there were more, the first one says so, in Onward's own name.
        """
        found: list[EarlierMessage] = []
        room, spoken = HISTORY_CHARACTERS_MAX, set[str]()
        for message in await self._newest_first(run):
            if message.role is Role.ASSISTANT and message.run_id in spoken:
                continue
            text = _shortened(text_of(await self.messages.content(message.id) or ()).strip())
            if not text:
                continue  # it only used tools
            room -= len(text)
            if len(found) == count or room < 0:
                found.append(EarlierMessage(Role.SYSTEM, LEFT_OUT))
                break
            spoken.add(message.run_id)
            found.append(EarlierMessage(message.role, text))
        return tuple(reversed(found))

    async def _newest_first(self, run: Run) -> list[Message]:
        """The whole messages of the chat that may count; each answer is after the message that it is to."""
        if run.chat is None:
            return []
        query = MessageQuery(chat=run.chat, is_newest=True, limit=HISTORY_LOOKED_AT_MAX)
        listed = await self.messages.list(query)
        intakes = await self.intakes.list(run.chat, is_open=False, limit=HISTORY_LOOKED_AT_MAX)
        left_out, places = _left_out(run, intakes), _places(listed, intakes)
        kept = [
            one
            for one in listed
            if one.role is not Role.SYSTEM
            and one.state is MessageState.COMPLETE
            and not {one.id, one.run_id} & left_out
        ]
        return sorted(kept, key=lambda one: places[one.id], reverse=True)


def _places(listed: Sequence[Message], intakes: Sequence[Intake]) -> dict[str, tuple[int, int]]:
    """Where each message belongs: an answer after the last message to its run, also if others were said
    meanwhile that waited for their own."""
    positions = {one.id: one.first_position for one in listed}
    spoken_to: dict[str, list[int]] = {}
    for intake in intakes:
        spoken_to.setdefault(intake.run_id, []).append(positions.get(intake.message, 0))
    found: dict[str, tuple[int, int]] = {}
    for one in listed:
        at = one.first_position
        before = [place for place in spoken_to.get(one.run_id, ()) if one.run_id and place < at]
        found[one.id] = max(before, default=at), at
    return found


def _left_out(run: Run, intakes: Sequence[Intake]) -> set[str]:
    """The runs whose messages do not count: this one, and those that read messages; and the messages of users
    from the one on that started this run."""
    own = {run.id, run.charged_to or run.id}
    begun = next((one.n for one in intakes if one.run_id in own), None)
    later = {one.message for one in intakes if begun is not None and one.n >= begun}
    return own | later | {reading_of_message(one.message, one.at_us) for one in intakes}


def _shortened(text: str) -> str:
    """A long text without its middle: it begins with what it is about, and ends with what it comes to."""
    over = len(text) - EARLIER_CHARACTERS_MAX
    if over <= 0:
        return text
    half = EARLIER_CHARACTERS_MAX // 2
    return f"{text[:half]}\n[{over:,} characters are left out]\n{text[-half:]}"


KEPT_S = 24 * 3600.0
EVERY_S = 60.0
AT_ONCE = 100


class MessageTidying:
    """Seals and tidies messages, at most once a minute. Every worker does it."""

    def __init__(self, messages: Messages, clock: Clock) -> None:
        self._messages, self._clock = messages, clock
        self._next_s = 0.0

    async def tidy(self) -> int:
        """Seal what has ended, delete old chunks; returns how many messages changed. Sealing comes first."""
        now_s = self._clock.awake_s()
        if now_s < self._next_s:
            return 0
        self._next_s = now_s + EVERY_S
        try:
            return await self._tidy()
        except StoreGone:
            raise
        except StoreError as error:  # the runs that a sweep looks for are more important
            log.warning("cannot clean up messages: %s", error)
            return 0

    async def _tidy(self) -> int:
        now_us = self._clock.now_us()
        sealed = await self._messages.seal(at_us=now_us, limit=AT_ONCE)
        tidied = await self._messages.tidy(before_us=now_us - int(KEPT_S * 1_000_000), limit=AT_ONCE)
        if AT_ONCE in (sealed, tidied):
            self._next_s = 0.0  # there may be more: the next sweep continues
        return sealed + tidied
