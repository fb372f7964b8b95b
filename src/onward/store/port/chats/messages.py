"""Messages: a row and a first chunk with the event that begins a call, an end with the one that closes it.

In between text is written in flushes, which touch no log. A chat's row counts the positions of its chunks, so
a reader that continues after the last position it saw misses nothing and gets nothing twice. A message's
row counts its chunks, so a flush whose reply was lost can be made again.

Locks are taken in one order everywhere: runs, chats, messages; each by id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

from onward.model.chats.message import ChunkKind, Heard, Message, Part

READ_MAX = 1_000
LISTED_MAX = 1_000


class Growth(NamedTuple):
    """What a stream has written since its last flush: chunks, counted from `first`.

    The chunk of an index is the same whenever it is sent. A message begins with chunk 0, its start.
    """

    chat: str
    message: str
    run_id: str
    token: int
    first: int
    chunks: Sequence[tuple[ChunkKind, str]]

    @property
    def next_index(self) -> int:
        return self.first + len(self.chunks)


class Flushed(StrEnum):
    """What came of a flush: the text is durable; the chat was locked, and may be free for the next flush; or
    the message is not streaming under this token, so its writer should ask whether it has the lease."""

    STORED = "stored"
    LATER = "later"
    REFUSED = "refused"


class MessageQuery(msgspec.Struct, frozen=True):
    """Which messages to list, in the order in which they began: those of a run, of a chat, or by id.

    `is_newest`: of a chat, the last ones instead of the first.
    """

    run_id: str | None = None
    chat: str | None = None
    ids: tuple[str, ...] = ()
    after_position: int = 0
    is_newest: bool = False
    limit: int = LISTED_MAX


class Messages(Protocol):
    """What is said in chats."""

    async def flush(self, batch: Sequence[Growth], at_us: int) -> Sequence[Flushed]:
        """Store what streams have written until now, each of another message; answers for each."""
        ...

    async def say(self, message: Message, content: bytes) -> None:
        """Store a whole message, such as a user's, at the end of its chat; `content` is its sealed text.

        The same message again changes nothing.
        """
        ...

    async def read(self, chat: str, *, after: int, limit: int = READ_MAX) -> Sequence[Heard]:
        """What is behind a position of a chat, in order. A chat that nobody has spoken in is empty.

        A message whose chunks are gone comes whole, at its last position.
        """
        ...

    async def positions(self, chats: Sequence[str]) -> Mapping[str, int]:
        """Where chats end, as far as they exist."""
        ...

    async def list(self, query: MessageQuery) -> Sequence[Message]:
        """Messages, in the order in which they began."""
        ...

    async def content(self, message: str) -> Sequence[Part] | None:
        """What a message says so far; None if there is no such message, or its content is damaged."""
        ...

    async def seal(self, *, at_us: int, limit: int) -> int:
        """Store the content of messages that have ended as blobs; returns of how many."""
        ...

    async def tidy(self, *, before_us: int, limit: int) -> int:
        """Delete the chunks of sealed messages that ended before then; returns of how many messages."""
        ...
