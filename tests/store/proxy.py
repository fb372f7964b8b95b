"""A TCP proxy before a server, which loses what passes through it at a chosen moment."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from enum import StrEnum
from typing import Any, Self
from urllib.parse import urlsplit

from onward.listener import listening

PATIENCE_S = 45


class Loss(StrEnum):
    """What becomes of the next message."""

    REQUEST = "the connection breaks before the server hears of it"
    REPLY = "the server does it, and the connection breaks before anybody hears of that"
    SILENCE = "it is swallowed, and the connection stays"


class Trips:
    """Counts the answers that pass a proxy: `proxy.alter = trips`."""

    # What PostgreSQL says once for all that was sent together.
    READY = b"Z\x00\x00\x00\x05"

    def __init__(self) -> None:
        self.number = 0

    def __call__(self, data: bytes) -> bytes:
        self.number += data.count(self.READY)
        return data


class Proxy:
    """Stands before the server of a PostgreSQL URL; `url` is the way through the proxy."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.lead_to(url)
        self._loss: Loss | None = None
        self._passing = 0
        self._listening = AsyncExitStack()
        self.port = 0
        self.connections = self.losses = 0
        self.lost = asyncio.Event()
        self.alter: Callable[[bytes], bytes] = lambda data: data
        """What becomes of the server's words on their way."""

    @property
    def url(self) -> str:
        parts = urlsplit(self._url)
        return self._url.replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{self.port}")

    def lead_to(self, url: str) -> None:
        """Lead new connections to another server; those there are stay where they are."""
        parts = urlsplit(url)
        assert parts.hostname
        assert parts.port
        self._target = (parts.hostname, parts.port)

    async def open(self) -> None:
        """Take connections, always at the same port."""
        self.port = await self._listening.enter_async_context(listening(self._serve, port=self.port))

    async def close(self) -> None:
        """Take no connections, and break those there are."""
        await self._listening.aclose()

    def lose(self, loss: Loss | None, *, behind: int = 0) -> None:
        """Lose the next request, or its reply, `behind` so many that still pass; None loses nothing more."""
        self._loss, self._passing = loss, behind

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        target = await asyncio.open_connection(*self._target)  # refused while the server is being restarted
        try:
            await asyncio.gather(
                self._ask(reader, target[1], writer), self._answer(target[0], writer, target[1])
            )
        finally:
            target[1].transport.abort()

    async def _ask(
        self, reader: asyncio.StreamReader, there: asyncio.StreamWriter, back: asyncio.StreamWriter
    ) -> None:
        while data := await _read(reader):
            if self._loss is Loss.SILENCE:
                self._note_loss()
            elif self._is_lost(Loss.REQUEST):
                back.transport.abort()
                break
            else:
                there.write(data)
        there.transport.abort()

    async def _answer(
        self, reader: asyncio.StreamReader, back: asyncio.StreamWriter, there: asyncio.StreamWriter
    ) -> None:
        while data := await _read(reader):
            if self._is_lost(Loss.REPLY):
                there.transport.abort()
                break
            back.write(self.alter(data))
        back.transport.abort()

    def _is_lost(self, loss: Loss) -> bool:
        if self._loss is not loss:
            return False
        self._passing -= 1
        if self._passing >= 0:
            return False
        self._loss = None
        self._note_loss()
        return True

    def _note_loss(self) -> None:
        self.losses += 1
        self.lost.set()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(65536)
    except ConnectionError:
        return b""


class Network:
    """The way of one process to its database: a proxy in a thread of its own, for tests without a loop."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._proxy = Proxy(url)
        self._do(self._proxy.open())
        self.url = self._proxy.url

    def hang(self) -> None:
        """Swallow everything from now on; connections stay, and new ones are taken."""
        self._loop.call_soon_threadsafe(self._proxy.lose, Loss.SILENCE)

    def cut(self) -> None:
        """Break every connection, and take no new ones."""
        self._do(self._proxy.close())

    def heal(self) -> None:
        """Take connections again; those that were swallowed are broken."""
        self.cut()
        self._loop.call_soon_threadsafe(self._proxy.lose, None)
        self._do(self._proxy.open())

    def lead_to(self, url: str) -> None:
        """Lead new connections to another server; those there are stay where they are."""
        self._loop.call_soon_threadsafe(self._proxy.lead_to, url)

    def close(self) -> None:
        self._do(self._proxy.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, object]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)
