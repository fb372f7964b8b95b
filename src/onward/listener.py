"""A server that closes all its connections when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

LOOPBACK = "127.0.0.1"
TURNS = 10
"""Turns of the loop: more than a connection needs to be handed over once it is accepted, or to be closed."""
GONE = OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
"""Errors of a client that disconnects early, or takes too long."""
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(
    serve: Serve,
    host: str = LOOPBACK,
    port: int = 0,
    *,
    limit: int = 64 * 1024,
    limit_s: float | None = None,
    connections_max: int | None = None,
) -> AsyncIterator[int]:
    """Serve every connection inside the block; yields the port.

    A connection is closed when `serve` returns and all is sent, and broken if that takes longer than
    `limit_s`. One too many (`connections_max`) is broken at once. At the end of the block all are broken, and
    the first error of `serve` that no client can cause is raised.
    """
    conversations = _Conversations(serve, limit_s, connections_max)
    server = await asyncio.start_server(conversations.accept, host, port, limit=limit)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        try:
            await _stop_accepting(server)
        finally:
            server.close()
            await conversations.end()
    if conversations.error is not None:
        raise conversations.error


async def _stop_accepting(server: asyncio.Server) -> None:
    # asyncio loses what is accepted while its server closes: it fails to give it a transport, does not report
    # that, and leaves the socket to the garbage collector. So nothing may be on its way.
    for socket in server.sockets:
        asyncio.get_running_loop().remove_reader(socket)
    await _turns()


class _Conversations:
    """The connections of one server."""

    def __init__(self, serve: Serve, limit_s: float | None, connections_max: int | None) -> None:
        self._serve, self._limit_s, self._connections_max = serve, limit_s, connections_max
        self._open: set[asyncio.Task[None]] = set()
        self.error: Exception | None = None

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection, or break it if there are too many."""
        if self._connections_max is not None and len(self._open) >= self._connections_max:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._converse(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def end(self) -> None:
        """Break every connection."""
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        await _turns()  # until what was broken is closed

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._limit_s):
                await self._serve(reader, writer)
                writer.close()
                await writer.wait_closed()
        except GONE:
            pass
        except Exception as error:
            self.error = self.error or error
        finally:
            with suppress(AttributeError):  # which asyncio raises if it has closed the connection already
                writer.transport.abort()


async def _turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)
