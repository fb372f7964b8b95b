"""Chats in memory, and what users' messages ask for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from onward.model.chat import (
    READING_TAG,
    RUN_CHATS,
    Chunk,
    ChunkKind,
    Heard,
    Intake,
    IntakeOutcome,
    IntakeState,
    Message,
    Part,
    Role,
)
from onward.model.row import MessageState
from onward.model.run import RunStatus
from onward.model.values import tags_in
from onward.store import message_rows
from onward.store.memory.state import State, StoredMessage
from onward.store.message_rows import MessageBegun, MessageEnded, message_changes
from onward.store.port.log import Write
from onward.store.port.messages import FREE_MAX, READ_MAX, ChatRow, Flushed, Growth, MessageQuery


class MemoryMessages:
    """What is said in the chats of a database."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def flush(self, batch: Sequence[Growth], at_us: int) -> Sequence[Flushed]:
        return [self._grow(growth, at_us) for growth in batch]

    def _grow(self, growth: Growth, at_us: int) -> Flushed:
        said = self._state.said.get(growth.message)
        if said is None or not message_rows.is_writing(growth, said.locked):
            return Flushed.REFUSED
        for kind, text in growth.chunks[said.next_index - growth.first :]:
            add_chunk(self._state, said, kind, text)
            said.message = replace(said.message, changed_at_us=at_us)
        return Flushed.STORED

    async def say(self, message: Message, content: bytes) -> None:
        assert message.content is not None
        self._state.put({message.content: content}, message.begun_at_us)
        receive_messages(self._state, [message])

    async def read(self, chat: str, *, after: int, limit: int = READ_MAX) -> Sequence[Heard]:
        there = [said for said in self._state.said.values() if said.message.chat == chat]
        chunks = [chunk for said in there for chunk in said.chunks if chunk.position > after]
        gone = [said.message for said in there if said.message.is_tidied]
        columns = [(one.id, one.last_position, one.role, one.state, one.content) for one in gone]
        behind = [found for found in columns if (found[1] or 0) > after]
        return message_rows.heard_in_order(chunks, behind, self._state.blobs, limit)

    async def positions(self, chats: Sequence[str]) -> Mapping[str, int]:
        return {chat: self._state.chats[chat] for chat in chats if chat in self._state.chats}

    async def list(self, query: MessageQuery) -> Sequence[Message]:
        every = [said.message for said in self._state.said.values()]  # in the order in which they began
        if query.ids:
            return [one for one in every if one.id in query.ids]
        if query.run_id is not None:
            found = [one for one in every if one.run_id == query.run_id]
            found = [one for one in found if one.first_position > query.after_position]
            return sorted(found, key=lambda one: one.first_position)[: query.limit]
        found = [one for one in every if one.chat == query.chat and one.first_position > query.after_position]
        return found[-query.limit :] if query.is_newest else found[: query.limit]

    async def content(self, message: str) -> Sequence[Part] | None:
        said = self._state.said.get(message)
        if said is None:
            return None
        if said.message.content is not None:
            return message_rows.unsealed_content(self._state.blobs.get(said.message.content))
        return message_rows.parts_of((chunk.kind, chunk.text) for chunk in said.chunks)

    async def contents(self, messages: Collection[str]) -> Mapping[str, Sequence[Part]]:
        found = {message: await self.content(message) for message in messages}
        return {message: parts for message, parts in found.items() if parts is not None}

    async def seal(self, *, at_us: int, limit: int) -> int:
        ended = [said for said in self._state.said.values() if said.message.ended_at_us is not None]
        unsealed = [said for said in ended if said.message.content is None][:limit]
        for said in unsealed:
            parts = message_rows.parts_of((chunk.kind, chunk.text) for chunk in said.chunks)
            name, content = message_rows.sealed_content(parts)
            self._state.put({name: content}, at_us)
            said.message = replace(said.message, content=name)
        return len(unsealed)

    async def tidy(self, *, before_us: int, limit: int) -> int:
        sealed = [said for said in self._state.said.values() if said.message.content is not None]
        sealed = [said for said in sealed if not said.message.is_tidied]
        old = [said for said in sealed if (said.message.ended_at_us or 0) < before_us][:limit]
        for said in old:
            said.chunks.clear()
            said.message = replace(said.message, is_tidied=True)
        return len(old)


def put_messages(state: State, write: Write) -> None:
    """Begin and end the messages of a write's calls."""
    for change in message_changes(write):
        if isinstance(change, MessageBegun):
            _begin_message(state, change)
        else:
            _end_message(state, change)


def _begin_message(state: State, begun: MessageBegun) -> None:
    if begun.id in state.said:
        return
    message = Message(
        id=begun.id,
        chat=begun.chat,
        run_id=begun.run_id,
        step=begun.step,
        call=begun.call,
        number=begun.number,
        role=Role.ASSISTANT,
        state=MessageState.STREAMING,
        model=begun.model,
        begun_at_us=begun.at_us,
        changed_at_us=begun.at_us,
        ended_at_us=None,
        first_position=state.chats.get(begun.chat, 0) + 1,
        last_position=None,
    )
    said = state.said[begun.id] = StoredMessage(message, begun.token)
    add_chunk(state, said, ChunkKind.START, Role.ASSISTANT.value)


def _end_message(state: State, ended: MessageEnded) -> None:
    place = (ended.run_id, ended.step, ended.call, ended.number)
    for said in state.said.values():
        one = said.message
        if (one.run_id, one.step, one.call, one.number) == place and one.state is MessageState.STREAMING:
            add_chunk(state, said, ChunkKind.END, ended.state)
            said.message = replace(
                one,
                state=MessageState(ended.state),
                model=ended.model or one.model,
                changed_at_us=ended.at_us,
                ended_at_us=ended.at_us,
                last_position=state.chats[one.chat],
                content=ended.content,
            )


def receive_messages(state: State, messages: Iterable[Message]) -> None:
    """Add messages of another database, each at the end of its chat."""
    for message in messages:
        if message.id not in state.said:
            position = state.chats[message.chat] = state.chats.get(message.chat, 0) + 1
            there = replace(message, first_position=position, last_position=position)
            state.said[message.id] = StoredMessage(there, token=0, next_index=1)


def add_chunk(state: State, said: StoredMessage, kind: ChunkKind, text: str) -> None:
    """Store a chunk at the next position of its chat."""
    chat = said.message.chat
    state.chats[chat] = state.chats.get(chat, 0) + 1
    position, index = state.chats[chat], said.next_index
    said.chunks.append(Chunk(position=position, message=said.message.id, index=index, kind=kind, text=text))
    said.next_index += 1


WORKING_STATUSES = (RunStatus.QUEUED, RunStatus.RUNNING)
ENDED_STATUSES = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED)


class MemoryIntakes:
    """What the messages in the chats of a database ask for."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def put(self, message: Message, content: bytes, intake: Intake) -> Intake:
        state = self._state
        if intake.message not in state.intakes:
            assert message.content is not None
            state.put({message.content: content}, message.begun_at_us)
            receive_messages(state, [message])
            state.intakes[intake.message] = replace(intake, n=len(state.intakes) + 1)
            if intake.project and not state.chat_projects.get(intake.chat):
                state.chat_projects[intake.chat] = intake.project
        return state.intakes[intake.message]

    async def find(self, message: str) -> Intake | None:
        return self._state.intakes.get(message)

    async def list(self, chat: str, *, is_open: bool, limit: int) -> Sequence[Intake]:
        found = [one for one in self._state.intakes.values() if one.chat == chat]
        if is_open:
            return [one for one in found if one.state is not IntakeState.DONE][:limit]
        return found[-limit:]

    async def free(
        self, *, chat: str | None = None, after: int = 0, limit: int = FREE_MAX
    ) -> Sequence[Intake]:
        listed = (one for one in self._state.intakes.values() if one.n > after)
        still = [one for one in listed if one.state is not IntakeState.DONE]
        found = [one for one in still if chat in (None, one.chat) and not self._is_going(one.behind)]
        return found[:limit]

    def _is_going(self, run_id: str) -> bool:
        stored = self._state.runs.get(run_id)
        if stored is None or stored.row.is_dismissed or stored.row.status in ENDED_STATUSES:
            return False
        return READING_TAG not in tags_in(stored.row.tags) or stored.row.status in WORKING_STATUSES

    async def note(self, message: str, *, seen: str, behind: str, reading: str) -> bool:
        found = self._state.intakes.get(message)
        if found is None or found.reading != seen:
            return False
        return self._change(message, IntakeState.PENDING, behind=behind, reading=reading)

    async def begin(self, message: str, *, seen: str, turn: int, run_id: str, reading: str) -> bool:
        found = self._state.intakes.get(message)
        if found is None or found.reading != seen or self._state.turns.get(found.chat, 0) != turn:
            return False
        state = IntakeState.STARTING
        if not self._change(message, IntakeState.PENDING, state=state, run_id=run_id, reading=reading):
            return False
        self._state.turns[found.chat] = turn + 1
        return True

    async def settle(
        self, message: str, *, outcome: IntakeOutcome, run_id: str, notice: str, reading: str, at_us: int
    ) -> bool:
        found = self._state.intakes.get(message)
        if found is None or found.state is IntakeState.DONE:
            return False
        state = IntakeState.DONE
        done = {"state": state, "outcome": outcome, "run_id": run_id, "notice": notice, "done_at_us": at_us}
        return self._change(message, found.state, reading=reading or found.reading, **done)

    def _change(self, message: str, was: IntakeState, **changes: object) -> bool:
        found = self._state.intakes.get(message)
        if found is None or found.state is not was:
            return False
        self._state.intakes[message] = replace(found, **changes)
        return True

    async def waiting(self, chats: Collection[str]) -> Mapping[str, int]:
        open_ = [one for one in self._state.intakes.values() if one.state is not IntakeState.DONE]
        return Counter(one.chat for one in open_ if one.chat in chats)

    async def find_chat(self, chat: str) -> ChatRow | None:
        return next((row for row in self._chats() if row.id == chat), None)

    async def list_chats(self, *, before: int | None, limit: int) -> Sequence[ChatRow]:
        named = [row for row in self._chats() if not row.id.startswith(RUN_CHATS)]
        return [row for row in reversed(named) if before is None or row.n < before][:limit]

    def _chats(self) -> Sequence[ChatRow]:
        state = self._state
        return [
            ChatRow(
                n=n,
                id=chat,
                project=state.chat_projects.get(chat, ""),
                title="",
                position=position,
                turn=state.turns.get(chat, 0),
                created_at_us=min(
                    s.message.begun_at_us for s in state.said.values() if s.message.chat == chat
                ),
            )
            for n, (chat, position) in enumerate(state.chats.items(), 1)
        ]
