"""Messages: what is said in a chat, stored while it grows, in chunks that a reader gets by their position."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

import msgspec
from blake3 import blake3

from onward.model.row import MessageState
from onward.model.run import Frozen

RUN_CHATS = "run/"
"""How the chat of a run begins that was given none. The name of no other chat begins like that."""


class Role(StrEnum):
    """Who says a message: a person, a model, or Onward itself."""

    USER = "user"
    ASSISTANT = "assistant"
    SYSTEM = "system"


class ChunkKind(StrEnum):
    """What a chunk is. The beginning and the end of a message are chunks too: a reader needs one cursor."""

    START = "start"
    TEXT = "text"
    REASONING = "reasoning"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    END = "end"


WRITTEN = frozenset({ChunkKind.TEXT, ChunkKind.REASONING, ChunkKind.TOOL_CALL, ChunkKind.TOOL_RESULT})
"""What a stream writes; the other kinds come with the events of its call."""
RUNNING_TEXT = frozenset({ChunkKind.TEXT, ChunkKind.REASONING})
"""Text that goes on from chunk to chunk. Of the other kinds each chunk is whole."""


class Message(Frozen, frozen=True, kw_only=True):
    """A message, without its text. `number` is the try of its call; `changed_at_us` is when it last grew.

    Its chunks are at positions of its chat from `first_position` on, and if it has ended, up to
    `last_position`. `content` names the blob of its sealed text; once it is `is_tidied`, only that is left.
    """

    id: str
    chat: str
    run_id: str
    step: str
    call: str
    number: int
    role: Role
    state: MessageState
    model: str
    begun_at_us: int
    changed_at_us: int
    ended_at_us: int | None
    first_position: int
    last_position: int | None
    content: str | None = None
    is_tidied: bool = False


class Part(NamedTuple):
    """A piece of a message's content: all text or reasoning up to something else, or one tool's."""

    kind: ChunkKind
    text: str


class Chunk(Frozen, frozen=True, kw_only=True):
    """A piece of a message at its position in the chat. A start has the role as its text, an end the
    state."""

    position: int
    message: str
    index: int
    kind: ChunkKind
    text: str


class Reset(Frozen, frozen=True, kw_only=True):
    """A whole message whose chunks are gone. It replaces whatever a reader has of it."""

    position: int
    message: str
    role: Role
    state: MessageState
    parts: tuple[Part, ...]


Heard = Chunk | Reset
"""What a reader of a chat gets."""
_decoder = msgspec.json.Decoder(tuple[Part, ...])


def chat_of_run(run_id: str) -> str:
    """The chat of a run that was given none."""
    return f"{RUN_CHATS}{run_id}"


def message_id(run_id: str, step: str, call: str, number: int) -> str:
    """The id of the message of a call: the four never recur together, so nothing else ever has it."""
    return blake3(f"{run_id}/{step}/{call}~{number}".encode()).hexdigest(length=13)


def joined(chunks: Iterable[tuple[ChunkKind, str]]) -> tuple[Part, ...]:
    """The content of a message from its chunks, however its text was cut."""
    found: list[Part] = []
    for kind, text in chunks:
        if kind not in WRITTEN:
            continue
        if found and found[-1].kind is kind and kind in RUNNING_TEXT:
            found[-1] = Part(kind, found[-1].text + text)
        else:
            found.append(Part(kind, text))
    return tuple(found)


def text_of(parts: Iterable[Part]) -> str:
    """What a message says, without its reasoning and its tools."""
    return "".join(part.text for part in parts if part.kind is ChunkKind.TEXT)


def seal_parts(parts: Iterable[Part]) -> bytes:
    """The content of a message as its blob has it."""
    return msgspec.json.encode(tuple(parts))


def unseal_parts(content: bytes) -> tuple[Part, ...]:
    """The content of a message from its blob; `msgspec.MsgspecError` if it is none."""
    return _decoder.decode(content)
