"""One connection that receives live updates: a bounded queue between the hub's thread and the server's.

The hub puts, the connection takes; neither waits for the other. A queue that is full ends: the reader is cut
and reconnects with its cursor. Each counter is written by one of the two threads only, and a deque's ends are
safe between threads, so there is no lock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from onward.server.feeds.frames import Batch, Frame, notice

QUEUE_BYTES = 256 * 1024
"""How much may wait for a reader. Sockets have a buffer of their own besides (`SEND_BUFFER_BYTES`)."""
SEND_BUFFER_BYTES = 64 * 1024
"""What the listening socket sets for its connections: by default the system takes megabytes from a server
before anybody notices that the other side has stopped reading."""

CUT = notice("cut", {"reason": "slow"})
UNREACHABLE = notice("cut", {"reason": "store_unavailable"})
BYE = notice("bye", {"reason": "drain"})
DENIED = notice("denied", {"reason": "credential"})


class Reader:
    """What one connection has been told and not sent yet."""

    def __init__(self, *, queue_bytes: int = QUEUE_BYTES) -> None:
        self.loop = asyncio.get_running_loop()
        self.is_closed = False
        self._most = queue_bytes
        self._waiting: deque[tuple[Batch, int]] = deque()
        self._put = self._taken = 0
        self._over: Frame | None = None
        self._woken = asyncio.Event()
        self._on_room: deque[Callable[[], None]] = deque()

    # -- the hub's side --------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether it gets nothing more."""
        return self.is_closed or self._over is not None

    @property
    def has_room(self) -> bool:
        """Whether the connection has taken all that was put."""
        return not self._waiting or self.is_over

    def when_room(self, call: Callable[[], None]) -> None:
        """Call this once, in the connection's thread, when it has taken all; it may be called too early."""
        self._on_room.append(call)
        if self.has_room:
            call()

    def put(self, batch: Batch) -> None:
        """Let the connection send this; a reader that has not taken what came before it is cut.

        Whoever puts wakes the reader afterwards, many of them at once.
        """
        waiting = self._put - self._taken
        if self.is_over:
            return
        if waiting and waiting + batch.size > self._most:
            self._over = CUT
            return
        self._waiting.append((batch, batch.size))
        self._put += batch.size

    def put_backlog(self, batch: Batch) -> None:
        """The same for a page of what was before. It counts nothing: the next one waits for room."""
        if not self.is_over:
            self._waiting.append((batch, 0))

    def finish(self, last: Frame) -> None:
        """Let the connection end with this frame, after all that waits; the first end counts."""
        if self._over is None:
            self._over = last

    # -- the connection's side -------------------------------------------------------------------------

    def wake(self) -> None:
        """Let whoever waits look; in the connection's loop."""
        self._woken.set()

    def close(self) -> None:
        """Take nothing any more: the connection is gone."""
        self.is_closed = True
        self._waiting.clear()
        self._make_room()
        self._woken.set()

    async def wait(self) -> None:
        """Return when something was put, or it is over."""
        await self._woken.wait()
        self._woken.clear()

    def take(self) -> tuple[Sequence[Batch], Frame | None]:
        """All that waits, and the frame that it ends with, if it has ended."""
        over = self._over  # first: whatever was put before the end is in the queue by now
        found: list[Batch] = []
        if over is CUT:
            self._waiting.clear()  # what was sent is a beginning without a gap; the rest is read again
        while self._waiting:
            batch, size = self._waiting.popleft()
            found.append(batch)
            self._taken += size
        self._make_room()
        return found, over

    def _make_room(self) -> None:
        while self._on_room:
            self._on_room.popleft()()
