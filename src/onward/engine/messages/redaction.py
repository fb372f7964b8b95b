"""Text that streams into messages, without the secrets that are known: also if one comes in pieces."""

from __future__ import annotations

from onward.model.chat import RUNNING_TEXT, ChunkKind
from onward.redact.redactor import RedactingStream, Redactor

Piece = tuple[ChunkKind, str]


class ChunkRedaction:
    """Redacts the text of one message. What may be the beginning of a secret is held back."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._running: tuple[ChunkKind, RedactingStream] | None = None

    @property
    def holds(self) -> bool:
        """Whether something may be held back."""
        return self._running is not None

    def feed(self, kind: ChunkKind, text: str) -> list[Piece]:
        """What can be stored of the text so far."""
        if self._redactor.is_empty:
            return [(kind, text)]
        passed = self.finish() if self._running is not None and self._running[0] is not kind else []
        if kind not in RUNNING_TEXT:
            return [*passed, (kind, self._redactor.redact(text))]
        if self._running is None:
            self._running = kind, RedactingStream(self._redactor)
        return [*passed, (kind, self._running[1].feed(text))]

    def finish(self) -> list[Piece]:
        """The rest."""
        if self._running is None:
            return []
        kind, stream = self._running
        self._running = None
        return [(kind, stream.finish())]
