"""One at a time, in the order in which they came."""

from __future__ import annotations

import asyncio
from collections import deque


class Turns:
    """Like `asyncio.Lock`, for what is nearly always free: taking a free turn creates no coroutine.

    if turns.is_taken:
        await turns.wait()
    turns.is_taken = True
    try: ...
    finally: turns.end()
    """

    __slots__ = ("_waiting", "is_taken")

    def __init__(self) -> None:
        self.is_taken = False
        self._waiting: deque[asyncio.Future[None]] | None = None

    async def wait(self) -> None:
        """Return when it is the caller's turn: nobody else can take it in between."""
        waiting = asyncio.get_running_loop().create_future()
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(waiting)
        try:
            await waiting
        except asyncio.CancelledError:
            if not waiting.cancelled():  # it had just become the caller's turn
                self.end()
            raise

    def end(self) -> None:
        """The turn is over: it is the next one's, if somebody waits."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return
        self.is_taken = False
