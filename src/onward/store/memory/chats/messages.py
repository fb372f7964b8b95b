"""Messages in memory: what `Messages` promises, in as few words as possible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from onward.model.chats.message import Chunk, ChunkKind, Heard, Message, Part, Role
from onward.model.row import MessageState
from onward.store import growing
from onward.store.growing import MessageBegun, MessageEnded, message_changes
from onward.store.memory.chats.said import Said
from onward.store.memory.state import State
from onward.store.port.chats.messages import READ_MAX, Flushed, Growth, MessageQuery
from onward.store.port.stored import Write


class MemoryMessages:
    """What is said in the chats of a database."""

    def __init__(self, state: State) -> None:
        self._state = state

    async def flush(self, batch: Sequence[Growth], at_us: int) -> Sequence[Flushed]:
        return [self._grow(growth, at_us) for growth in batch]

    def _grow(self, growth: Growth, at_us: int) -> Flushed:
        said = self._state.said.get(growth.message)
        if said is None or not growing.is_writing(growth, said.locked):
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
        return growing.in_order(chunks, behind, self._state.blobs, limit)

    async def positions(self, chats: Sequence[str]) -> Mapping[str, int]:
        return {chat: self._state.chats[chat] for chat in chats if chat in self._state.chats}

    async def list(self, query: MessageQuery) -> Sequence[Message]:
        every = [said.message for said in self._state.said.values()]  # in the order in which they began
        if query.ids:
            return [one for one in every if one.id in query.ids]
        if query.run_id is not None:
            found = [one for one in every if one.run_id == query.run_id]
            return sorted(found, key=lambda one: one.begun_at_us)[: query.limit]
        found = [one for one in every if one.chat == query.chat and one.first_position > query.after_position]
        return found[-query.limit :] if query.is_newest else found[: query.limit]

    async def content(self, message: str) -> Sequence[Part] | None:
        said = self._state.said.get(message)
        if said is None:
            return None
        if said.message.content is not None:
            return growing.unsealed(self._state.blobs.get(said.message.content))
        return growing.parts_of((chunk.kind, chunk.text) for chunk in said.chunks)

    async def seal(self, *, at_us: int, limit: int) -> int:
        ended = [said for said in self._state.said.values() if said.message.ended_at_us is not None]
        unsealed = [said for said in ended if said.message.content is None][:limit]
        for said in unsealed:
            parts = growing.parts_of((chunk.kind, chunk.text) for chunk in said.chunks)
            name, content = growing.sealed_content(parts)
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
            _begin(state, change)
        else:
            _end(state, change)


def _begin(state: State, begun: MessageBegun) -> None:
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
    said = state.said[begun.id] = Said(message, begun.token)
    add_chunk(state, said, ChunkKind.START, Role.ASSISTANT.value)


def _end(state: State, ended: MessageEnded) -> None:
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
            state.said[message.id] = Said(there, token=0, next_index=1)


def add_chunk(state: State, said: Said, kind: ChunkKind, text: str) -> None:
    """Store a chunk at the next position of its chat."""
    chat = said.message.chat
    state.chats[chat] = state.chats.get(chat, 0) + 1
    position, index = state.chats[chat], said.next_index
    said.chunks.append(Chunk(position=position, message=said.message.id, index=index, kind=kind, text=text))
    said.next_index += 1
