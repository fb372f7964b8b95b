"""Chats and what is said in them: read from a store, and sent through an engine.

`LocalMessages` reads messages. `LocalChats` sends messages that do something to runs, and shows chats as
people look at them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from onward.chats.decide import STOPPED, queued_words
from onward.chats.dispatch import Dispatcher, NewMessage
from onward.chats.runs import runs_of
from onward.clock import Clock
from onward.engine.engine import Engine
from onward.engine.journal import Journal
from onward.errors import ChatNotFound, HistoryCorrupt, InvalidInput, RunNotFound
from onward.model import chat as chats
from onward.model.ids import EXACT, node_of
from onward.model.run import RunStatus
from onward.model.settings import ChatSettings
from onward.operations.answers import note_answer
from onward.operations.local.look import has_stopped, run_state
from onward.operations.requests import ListChats, ListMessages, ReadMessages, SendMessage, ShowChat
from onward.read.lookup import find_run
from onward.read.view import instant, known_row
from onward.store.port.messages import READ_MAX, ChatRow, MessageQuery, Messages
from onward.store.port.runs import Listed, read_cursor, write_cursor
from onward.store.port.store import Store

if TYPE_CHECKING:
    from onward.replies import chats as chat_shapes
    from onward.replies.runs import GateOfRun

POLL_S = 0.1


class _MessagesWanted(msgspec.Struct, frozen=True):
    """A chat, and the run whose messages are wanted; None for all."""

    chat: str
    run_id: str | None = None


class LocalMessages(msgspec.Struct, frozen=True):
    """Reads the messages of one store."""

    store: Store
    clock: Clock

    async def list_messages(self, request: ListMessages) -> list[chat_shapes.MessageShown]:
        """Messages in the order in which they began, each with what it says so far."""
        place = await self._place(request.of)
        query = MessageQuery(
            run_id=place.run_id, chat=place.chat, after_position=request.after, limit=request.limit
        )
        return await shown_messages(self.store.messages, await self.store.messages.list(query))

    async def read_messages(
        self, request: ReadMessages, *, stop: asyncio.Event | None = None
    ) -> AsyncGenerator[chat_shapes.MessagePiece]:
        """Pieces of messages as they come; `stop` ends a wait for more."""
        place, stop, cursor = await self._place(request.of), stop or asyncio.Event(), request.after
        known: dict[str, chats.Message] = {}
        while True:
            # Asked before reading, so that what was said last is read once more.
            is_over = not request.follow or await self._is_over(place)
            while heard := await self.store.messages.read(place.chat, after=cursor, limit=READ_MAX):
                cursor = heard[-1].position
                await self._know(known, heard)
                for one in heard:
                    about = known.get(one.message)
                    if about is not None and place.run_id in (None, about.run_id):
                        yield view_piece(one, about)
            if is_over or stop.is_set():
                return
            await self.clock.wait_s(POLL_S, stop)

    async def _is_over(self, place: _MessagesWanted) -> bool:
        return place.run_id is not None and await has_stopped(self.store, self.clock, place.run_id)

    async def _know(self, known: dict[str, chats.Message], heard: Sequence[chats.Heard]) -> None:
        """Look up the messages that are new."""
        new = {one.message for one in heard} - known.keys()
        if new:
            known.update(
                (one.id, one) for one in await self.store.messages.list(MessageQuery(ids=tuple(sorted(new))))
            )

    async def _place(self, of: str) -> _MessagesWanted:
        """The run or the chat of a name. A run's messages are in the chat it was given, or in its own."""
        for name in dict.fromkeys((of, of.removeprefix(EXACT))):
            if name.startswith(chats.RUN_CHATS) or await self._is_chat(name):
                return _MessagesWanted(name)
        try:
            run_id = (await find_run(self.store.runs, of)).row.id
        except RunNotFound as missing:
            raise ChatNotFound(of.removeprefix(EXACT), missing.near) from None
        run = (await Journal(self.store.log, self.clock).load(run_id)).run
        return _MessagesWanted(run.chat or chats.chat_of_run(run_id), run_id)

    async def _is_chat(self, name: str) -> bool:
        return name in await self.store.messages.positions([name])


def view_piece(one: chats.Heard, about: chats.Message) -> chat_shapes.MessagePiece:
    """A piece of a message."""
    parts: list[chat_shapes.PartShown] = []
    state: str | None = None
    if isinstance(one, chats.Chunk):
        kind, text = one.kind.value, one.text
        if one.kind is chats.ChunkKind.START or one.kind is chats.ChunkKind.END:
            text, state = "", one.text if one.kind is chats.ChunkKind.END else None
    else:
        kind, text, parts, state = "reset", chats.text_of(one.parts), _parts(one.parts), one.state.value
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


def _parts(parts: Iterable[chats.Part]) -> list[chat_shapes.PartShown]:
    return [{"kind": part.kind.value, "text": part.text} for part in parts]


async def shown_messages(
    messages: Messages, found: Sequence[chats.Message]
) -> list[chat_shapes.MessageShown]:
    """Messages as they are shown; what they say is read at once."""
    said = await messages.contents([one.id for one in found]) if found else {}
    return [shown_message(one, said.get(one.id) or ()) for one in found]


def shown_message(one: chats.Message, parts: Sequence[chats.Part]) -> chat_shapes.MessageShown:
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
        "begun_at": instant(one.begun_at_us),
        "changed_at": instant(one.changed_at_us),
        "ended_at": instant(one.ended_at_us),
        "first_position": one.first_position,
        "last_position": one.last_position,
        "text": chats.text_of(parts),
        "parts": _parts(parts),
    }


log = logging.getLogger("onward.chats")
QUEUED = "queued"
WAITING_MAX = 1_000
EVERY = tuple(RunStatus)


def _open_gate(run: chat_shapes.ChatRunShown | None) -> GateOfRun | None:
    """The first question of a run that is not decided."""
    for gate in run["gates"] if run is not None else ():
        if gate["decided"] is None and run is not None:
            return {**gate, "run": run["id"]}
    return None


class _ChatPlace(NamedTuple):
    """A chat's place in a list."""

    n: int


def _listed(row: ChatRow, newest: Listed | None, waiting: int) -> chat_shapes.ChatListed:
    run = None if newest is None else known_row(newest.row, newest.holder)
    return {
        "chat": row.id,
        "project": row.project or None,
        "created_at": instant(row.created_at_us),
        "position": row.position,
        "run": None if run is None else run.id,
        "status": None if run is None else run.status.value,
        "reason": "" if run is None else run.reason,
        "waiting": waiting,
    }


class LocalChats(msgspec.Struct, frozen=True):
    """Sends messages through one engine; workers execute what follows."""

    engine: Engine
    clock: Clock
    settings: ChatSettings

    async def send_message(self, request: SendMessage) -> chat_shapes.MessageSent:
        """Store what a user says in a chat, and do what follows from it."""
        if request.fresh and request.resume:
            raise InvalidInput("fresh and resume contradict each other; give one of them.")
        wish = chats.Wish.FRESH if request.fresh else chats.Wish.RESUME if request.resume else chats.Wish.NONE
        sent = NewMessage(
            chat=request.chat,
            text=request.text,
            by=request.by,
            key=request.key,
            wish=wish,
            project=request.project,
            pipeline=request.pipeline,
            workdir=request.workdir,
            may_answer=request.may_answer,
        )
        dispatcher = Dispatcher(self.engine, self.clock, self.settings)
        intake, is_repeat = await dispatcher.send(sent)
        note_answer(is_repeat=is_repeat)
        if is_repeat and await self._is_behind_the_dead(intake):
            await self.engine.sweep()
            intake, _ = await dispatcher.send(sent)
        is_done = intake.state is chats.IntakeState.DONE and intake.outcome is not None
        waits = not is_done and bool(intake.behind)
        is_read = waits and chats.read_reading(intake.reading).asked == intake.behind
        return {
            "chat": intake.chat,
            "message": intake.message,
            "outcome": intake.outcome.value if intake.outcome is not None else QUEUED,
            "notice": queued_words(intake.behind, is_read=is_read) if waits else intake.notice,
            "is_repeat": is_repeat,
            "run": await self._run(intake.run_id) if intake.run_id else None,
            "behind": intake.behind if waits else None,
            "is_being_read": is_read,
        }

    async def _is_behind_the_dead(self, intake: chats.Intake) -> bool:
        """Whether a message waits for a run whose process is gone: no worker may be there to notice."""
        if intake.state is chats.IntakeState.DONE or not intake.behind:
            return False
        found = await self.engine.store.runs.find(intake.behind)
        return any(one.holder is not None and not one.holder.is_alive for one in found)

    async def list_chats(self, request: ListChats) -> chat_shapes.ChatList:
        """Chats, newest first."""
        before = None if request.cursor is None else read_cursor(request.cursor, _ChatPlace).n
        found = await self.engine.store.intakes.list_chats(before=before, limit=request.limit)
        cursor = write_cursor(_ChatPlace(found[-1].n)) if found and len(found) == request.limit else None
        names = [row.id for row in found]
        newest = await self.engine.store.runs.of_chats(names)
        waiting = await self.engine.store.intakes.waiting(names)
        listed = [_listed(row, newest.get(row.id), waiting.get(row.id, 0)) for row in found]
        return {"chats": listed, "cursor": cursor}

    async def show_chat(self, request: ShowChat) -> chat_shapes.ChatPage:
        """A chat with its newest runs, what was said last, and what waits; also one that only runs name."""
        store = self.engine.store
        row = await store.intakes.find_chat(request.chat)
        listed = await runs_of(self.engine, request.chat, EVERY)
        if row is None and not listed:
            raise ChatNotFound(request.chat)
        began_us = listed[-1].row.created_at_us if row is None else row.created_at_us
        runs = [await self._run(one.row.id) for one in listed[: request.runs]]
        known = [known_row(one.row, one.holder) for one in listed]
        stopped = [run for run in known if run.status in STOPPED and run.recoverable and not run.is_dismissed]
        newest = next((run.id for run in known if not run.is_dismissed), None)
        shown = next((run for run in runs if run is not None and run["id"] == newest), None)
        if shown is None and newest is not None:
            shown = await self._run(newest)
        query = MessageQuery(chat=request.chat, is_newest=True, limit=request.messages)
        messages = await store.messages.list(query) if request.messages else ()
        return {
            "chat": request.chat,
            "project": None if row is None else row.project or None,
            "created_at": instant(began_us),
            "running": any(run.status in (RunStatus.QUEUED, RunStatus.RUNNING) for run in known),
            "interrupted_run": stopped[0].id if stopped else None,
            "runs": [run for run in runs if run is not None],
            "messages": await shown_messages(store.messages, messages),
            "waiting": await self._waiting(request.chat),
            "banner": shown["banner"] if shown is not None else None,
            "gate": _open_gate(shown),
        }

    async def _waiting(self, chat: str) -> list[chat_shapes.MessageWaiting]:
        store = self.engine.store
        intakes = await store.intakes.list(chat, is_open=True, limit=WAITING_MAX)
        said = await store.messages.contents([one.message for one in intakes]) if intakes else {}
        return [
            {
                "message": one.message,
                "text": chats.text_of(said.get(one.message) or ()),
                "said_by": one.said_by,
                "wish": one.wish.value,
                "behind": one.behind or None,
                "said_at": instant(one.at_us),
            }
            for one in intakes
        ]

    async def _run(self, run_id: str) -> chat_shapes.ChatRunShown | None:
        """A run of the chat; None if it was deleted since, or its log is damaged."""
        try:
            folded = await self.engine.journal.load(run_id)
        except RunNotFound:
            return None
        except HistoryCorrupt as error:
            log.warning("run %s of a chat is left out: %s", run_id, error)
            return None
        state = await run_state(self.engine.store, folded, self.clock.now_us())
        facts = chats.facts_of(folded.run)
        done = {node_of(at) for at, status in folded.run.outcomes.items() if status == "success"}
        return {
            **state,
            "intent": facts.intent,
            "scope": facts.scope,
            "user_message": facts.user_message,
            "planned_agents": list(facts.planned_agents),
            "agents_left": [name for name in facts.planned_agents if name not in done],
        }
