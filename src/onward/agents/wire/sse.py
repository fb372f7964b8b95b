"""Server-sent events out of bytes: pure, and bounded whatever is sent."""

from __future__ import annotations

EVENT_BYTES_MAX = 4 * 1024 * 1024
"""One event may carry a whole answer; a larger one is no answer."""


class TooLarge(Exception):
    """An event is larger than any that makes sense."""


class SseReader:
    """Gives the data of every event, in whatever pieces the bytes come."""

    __slots__ = ("_bytes_max", "_data", "_rest", "_size")

    def __init__(self, event_bytes_max: int = EVENT_BYTES_MAX) -> None:
        self._bytes_max = event_bytes_max
        self._rest = bytearray()  # so that a line that comes byte by byte costs its length, not its square
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, received: bytes) -> list[bytes]:
        """The data of all events that end in `received`; TooLarge if one does not end."""
        *lines, rest = received.split(b"\n")
        if lines and self._rest:
            lines[0] = bytes(self._rest) + lines[0]
            self._rest.clear()
        self._rest += rest
        if len(self._rest) > self._bytes_max:
            raise TooLarge
        return self._events(lines)

    def finish(self) -> list[bytes]:
        """The data of an event that the stream ended without an empty line after it, as some servers do."""
        last = bytes(self._rest)
        self._rest.clear()
        return self._events([last, b""])

    def _events(self, lines: list[bytes]) -> list[bytes]:
        events = []
        for line in lines:
            line = line.rstrip(b"\r")
            if line.startswith(b"data:"):
                self._add(line[6:] if line[5:6] == b" " else line[5:])
            elif not line and self._data:
                events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data, self._size = [], 0
            # Comments, which keep a connection alive, and other fields say nothing about the answer.
        return events

    def _add(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._bytes_max:
            raise TooLarge
        self._data.append(data)
