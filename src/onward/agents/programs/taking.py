"""What a turn has said so far: shown as it comes, and kept for the answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from onward.agents.programs.formats import is_session
from onward.agents.programs.reading.pieces import (
    Began,
    Counted,
    Ended,
    Got,
    Noted,
    Piece,
    Reader,
    Said,
    Thought,
    Trouble,
    Used,
)
from onward.agents.programs.reading.splitting import Lines, event_in
from onward.handlers.calls import TextSink
from onward.handlers.port import StepContext
from onward.model.chat import ChunkKind
from onward.redact.stream import RedactingStream

SHOWN_CHARACTERS_MAX = 4_000_000
"""How much of one turn is stored as a message; nobody reads more, and memory is not free."""
TOOL_CHARACTERS_MAX = 4_000
_UNSTORABLE = str.maketrans({"\0": "\N{REPLACEMENT CHARACTER}"})


class Taking:
    """Takes the output of one turn. `has_worked`: the program has said or done something."""

    def __init__(self, step: StepContext, reader: Reader | None, message: TextSink) -> None:
        self._step, self._reader, self._message = step, reader, message
        self._lines, self._heard = Lines(), RedactingStream(step.redactor)
        self._shown, self._strange, self._text = 0, 0, list[str]()
        self.session = self.model = ""
        self.counted: Counted | None = None
        self.ended: Ended | None = None
        self.trouble: Trouble | None = None
        self.has_worked = False

    def hear(self, stream: str, data: bytes) -> None:
        """Take what the program prints."""
        if stream == "stderr":
            self._step.output.hear(stream, data)
            return
        for line in self._lines.feed(data):
            self._line(line)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Until the program has ended; then the last line counts too, and what was strange is told."""
        try:
            yield
        finally:
            for line in self._lines.finish():
                self._line(line)
            self._tell(self._heard.finish())
            if self._strange or self._lines.dropped:
                self._step.log(
                    f"the program printed {self._strange:,} lines that are no events and "
                    f"{self._lines.dropped:,} that are too long; they were left out"
                )

    @property
    def text(self) -> str:
        """All that a program said whose output is plain text."""
        return "\n".join(self._text).strip()

    def _line(self, line: bytes) -> None:
        if self._reader is None:
            text = line.decode("utf-8", "replace")
            self._text.append(storable(text))
            self._take(Said(f"{text}\n"))
            return
        if not line.strip():
            return
        event = event_in(line)
        if event is None:
            self._strange += 1
            return
        for piece in self._reader.read(event):
            self._take(piece)

    def _take(self, piece: Piece) -> None:
        match piece:
            case Began(session, model):
                self.session = session if is_session(session) else self.session
                self.model = model or self.model
            case Said(text):
                self._show(ChunkKind.TEXT, text)
            case Thought(text):
                self._show(ChunkKind.REASONING, text)
            case Used(tool, what):
                self._show(ChunkKind.TOOL_CALL, f"{tool} {what}".strip()[:TOOL_CHARACTERS_MAX])
            case Got(text, is_error):
                self._show(
                    ChunkKind.TOOL_RESULT, f"{'error: ' if is_error else ''}{text}"[:TOOL_CHARACTERS_MAX]
                )
            case Counted():
                self.counted = piece
            case Noted(text):
                self._step.log(storable(text))
            case Ended():
                self.ended, self.trouble = piece, None
            case Trouble():
                self.trouble = piece

    def _show(self, kind: ChunkKind, text: str) -> None:
        if not text:
            return
        self.has_worked = True
        text = storable(text)[: max(0, SHOWN_CHARACTERS_MAX - self._shown)]
        if not text:
            return
        self._shown += len(text)
        self._message.write(kind, text)
        if kind is ChunkKind.TEXT:
            self._tell(self._heard.feed(text))

    def _tell(self, text: str) -> None:
        if text:
            self._step.output.hear("stdout", text.encode())


def storable(text: str) -> str:
    """The text as every store can hold it."""
    return text.translate(_UNSTORABLE).encode("utf-8", "replace").decode()
