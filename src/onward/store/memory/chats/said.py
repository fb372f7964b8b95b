"""A message in memory, with its chunks and who writes it."""

from __future__ import annotations

from dataclasses import dataclass, field

from onward.model.chats.message import Chunk, Message
from onward.store.growing import LockedMessage


@dataclass
class Said:
    """A message and its chunks, under the token of whoever writes it."""

    message: Message
    token: int
    next_index: int = 0
    chunks: list[Chunk] = field(default_factory=list)

    @property
    def locked(self) -> LockedMessage:
        """What a flush is judged by."""
        one = self.message
        return LockedMessage(0, one.run_id, one.state, self.token, self.next_index, 0, 0)
