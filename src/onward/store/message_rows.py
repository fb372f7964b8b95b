"""Messages as rows: flushes judged from locked rows, for every store alike.

Then, for every SQL database alike, the rows of chats and of what users' messages ask for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from onward.errors import StoreCorrupt
from onward.model.chat import (
    Chunk,
    ChunkKind,
    Heard,
    Intake,
    Message,
    Part,
    Reset,
    Role,
    joined_parts,
    seal_parts,
    unseal_parts,
)
from onward.model.row import CallClosed, CallOpened, MessageState
from onward.store import rows
from onward.store.codec import content_hash
from onward.store.port.log import Write
from onward.store.port.messages import ChatRow, Flushed, Growth, MessageQuery

_MESSAGE_FIELDS = Message.__struct_fields__


class LockedMessage(NamedTuple):
    """A message whose row and chat nobody else can change now."""

    n: int
    run_id: str
    state: str
    token: int
    next_index: int
    chat_n: int
    chat_position: int


class NewChunk(NamedTuple):
    """A chunk as its row has it."""

    chat_n: int
    position: int
    message_n: int
    number: int
    kind: str
    text: str


class JudgedFlush(msgspec.Struct):
    """A flush of several streams: the rows that it adds, and how far messages and chats are then."""

    chunks: list[NewChunk] = msgspec.field(default_factory=list)
    messages: dict[int, int] = msgspec.field(default_factory=dict)
    chats: dict[int, int] = msgspec.field(default_factory=dict)

    def add(self, growth: Growth, found: LockedMessage | None) -> Flushed:
        """Add what is new of a stream, and answer it. What is stored already is left out."""
        if not is_writing(growth, found):
            return Flushed.REFUSED
        assert found is not None
        fresh = growth.chunks[found.next_index - growth.first :]
        position = self.chats.get(found.chat_n, found.chat_position)
        for index, (kind, text) in enumerate(fresh, found.next_index):
            position += 1
            self.chunks.append(NewChunk(found.chat_n, position, found.n, index, kind.value, text))
        if fresh:
            self.chats[found.chat_n] = position
            self.messages[found.n] = growth.next_index
        return Flushed.STORED


def is_writing(growth: Growth, found: LockedMessage | None) -> bool:
    """Whether a message is streaming under the token of whoever writes, and has what came before."""
    return (
        found is not None
        and (found.run_id, found.token) == (growth.run_id, growth.token)
        and found.state == MessageState.STREAMING
        and growth.first <= found.next_index
    )


class MessageBegun(NamedTuple):
    """A message to make, with the columns that its call has."""

    id: str
    chat: str
    run_id: str
    step: str
    call: str
    number: int
    token: int
    model: str
    at_us: int


class MessageEnded(NamedTuple):
    """A message that ends, by its call."""

    run_id: str
    step: str
    call: str
    number: int
    state: str
    model: str
    at_us: int
    content: str | None


def message_changes(write: Write) -> Sequence[MessageBegun | MessageEnded]:
    """The messages that a write begins and ends, in the order of its events."""
    return [made for row in write.calls if (made := _message_change(write, row)) is not None]


def _message_change(write: Write, row: CallOpened | CallClosed) -> MessageBegun | MessageEnded | None:
    place = (write.run_id, row.step, row.call, row.number)
    if isinstance(row, CallClosed):
        if not row.is_streamed:
            return None
        return MessageEnded(*place, row.state.value, row.model, write.at_us, row.said)
    if row.streamed is None:
        return None
    token = write.records[-1].token
    return MessageBegun(
        row.streamed.message, row.streamed.chat, *place, token=token, model=row.model, at_us=write.at_us
    )


def arrival_values(message: Message) -> dict[str, str | int | None]:
    """The columns of a message of another database that keeps only its text."""
    return {
        "id": message.id,
        "chat": message.chat,
        "run_id": message.run_id,
        "step": message.step,
        "call": message.call,
        "number": message.number,
        "role": message.role.value,
        "state": message.state.value,
        "model": message.model,
        "content": message.content,
        "begun_at_us": message.begun_at_us,
        "changed_at_us": message.changed_at_us,
        "ended_at_us": message.ended_at_us,
    }


def message_of(columns: Sequence[Any]) -> Message:
    """A message from its columns, which are in the order of its fields."""
    values = dict(zip(_MESSAGE_FIELDS, columns, strict=True))
    try:
        return msgspec.convert({**values, "is_tidied": bool(values["is_tidied"])}, Message)
    except msgspec.ValidationError as error:
        raise StoreCorrupt(f"the row of message {columns[0]!r} is damaged: {error}.") from None


def chunk_of(columns: Sequence[Any]) -> Chunk:
    """A chunk from its columns."""
    position, message, index, kind, text = columns
    try:
        return Chunk(position=position, message=message, index=index, kind=ChunkKind(kind), text=text)
    except ValueError as error:
        raise StoreCorrupt(f"chunk {index} of message {message!r} is damaged: {error}.") from None


def parts_of(chunks: Iterable[Sequence[Any]]) -> tuple[Part, ...]:
    """The content of a message from the columns of its chunks: kind and text."""
    return joined_parts((ChunkKind(kind), text) for kind, text in chunks)


def sealed_content(parts: Iterable[Part]) -> tuple[str, bytes]:
    """The blob of a message's content: its name and its bytes."""
    content = seal_parts(parts)
    return content_hash(content), content


def unsealed_content(content: bytes | None) -> tuple[Part, ...] | None:
    """The content that a blob holds; None if it is missing or damaged."""
    if content is None:
        return None
    try:
        return unseal_parts(content)
    except msgspec.MsgspecError:
        return None


def heard_in_order(
    chunks: Iterable[Chunk], gone: Iterable[Sequence[Any]], contents: Mapping[str, bytes], limit: int
) -> Sequence[Heard]:
    """The first that a reader gets of chunks, and of messages whose chunks are gone, by their positions.

    A message that is gone comes as its id, last position, role, state and the name of its content.
    """
    resets = rows.sound(gone, lambda columns: _reset(columns, contents))
    heard: list[Heard] = [*chunks, *resets]
    return sorted(heard, key=_position_of)[:limit]


def _position_of(heard: Heard) -> int:
    return heard.position


def _reset(columns: Sequence[Any], contents: Mapping[str, bytes]) -> Reset:
    message, position, role, state, name = columns
    parts = unsealed_content(contents.get(name))
    if parts is None:
        raise StoreCorrupt(f"the content {name} of message {message!r} is missing or damaged.")
    return Reset(position=position, message=message, role=Role(role), state=MessageState(state), parts=parts)


def message_listing(query: MessageQuery) -> tuple[str, dict[str, str | int]]:
    """The name of the query that lists messages, and its values."""
    if query.run_id is not None:
        return "message_of_run", {
            "run_id": query.run_id,
            "after": query.after_position,
            "limit": query.limit,
        }
    if query.is_newest:
        return "message_newest", {"chat": query.chat or "", "limit": query.limit}
    return "message_of_chat", {
        "chat": query.chat or "",
        "after": query.after_position,
        "limit": query.limit,
    }


_INTAKE_FIELDS = Intake.__struct_fields__
_CHAT_FIELDS = ChatRow.__struct_fields__


def intake_of(columns: Sequence[Any]) -> Intake:
    """What a message asks for, from its columns, which are in the order of its fields."""
    values = dict(zip(_INTAKE_FIELDS, columns, strict=True))
    try:
        return msgspec.convert({**values, "outcome": values["outcome"] or None}, Intake)
    except msgspec.ValidationError as error:
        raise StoreCorrupt(f"the intake of message {columns[1]!r} is damaged: {error}.") from None


def intake_values(intake: Intake) -> dict[str, Any]:
    """The columns of a message that was just said."""
    return {
        "message": intake.message,
        "chat": intake.chat,
        "body_hash": intake.body_hash,
        "said_by": intake.said_by,
        "wish": intake.wish.value,
        "project": intake.project,
        "pipeline": intake.pipeline,
        "workdir": intake.workdir,
        "reading": intake.reading,
        "at_us": intake.at_us,
    }


def chat_of(columns: Sequence[Any]) -> ChatRow:
    """A chat from its columns, which are in the order of its fields."""
    try:
        return msgspec.convert(dict(zip(_CHAT_FIELDS, columns, strict=True)), ChatRow)
    except msgspec.ValidationError as error:
        raise StoreCorrupt(f"the row of chat {columns[1]!r} is damaged: {error}.") from None
