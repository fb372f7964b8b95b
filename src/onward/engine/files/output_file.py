"""A file that a stream is written to while it comes, of a bounded size.

The beginning is written as it comes, so that `tail -f` shows it. What comes after `head_max` bytes is not
written, except the last `tail_max` bytes, when the file is closed. Lines of Onward say where that begins.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from onward.receipts.entry import fill

HEAD_BYTES_MAX, TAIL_BYTES_MAX = 16 * 1024 * 1024, 1024 * 1024


class OutputFile:
    """Opened with the first byte; an OSError leaves it closed."""

    def __init__(
        self,
        open: Callable[[], int],
        *,
        head_max: int = HEAD_BYTES_MAX,
        tail_max: int = TAIL_BYTES_MAX,
    ) -> None:
        self._open, self._head_max, self._tail_max = open, head_max, tail_max
        self._file: int | None = None
        self._written = self._more = 0
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        """Write it, or keep it for the end."""
        if self._file is None:
            self._file = self._open()
        room = self._head_max - self._written
        if room > 0:
            head, data = data[:room], data[room:]
            fill(self._file, head)
            self._written += len(head)
        if data:
            self._keep(data)

    def _keep(self, data: bytes) -> None:
        assert self._file is not None
        if not self._more:
            fill(self._file, _note("the output goes on; its end follows when the command has ended"))
        self._more += len(data)
        self._tail += data
        del self._tail[: -self._tail_max]

    def close(self) -> None:
        """Write the end of a long stream."""
        if self._file is None:
            return
        file, self._file = self._file, None
        try:
            if self._more:
                left_out = self._more - len(self._tail)
                fill(file, _note(f"{left_out:,} bytes were left out here") + self._tail)
        finally:
            os.close(file)


def _note(text: str) -> bytes:
    return f"\n[onward: {text}]\n".encode()
