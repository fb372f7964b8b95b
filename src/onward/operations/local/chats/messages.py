"""What is said in chats, from a store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence

import msgspec

from onward.clock import Clock
from onward.engine.log.journal import Journal
from onward.errors import ChatNotFound, RunNotFound
from onward.model.chats.message import RUN_CHATS, Chunk, ChunkKind, Heard, Message, Part, chat_of_run, text_of
from onward.operations.local.wait import has_stopped
from onward.operations.replies.chats import MessagePiece, MessageShown, PartShown
from onward.operations.requests.chats import ListMessages, ReadMessages
from onward.read.lookup import find_run
from onward.read.view import instant
from onward.store.port.chats.messages import READ_MAX, MessageQuery
from onward.store.port.store import Store

POLL_S = 0.1


class _Place(msgspec.Struct, frozen=True):
    """A chat, and the run whose messages are wanted; None for all."""

    chat: str
    run_id: str | None = None


class LocalMessages(msgspec.Struct, frozen=True):
    """Reads the messages of one store."""

    store: Store
    clock: Clock

    async def list_messages(self, request: ListMessages) -> list[MessageShown]:
        """Messages in the order in which they began, each with what it says so far."""
        place = await self._place(request.of)
        query = MessageQuery(chat=place.chat) if place.run_id is None else MessageQuery(run_id=place.run_id)
        found = await self.store.messages.list(query)
        return [shown_message(one, await self.store.messages.content(one.id) or ()) for one in found]

    async def read_messages(
        self, request: ReadMessages, *, stop: asyncio.Event | None = None
    ) -> AsyncGenerator[MessagePiece]:
        """Pieces of messages as they come; `stop` ends a wait for more."""
        place, stop, cursor = await self._place(request.of), stop or asyncio.Event(), request.after
        known: dict[str, Message] = {}
        while True:
            # Asked before reading, so that what was said last is read once more.
            is_over = not request.follow or await self._is_over(place)
            while heard := await self.store.messages.read(place.chat, after=cursor, limit=READ_MAX):
                cursor = heard[-1].position
                await self._know(known, heard)
                for one in heard:
                    about = known.get(one.message)
                    if about is not None and place.run_id in (None, about.run_id):
                        yield _piece(one, about)
            if is_over or stop.is_set():
                return
            await self.clock.wait_s(POLL_S, stop)

    async def _is_over(self, place: _Place) -> bool:
        return place.run_id is not None and await has_stopped(self.store, self.clock, place.run_id)

    async def _know(self, known: dict[str, Message], heard: Sequence[Heard]) -> None:
        """Look up the messages that are new."""
        new = {one.message for one in heard} - known.keys()
        if new:
            known.update(
                (one.id, one) for one in await self.store.messages.list(MessageQuery(ids=tuple(sorted(new))))
            )

    async def _place(self, of: str) -> _Place:
        """The run or the chat of a name. A run's messages are in the chat it was given, or in its own."""
        if of.startswith(RUN_CHATS) or await self._is_chat(of):
            return _Place(of)
        try:
            run_id = (await find_run(self.store.runs, of)).row.id
        except RunNotFound as missing:
            raise ChatNotFound(of, missing.near) from None
        run = (await Journal(self.store.log, self.clock).load(run_id)).run
        return _Place(run.chat or chat_of_run(run_id), run_id)

    async def _is_chat(self, name: str) -> bool:
        return name in await self.store.messages.positions([name])


def _piece(one: Heard, about: Message) -> MessagePiece:
    parts: list[PartShown] = []
    state: str | None = None
    if isinstance(one, Chunk):
        kind, text = one.kind.value, one.text
        if one.kind is ChunkKind.START or one.kind is ChunkKind.END:
            text, state = "", one.text if one.kind is ChunkKind.END else None
    else:
        kind, text, parts, state = "reset", text_of(one.parts), _parts(one.parts), one.state.value
    return {
        "position": one.position,
        "message": one.message,
        "kind": kind,
        "text": text,
        "parts": parts,
        "state": state,
        "chat": about.chat,
        "run": about.run_id,
        "step": about.step,
        "call": about.call,
        "number": about.number,
        "role": about.role.value,
        "model": about.model,
    }


def _parts(parts: Iterable[Part]) -> list[PartShown]:
    return [{"kind": part.kind.value, "text": part.text} for part in parts]


def shown_message(one: Message, parts: Sequence[Part]) -> MessageShown:
    """A message as it is shown."""
    return {
        "id": one.id,
        "chat": one.chat,
        "run": one.run_id,
        "step": one.step,
        "call": one.call,
        "number": one.number,
        "role": one.role.value,
        "state": one.state.value,
        "model": one.model,
        "begun_at": instant(one.begun_at_us) or "",
        "changed_at": instant(one.changed_at_us) or "",
        "ended_at": instant(one.ended_at_us),
        "first_position": one.first_position,
        "last_position": one.last_position,
        "text": text_of(parts),
        "parts": _parts(parts),
    }
