"""Being told that a run may be due, so that nobody has to wait for the next look.

The notice carries nothing and promises nothing: a lost connection loses notices, and looking goes on. Behind
a pooler there are none: the session that listens would be anybody's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import psycopg

from onward.errors import StoreError
from onward.store.postgres.link.connection import connect
from onward.store.postgres.link.server import Server

RETRY_S = 1.0


class Listener:
    """Calls `on_due` at every notice, as long as it is started, reconnecting when it must."""

    def __init__(self, server: Server, on_due: Callable[[], None]) -> None:
        self._server, self._on_due = server, on_due
        self._task: asyncio.Task[None] | None = None
        self._is_clear = asyncio.Event()

    async def start(self) -> None:
        """Return when notices are heard, or when it is clear that they are not, for now."""
        self._task = asyncio.create_task(self._listen())
        self._server.connected.append(self)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_clear.wait(), RETRY_S)

    async def stop(self) -> None:
        """Hear nothing any more."""
        if self._task is not None:
            self._server.connected.remove(self)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def leave(self) -> None:
        """Listen to whatever server the address leads to now."""
        if self._task is not None:
            self._task.cancel()
            self._task = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        while True:
            with contextlib.suppress(StoreError, psycopg.Error):  # gone; looking goes on meanwhile
                async with await connect(self._server.address) as session:
                    if session.is_pooled:
                        self._is_clear.set()
                        return
                    await session.execute(b"LISTEN onward_due")
                    self._is_clear.set()
                    self._on_due()  # what came before this was not heard
                    async for _ in session.notifies():
                        self._on_due()
            await asyncio.sleep(RETRY_S)
