"""All connections of a server that receive live updates: counted, kept alive, checked, and closed.

One task does this once a second for all of them, so an idle stream costs nothing. Closing
a stream stops no run: it only removes a reader from the hub.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Collection

from onward.clock import Clock, TookTooLong, within
from onward.errors import OnwardError
from onward.server.feeds.readers import BYE, CUT, DENIED, SEND_BUFFER_BYTES, Reader
from onward.server.feeds.thread import HubThread
from onward.server.problems import Problem

log = logging.getLogger("onward.feeds")
LOOK_S = 1.0
KEEP_ALIVE_S = 15.0
STALLED_S = 10.0
"""How long one write may take."""
CHECK_S = 4.0
"""How often a credential is looked up again: with LOOK_S, a revoked one reads for five seconds at most."""
LEAVE_S = 3.0
"""How long connections get to send their last frame."""
IsAllowed = Callable[[], Awaitable[bool]]


def limit_buffers(listening: socket.socket) -> None:
    """Let the connections of a listening socket buffer little, and end when the other side stops reading."""
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    with contextlib.suppress(OSError):  # asyncio sets it for sockets that say they are TCP; ours does not
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # of Linux
        with contextlib.suppress(OSError):  # of a socket that is not TCP
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(STALLED_S * 1_000))


class Connection:
    """One stream as the server sees it: what it reads, for whom, and when it last wrote."""

    def __init__(self, streams: Streams, who: str, is_allowed: IsAllowed, now_s: float) -> None:
        self.reader, self.who, self.is_allowed = Reader(), who, is_allowed
        self._streams, self._task = streams, asyncio.current_task()
        self.wrote_s = self.checked_s = now_s
        self.writing_since_s: float | None = None
        self.is_quiet = False
        """Whether it should say that it is still there."""

    async def write(self, send: Callable[[], Awaitable[None]]) -> None:
        """Send something, and be seen to."""
        self.writing_since_s = self._streams.clock.awake_s()
        await send()
        self.wrote_s, self.writing_since_s, self.is_quiet = self._streams.clock.awake_s(), None, False

    def stalls(self, now_s: float) -> None:
        """Give up a write that takes too long: first what waits, then, if it never ends, the connection."""
        assert self.writing_since_s is not None
        waited_s = now_s - self.writing_since_s
        if waited_s >= STALLED_S:
            self.reader.finish(CUT)
            self._streams.hub.leave(self.reader)
        if waited_s >= 2 * STALLED_S:
            self.cancel()

    def cancel(self) -> None:
        """End it without a word."""
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        """It is over, and there is room for another."""
        self._streams.closed(self)


class Streams:
    """The streams of one server. `each` and `most` are how many a caller and all may have."""

    def __init__(
        self, hub: HubThread, clock: Clock, *, each: int, most: int, draining: asyncio.Event
    ) -> None:
        self.hub, self.clock = hub, clock
        self._each, self._most = each, most
        self._open: set[Connection] = set()
        self._of: Counter[str] = Counter()
        self._checks: set[asyncio.Task[None]] = set()
        self._draining = draining
        self._enough, self._none = asyncio.Event(), asyncio.Event()
        self._tasks = [asyncio.create_task(self._look_after()), asyncio.create_task(self._say_goodbye())]

    @property
    def open_now(self) -> Collection[Connection]:
        """Those that are open."""
        return self._open

    def open(self, who: str, is_allowed: IsAllowed) -> Connection:
        """A place for one more stream, to be closed; a Problem if there is none left."""
        if self._draining.is_set():
            raise Problem(503, "draining", "this server is stopping.", headers={"Retry-After": "1"})
        if self._of[who] >= self._each or len(self._open) >= self._most:
            raise Problem(
                429,
                "too_many_streams",
                f"there are {self._of[who]} streams of this credential, and {len(self._open)} in all.",
                advice="Close some, or follow several things over one /api/live.",
                details={"own": self._of[who], "all": len(self._open)},
                headers={"Retry-After": "5"},
            )
        found = Connection(self, who, is_allowed, self.clock.awake_s())
        self._open.add(found)
        self._of[who] += 1
        return found

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self.hub.leave(connection.reader)
        if connection in self._open:
            self._open.discard(connection)
            self._of[connection.who] -= 1
            if not self._of[connection.who]:
                del self._of[connection.who]
        if not self._open:
            self._none.set()

    async def until_left(self) -> None:
        """Wait a little for connections to end, once the server drains."""
        with contextlib.suppress(TookTooLong):
            await within(self._gone(), LEAVE_S, self.clock)

    async def close(self) -> None:
        """Say goodbye, wait a little, cut off what is left, and close the hub."""
        self._draining.set()
        await self.until_left()
        self._enough.set()
        for one in list(self._open):
            one.cancel()
        for task in (*self._checks, *self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._checks, return_exceptions=True)
        await self.hub.close()

    async def _gone(self) -> None:
        while self._open:
            self._none.clear()
            await self._none.wait()

    async def _say_goodbye(self) -> None:
        """When the server drains, let all streams end by themselves: it would wait for them."""
        await self._draining.wait()
        for one in self._open:
            one.reader.finish(BYE)
            one.reader.wake()

    async def _look_after(self) -> None:
        while not self._enough.is_set():
            now_s = self.clock.awake_s()
            for one in list(self._open):
                self._look_at(one, now_s)
            await self.clock.wait_s(LOOK_S, self._enough)

    def _look_at(self, one: Connection, now_s: float) -> None:
        if one.writing_since_s is not None:
            one.stalls(now_s)
        elif now_s - one.wrote_s >= KEEP_ALIVE_S:
            one.is_quiet = True
            one.reader.wake()
        if now_s - one.checked_s >= CHECK_S:
            one.checked_s = now_s
            task = asyncio.create_task(self._check(one))
            self._checks.add(task)
            task.add_done_callback(self._checks.discard)

    async def _check(self, one: Connection) -> None:
        """Let a stream go whose credential was revoked, or has expired."""
        try:
            is_allowed = await one.is_allowed()
        except OnwardError as error:  # it is asked again
            log.warning("a credential could not be checked: %s", error)
            return
        if not is_allowed:
            one.reader.finish(DENIED)
            one.reader.wake()
