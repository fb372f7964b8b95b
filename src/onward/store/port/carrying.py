"""Runs that come from another database: whole, with a log that was written elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from onward.model.chats.message import Message
from onward.store.port.effects import Effect
from onward.store.port.stored import StoredEvent, Write

ARRIVED = "arrived"


class Arrival(msgspec.Struct, frozen=True):
    """A run to take in. `write` has its row, its end and its first records; `rest` gives those after them,
    a few at a time, and again from their beginning if it is called again."""

    write: Write
    rest: Callable[[], Iterator[Sequence[StoredEvent]]]
    effects: Sequence[Effect] = ()
    messages: Sequence[Message] = ()
    """Those of its calls: ended, without chunks, and with their text stored as content."""

    @property
    def message_content(self) -> set[str]:
        """The hashes of the text of its messages."""
        return {message.content for message in self.messages if message.content is not None}

    @property
    def append_id(self) -> str:
        """The same run again is the same request."""
        return f"{ARRIVED} {self.write.head.hash.hex()}"


class Carrying(Protocol):
    """Taking in runs of another database. Taking them elsewhere needs nothing but reading."""

    async def receive(self, arrival: Arrival) -> None:
        """Store a run that no process holds, all of it or nothing; a success if this very log is there.

        Its id must be free and what it was forked from must be there. No process is at its effects any more:
        one that has no result is in doubt. One whose key is taken stays as it is.
        Its messages stand at the end of their chats, in their order.
        """
        ...
