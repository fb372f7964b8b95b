"""What an attempt prints, while it prints it, and where its handler raised an error."""

from __future__ import annotations

import os
import traceback
from collections import deque
from collections.abc import Callable

from onward.handlers.room import Room
from onward.model.events import (
    OUTPUT_LINE_CHARACTERS_MAX,
    OUTPUT_LINES_MAX,
    STDERR,
    STDOUT,
    TRACEBACK_CHARACTERS_MAX,
    LastOutput,
    PrintedLine,
)
from onward.redact.redactor import NOTHING_SECRET, Redactor

Show = Callable[[str, str], None]
"""Shows a person one line of a stream."""
ShowLine = Callable[[str, str, str], None]
"""Shows a line that a step printed: the step, the stream, and the line."""
LINE_BYTES_MAX = 4 * OUTPUT_LINE_CHARACTERS_MAX
_OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_LIBRARY = os.path.join(os.path.dirname(os.path.abspath(os.__file__)), "")


class AttemptOutput:
    """Hears what the commands of one attempt print: the room keeps it, and `show` gets it line by line.

    The last lines, and the error that the handler raised, are kept for the event that ends the attempt.
    """

    def __init__(self, room: Room, show: Show | None = None, *, redactor: Redactor = NOTHING_SECRET) -> None:
        """What commands print was redacted by who started them; errors are redacted here."""
        self._room, self._show, self._redactor = room, show, redactor
        self._unfinished: dict[str, bytes] = {}  # most attempts print nothing
        self._lines: deque[PrintedLine] | None = None
        self._error = self._traceback = ""

    @property
    def is_shown(self) -> bool:
        """Whether a person sees it as it comes."""
        return self._show is not None

    def hear(self, stream: str, data: bytes) -> None:
        """The attempt has printed this."""
        self._room.keep_output(stream, data)
        *lines, rest = (self._unfinished.get(stream, b"") + data).split(b"\n")
        self._unfinished[stream] = _bounded(rest)
        self._take(stream, lines if self._show is not None else lines[-OUTPUT_LINES_MAX:])

    def raised(self, error: BaseException) -> None:
        """The handler has raised this."""
        self.raised_elsewhere(type(error).__name__, traceback_of(error))

    def raised_elsewhere(self, error: str, where: str) -> None:
        """The handler has raised an error of this type in another process."""
        self._error, self._traceback = error, _shortened(self._redactor.redact(where))

    def close(self) -> None:
        """The attempt is over. A last line may lack its end."""
        if not self._unfinished:
            return  # it printed nothing, so the room has nothing to end
        for stream in (STDOUT, STDERR):
            rest = self._unfinished.pop(stream, b"")
            if rest:
                self._take(stream, [rest])
        self._room.end_output()

    def last(self) -> LastOutput | None:
        """What is kept of it; None if there is nothing."""
        if not self._lines and not self._traceback:
            return None
        return LastOutput(lines=tuple(self._lines or ()), error=self._error, traceback=self._traceback)

    def _take(self, stream: str, lines: list[bytes]) -> None:
        if self._lines is None:
            self._lines = deque(maxlen=OUTPUT_LINES_MAX)
        for line in lines:
            text = _text(line)
            self._lines.append(PrintedLine(text, stream))
            if self._show is not None:
                self._show(stream, text)


def _bounded(rest: bytes) -> bytes:
    """The line that has not ended; of a very long one the beginning. A progress bar begins after each CR."""
    return rest if len(rest) <= LINE_BYTES_MAX else rest.rpartition(b"\r")[2][:LINE_BYTES_MAX]


def _text(line: bytes) -> str:
    """A line as text that any store can hold."""
    seen = line.rstrip(b"\r").rpartition(b"\r")[2]
    text = seen.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text if len(text) <= OUTPUT_LINE_CHARACTERS_MAX else f"{text[: OUTPUT_LINE_CHARACTERS_MAX - 1]}…"


def traceback_of(error: BaseException) -> str:
    """The traceback from the handler's own code on.

    Empty for an error of Onward that no code outside Onward led to: its message says it all.
    """
    told = traceback.TracebackException.from_exception(error)
    frames = [*told.stack]
    first = next((at for at, frame in enumerate(frames) if not _is_around(frame.filename)), None)
    if first is not None:
        told.stack = traceback.StackSummary.from_list(frames[first:])
    elif type(error).__module__.partition(".")[0] == "onward":
        return ""
    text = "".join(told.format()).rstrip().replace("\0", "\N{REPLACEMENT CHARACTER}")
    return text.encode("utf-8", "backslashreplace").decode()


def _shortened(text: str) -> str:
    """The end of a long traceback."""
    left_out = len(text) - TRACEBACK_CHARACTERS_MAX
    return text if left_out <= 0 else f"… ({left_out:,} characters before)\n{text[left_out:]}"


def _is_around(filename: str) -> bool:
    """Whether a frame is of Onward or of the standard library, which lead to the handler."""
    return filename.startswith((_OURS, "<frozen ")) or (
        filename.startswith(_LIBRARY) and "site-packages" not in filename
    )
