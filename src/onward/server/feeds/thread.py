"""The hub from the server's loop: the hub has its own loop, in the thread of the store that it reads.

Calls made here are executed there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from onward.clock import Clock, TookTooLong, within
from onward.server.feeds.hub import Hub
from onward.server.feeds.readers import Reader
from onward.server.feeds.wants import Want
from onward.store.reader import Reader as StoreReader

T = TypeVar("T")


class HubThread:
    """A hub, wherever its loop is. `ending` closes what it reads with, if that is its own."""

    def __init__(
        self, hub: Hub, ending: Callable[[], Awaitable[None]] | None = None, *, clock: Clock
    ) -> None:
        self._hub, self._ending, self._clock = hub, ending, clock

    @classmethod
    async def start(cls, reader: StoreReader[Hub], clock: Clock) -> HubThread:
        """Let the hub that a reader has made look; the reader is closed with it."""
        return cls(await reader.ask(Hub.begin), reader.close, clock=clock)

    async def follow(self, reader: Reader, wants: Sequence[Want], *, is_only: bool = False) -> bool:
        """As `Hub.follow`."""
        return await self._do(self._hub.follow(reader, wants, is_only=is_only))

    def leave(self, reader: Reader) -> None:
        """As `Hub.leave`; does not wait for it."""
        reader.close()
        with contextlib.suppress(RuntimeError):  # it is closed
            self._hub.loop.call_soon_threadsafe(self._hub.leave, reader)

    def poke(self) -> None:
        """As `Hub.poke`. It costs next to nothing while nobody follows anything, or a look is due anyway."""
        if self._hub.is_poked or not self._hub.watched:
            return
        with contextlib.suppress(RuntimeError):
            self._hub.loop.call_soon_threadsafe(self._hub.poke)

    async def settled(self, run: str, *, within_s: float) -> bool:
        """Wait until a run is neither queued nor worked on; tells whether it is, when time is over."""
        try:
            await within(self._do(self._hub.settled(run)), within_s, self._clock)
        except TookTooLong:
            return False
        return True

    async def close(self) -> None:
        """Stop looking, and close what it reads with."""
        with contextlib.suppress(RuntimeError):
            self._hub.loop.call_soon_threadsafe(self._hub.stop)
        if self._ending is not None:
            await self._ending()

    async def _do(self, work: Coroutine[Any, Any, T]) -> T:
        if self._hub.loop is asyncio.get_running_loop():
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._hub.loop))
