"""The last lines that an attempt printed, and where its handler raised an error: what its event keeps."""

from __future__ import annotations

import msgspec

STDOUT, STDERR = "stdout", "stderr"
LINES_MAX, LINE_CHARACTERS_MAX = 50, 500
TRACEBACK_CHARACTERS_MAX = 8_000


class PrintedLine(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """One line of a command, shortened if it is long."""

    text: str
    stream: str = STDOUT


class LastOutput(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The last lines of both streams, in the order in which they came, and the error of a handler.

    `error` is the type of the error that the handler raised, and `traceback` where that was.
    """

    lines: tuple[PrintedLine, ...] = ()
    error: str = ""
    traceback: str = ""

    def ending(self, count: int) -> list[str]:
        """The last `count` lines for a person: of the traceback, or else of what was printed."""
        if self.traceback:
            return self.traceback.splitlines()[-count:]
        return [line.text for line in self.lines[-count:]]
