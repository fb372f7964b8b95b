"""What is said in chats, and what users' messages there ask for.

Messages are kept beside the logs of the runs that say them. A message gets its row and a first chunk with the
event that begins a call, and its end with the event that closes it. In between, text is written in flushes,
which touch no log. A chat's row counts the positions of its chunks, so a reader that continues after the last
position it saw misses nothing and gets nothing twice. A message's row counts its chunks, so a flush whose
reply was lost can be repeated. Locks are taken in one order everywhere: runs, chats, messages; each by id.

Intakes are what users' messages ask for: stored with the message, decided once, in the order in which they
came. A chat's row counts the runs that its messages have started: its turn. Whoever starts one names the turn
that it saw, so of two processes that looked at the same time only one starts a run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

from onward.model.chat import ChunkKind, Heard, Intake, IntakeOutcome, Message, Part
from onward.model.run import Frozen

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

    async def contents(self, messages: Collection[str]) -> Mapping[str, Sequence[Part]]:
        """What many messages say so far, by their ids; one that `content` would not find is left out."""
        ...

    async def seal(self, *, at_us: int, limit: int) -> int:
        """Store the content of messages that have ended as blobs; returns of how many."""
        ...

    async def tidy(self, *, before_us: int, limit: int) -> int:
        """Delete the chunks of sealed messages that ended before then; returns of how many messages."""
        ...


FREE_MAX = 100


class ChatRow(Frozen, frozen=True, kw_only=True):
    """A chat. `turn` is how many runs its messages have started; `n` its place in the order of all."""

    n: int
    id: str
    project: str
    title: str
    position: int
    turn: int
    created_at_us: int


class Intakes(Protocol):
    """What users' messages ask for."""

    async def put(self, message: Message, content: bytes, intake: Intake) -> Intake:
        """Store a user's message at the end of its chat, with what it asks for, and answer what is stored.

        The same message again changes nothing. The first project that is named becomes that of the chat, and
        `intake.n` is chosen by the store.
        """
        ...

    async def find(self, message: str) -> Intake | None:
        """What a message asks for."""
        ...

    async def list(self, chat: str, *, is_open: bool, limit: int) -> Sequence[Intake]:
        """The newest of a chat, in their order; with `is_open`, the oldest that are not done."""
        ...

    async def free(
        self, *, chat: str | None = None, after: int = 0, limit: int = FREE_MAX
    ) -> Sequence[Intake]:
        """The oldest that can be decided, after a place in the order of all.

        They are not done, and the run that they wait for, if any, is completed, failed, cancelled, dismissed
        or gone; or has stopped, if a model reads a message in it.
        """
        ...

    async def note(self, message: str, *, seen: str, behind: str, reading: str) -> bool:
        """Note of a pending message which run it waits for, if any, and what was made of it.

        False if it is not pending any more, or its reading is not the one that was `seen`.
        """
        ...

    async def begin(self, message: str, *, seen: str, turn: int, run_id: str, reading: str) -> bool:
        """Take the chat's turn for a pending message: it starts this run; False if another was first, or its
        reading is not the one that was `seen`."""
        ...

    async def settle(
        self, message: str, *, outcome: IntakeOutcome, run_id: str, notice: str, reading: str, at_us: int
    ) -> bool:
        """Note what became of a message; False if that is known already. An empty `reading` changes none."""
        ...

    async def waiting(self, chats: Collection[str]) -> Mapping[str, int]:
        """How many messages of each chat are not done; chats without any are left out."""
        ...

    async def find_chat(self, chat: str) -> ChatRow | None:
        """A chat by its name."""
        ...

    async def list_chats(self, *, before: int | None, limit: int) -> Sequence[ChatRow]:
        """Chats that users have spoken in or that runs were given, newest first, before a place."""
        ...
