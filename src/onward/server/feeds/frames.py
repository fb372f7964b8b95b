"""What is sent: a frame is one change, and a batch is what one poll found.

A frame is encoded once for all readers. `at` is its position in its stream, by which duplicates are dropped;
`id` is the cursor with which a reader reconnects. They are the same, unless several frames have one position:
then only the last of them has the id, so that a reader that was cut off between them gets all of them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

Stream = Literal["feed", "events", "messages", "state", "rows", ""]
_encoder = msgspec.json.Encoder()


class Frame(NamedTuple):
    """One thing that happened: `event` is what it is, `value` what it says, and `data` the same as JSON.

    `run` is the run that it is about, where the stream does not say so.
    """

    stream: Stream
    event: str
    at: int
    id: int | None
    value: Any
    data: bytes
    run: str | None = None

    def sse(self) -> bytes:
        """The frame as an event stream has it."""
        if self.id is None:
            return b"event: %b\ndata: %b\n\n" % (self.event.encode(), self.data)
        return b"event: %b\nid: %d\ndata: %b\n\n" % (self.event.encode(), self.id, self.data)

    def live(self) -> bytes:
        """The frame as a JSON object."""
        id = b"null" if self.id is None else b"%d" % self.id
        run = b"" if self.run is None else b',"run":%b' % _encoder.encode(self.run)
        head = b'{"stream":"%b","event":"%b","id":%b' % (self.stream.encode(), self.event.encode(), id)
        return b'%b%b,"data":%b}' % (head, run, self.data)


def frame(
    stream: Stream, event: str, at: int, value: Any, *, run: str | None = None, has_id: bool = True
) -> Frame:
    """A frame at its place."""
    return Frame(stream, event, at, at if has_id else None, value, _encoder.encode(value), run)


def notice(event: str, value: Any, *, stream: Stream = "", run: str | None = None) -> Frame:
    """A frame without a place: the end of a stream, or of the connection."""
    return Frame(stream, event, 0, None, value, _encoder.encode(value), run)


AROUND_BYTES = 60
"""What a frame has besides its data, about."""


class Batch:
    """Frames of one stream in their order, and what they are as bytes: for each way of telling them once."""

    __slots__ = ("_live", "_sse", "frames", "size")

    def __init__(self, frames: Sequence[Frame]) -> None:
        self.frames = frames
        self.size = sum(len(one.data) for one in frames) + AROUND_BYTES * len(frames)
        self._sse: bytes | None = None
        self._live: bytes | None = None

    @property
    def sse(self) -> bytes:
        """All of them as an event stream has them."""
        if self._sse is None:
            self._sse = b"".join([one.sse() for one in self.frames])
        return self._sse

    @property
    def live(self) -> bytes:
        """All of them as JSON objects, with commas between."""
        if self._live is None:
            self._live = b",".join([one.live() for one in self.frames])
        return self._live

    def after(self, at: int) -> Batch | None:
        """What of it comes after a place; None if nothing does."""
        frames = self.frames
        if frames[0].at > at:
            return self
        left = [one for one in frames if one.at > at]
        return Batch(left) if left else None


def live_message(batches: Iterable[Batch]) -> bytes:
    """One message of a live socket: a JSON array of frames."""
    return b"[%b]" % b",".join([batch.live for batch in batches])
