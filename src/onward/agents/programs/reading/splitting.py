"""Lines out of bytes that come in pieces, each bounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

LINE_BYTES_MAX = 8 << 20
_decode = msgspec.json.Decoder().decode


class Lines:
    """Splits bytes at newlines. A line that is too long is dropped whole, and counted."""

    def __init__(self, bytes_max: int = LINE_BYTES_MAX) -> None:
        self._bytes_max, self._rest = bytes_max, bytearray()
        self._is_dropping = False
        self.dropped = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that end in this piece."""
        *ended, rest = data.split(b"\n")
        for part in ended:
            if (line := self._end(part)) is not None:
                yield line
        self._grow(rest)

    def finish(self) -> Iterator[bytes]:
        """The last line, if it has no newline at its end."""
        if (line := self._end(b"")) is not None and line:
            yield line

    def _grow(self, part: bytes) -> None:
        if self._is_dropping:
            return
        self._rest += part
        if len(self._rest) > self._bytes_max:
            self._is_dropping = True
            self._rest.clear()

    def _end(self, part: bytes) -> bytes | None:
        self._grow(part)
        line, is_dropped = bytes(self._rest), self._is_dropping
        self._rest.clear()
        self._is_dropping = False
        self.dropped += is_dropped
        return None if is_dropped else line


def event_in(line: bytes) -> Mapping[str, Any] | None:
    """The JSON object of a line; None if it is none."""
    try:
        found = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
