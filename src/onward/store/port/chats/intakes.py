"""What users' messages ask for: stored with the message, decided once, in the order in which they came.

A chat's row counts the runs that its messages have started: its turn. Whoever starts one names the turn
that it saw, so of two that looked at the same time only one starts a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from onward.model.chats.intake import Intake, Outcome
from onward.model.chats.message import Message
from onward.model.run import Frozen

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
        self, message: str, *, outcome: Outcome, run_id: str, notice: str, reading: str, at_us: int
    ) -> bool:
        """Note what became of a message; False if that is known already. An empty `reading` changes none."""
        ...

    async def find_chat(self, chat: str) -> ChatRow | None:
        """A chat by its name."""
        ...

    async def list_chats(self, *, before: int | None, limit: int) -> Sequence[ChatRow]:
        """Chats that users have spoken in or that runs were given, newest first, before a place."""
        ...
