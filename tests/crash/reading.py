"""Readers of a chat while its writers are killed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from onward.model.chat import ChunkKind, Heard, Part, Reset
from onward.store.port.store import Store

PAGE = 50


class Reader:
    """A reader that continues after the last position it saw, and checks everything that it gets.

    `is_late`: it comes when the chunks of some messages may be gone, which then come whole.
    """

    def __init__(self, store: Store, chat: str, *, is_late: bool = False) -> None:
        self.store, self.chat, self.is_late = store, chat, is_late
        self.cursor = 0
        self.texts: dict[str, str] = {}
        self.ended: dict[str, str] = {}

    async def read(self) -> int:
        """Read all that is new; returns how much that was."""
        before = self.cursor
        while found := await self.store.messages.read(self.chat, after=self.cursor, limit=PAGE):
            for one in found:
                assert self.is_late or one.position == self.cursor + 1, "a gap"
                assert one.position > self.cursor, "a position twice"
                self.cursor = one.position
                assert one.message not in self.ended, "a chunk after the end"
                if isinstance(one, Reset):
                    assert self.is_late, "a message without chunks"
                    self.texts[one.message] = text_of(one.parts)
                    self.ended[one.message] = one.state.value
                    continue
                if one.kind is ChunkKind.START:
                    assert one.message not in self.texts, "a second start"
                    self.texts[one.message] = ""
                elif one.kind is ChunkKind.END:
                    self.ended[one.message] = one.text
                elif one.kind is ChunkKind.TEXT:
                    self.texts[one.message] += one.text
        return self.cursor - before


def text_of(parts: Sequence[Part]) -> str:
    """What a whole message says."""
    return "".join(part.text for part in parts if part.kind is ChunkKind.TEXT)


async def same_from_every_position(store: Store, chat: str) -> int:
    """A reader that reconnects anywhere gets what follows, as one that read from the start got it."""
    whole = [one async for one in _following(store, chat, 0)]
    for number, one in enumerate(whole):
        again = await store.messages.read(chat, after=one.position, limit=PAGE)
        assert [*again] == whole[number + 1 : number + 1 + PAGE]
    return len(whole)


async def _following(store: Store, chat: str, after: int) -> AsyncIterator[Heard]:
    while found := await store.messages.read(chat, after=after, limit=PAGE):
        for one in found:
            yield one
        after = found[-1].position
