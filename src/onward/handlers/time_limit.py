"""The time limit of an attempt, which stands still while a call waits for its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from onward.clock import Clock


class Stopwatch:
    """Counts the time that an attempt works. Waiting until a limit has room for a call is not its work."""

    def __init__(self) -> None:
        self._waiting = 0
        self._stands, self._runs = asyncio.Event(), asyncio.Event()
        self._runs.set()

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Inside the block no time passes for the attempt."""
        self._waiting += 1
        self._stands.set()
        self._runs.clear()
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._stands.clear()
                self._runs.set()

    async def wait_s(self, seconds: float, clock: Clock) -> None:
        """Return when the attempt has worked for so long."""
        left_s = seconds
        while True:
            await self._runs.wait()
            began_s = clock.awake_s()
            await clock.wait_s(left_s, self._stands)
            if not self._stands.is_set():
                return
            left_s = max(0.0, left_s - (clock.awake_s() - began_s))
