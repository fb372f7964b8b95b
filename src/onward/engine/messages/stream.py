"""The text of one message on its way to the store: cut into chunks, and kept until it is durable."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from onward.engine.messages.redaction import ChunkRedaction
from onward.model.call import CallFinished, Streamed
from onward.model.chat import RUNNING_TEXT, WRITTEN, ChunkKind, joined_parts, seal_parts
from onward.redact.redactor import Redactor
from onward.store.codec import content_hash
from onward.store.port.messages import Flushed, Growth

if TYPE_CHECKING:
    from onward.engine.messages.flusher import Flusher

CHUNK_CHARACTERS_MAX = 16 * 1024
FLUSH_CHUNKS_MAX = 8
FLUSH_BYTES = 2 * 1024
"""As much as this is not kept waiting for the next tick."""
BEHIND_BYTES = 256 * 1024
"""A stream that has more than this to store makes its writer wait."""


class MessageStream:
    """Writes the text of one message. It is used in the event loop of its flusher, by one writer.

    `is_refused`: the store did not take it, because the message is not streaming under this token any more.
    The writer should ask whether it still has the lease; what it writes from now on is dropped.
    """

    def __init__(
        self,
        flusher: Flusher,
        streamed: Streamed,
        *,
        run_id: str,
        token: int,
        redactor: Redactor,
        on_refused: Callable[[], object] | None,
    ) -> None:
        self._flusher, self._on_refused = flusher, on_refused
        self._streamed, self._run_id, self._token = streamed, run_id, token
        self._written: list[tuple[ChunkKind, list[str]]] = []
        self._chunks: list[tuple[ChunkKind, str]] = []
        self._stored: list[tuple[ChunkKind, str]] = []
        self._redaction = ChunkRedaction(redactor)
        self._first = 1  # the message's start is chunk 0
        self._fresh = self._behind = 0
        self._is_closed = self._is_draining = False
        self.is_refused = False
        self.failure: Exception | None = None

    @property
    def has_rest(self) -> bool:
        """Whether something is not durable yet."""
        return bool(self._chunks or self._written or (self._is_draining and self._redaction.holds))

    def write(self, kind: ChunkKind, text: str) -> None:
        """Add text. It is stored with the next flush; `ready` says when there is room for more.

        Text and reasoning may come in pieces of any size; each `tool_call` and `tool_result` is whole.
        """
        if kind not in WRITTEN:
            raise ValueError(f"a stream does not write {kind.value!r} chunks")
        if self._is_closed or self.is_refused or not text:
            return
        written = self._written
        if written and written[-1][0] is kind and kind in RUNNING_TEXT:
            written[-1][1].append(text)
        else:
            written.append((kind, [text]))
        size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        self._behind += size
        self._fresh += size
        self._flusher.note(self, is_urgent=self._fresh >= FLUSH_BYTES)

    async def ready(self) -> None:
        """Wait while much is not stored yet: what a writer holds in memory has an end.

        Raises what keeps the store from taking it.
        """
        while self._behind > BEHIND_BYTES and not self.is_refused:
            await self._flusher.turn_of(self)

    async def drain(self) -> bool:
        """Wait until everything so far is durable; False if it was refused. Call it before the call's end is
        recorded. Raises what keeps the store from taking it.

        What was held back, because it may be the beginning of a secret, is stored too: what follows is
        another text."""
        self._is_draining = True
        try:
            while self.has_rest and not self.is_refused:
                await self._flusher.turn_of(self)
        finally:
            self._is_draining = False
        return not self.is_refused

    def with_text(self, finished: CallFinished) -> CallFinished:
        """The end of the message's call, with the text of the message, unless some of it is not stored."""
        if self.is_refused or self.has_rest:
            return finished
        content = seal_parts(joined_parts(self._stored))
        name = content_hash(content)
        return replace(finished, said=name, nodes={**finished.nodes, name: content})

    def close(self) -> None:
        """Write nothing more; what is not durable is dropped, unless it is under way."""
        self._is_closed = True
        self._drop()
        self._flusher.forget(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def growth(self) -> Growth:
        """What to flush now. What was sent once is sent again in the same chunks."""
        for kind, pieces in self._written:
            self._cut(self._redaction.feed(kind, _storable("".join(pieces))))
        if self._is_draining:
            self._cut(self._redaction.finish())
        self._written, self._fresh = [], 0
        chunks = tuple(self._chunks[:FLUSH_CHUNKS_MAX])
        chat, message = self._streamed.chat, self._streamed.message
        return Growth(chat, message, self._run_id, self._token, self._first, chunks)

    def _cut(self, pieces: Iterable[tuple[ChunkKind, str]]) -> None:
        for kind, text in pieces:
            step = CHUNK_CHARACTERS_MAX if kind in RUNNING_TEXT else max(len(text), 1)
            self._chunks += [(kind, text[at : at + step]) for at in range(0, len(text), step)]

    def settle(self, sent: Growth, came: Flushed) -> None:
        """Note what came of a flush."""
        self.failure = None
        if came is Flushed.STORED:
            del self._chunks[: len(sent.chunks)]
            self._stored += sent.chunks
            self._first = sent.next_index
            if not self.has_rest:
                self._behind = 0
            else:
                self._behind -= sum(len(text.encode()) for _, text in sent.chunks)
        elif came is Flushed.REFUSED and not self._is_closed:
            self.is_refused = True
            self._drop()
            if self._on_refused is not None:
                self._on_refused()

    def _drop(self) -> None:
        self._written, self._chunks, self._behind, self._fresh = [], [], 0, 0


def _storable(text: str) -> str:
    """The text as a database can hold it: halves of a character that came apart are joined, or replaced."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
