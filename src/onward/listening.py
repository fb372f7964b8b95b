"""A server of connections, which leaves none of them open behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

LOOPBACK = "127.0.0.1"
TURNS = 10
"""Of the loop: more than a connection takes from being accepted to being handed over, or to be closed."""
GONE = ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
"""What a client causes that leaves in the middle."""
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(
    serve: Serve, host: str = LOOPBACK, port: int = 0, *, limit: int = 64 * 1024, most: int | None = None
) -> AsyncIterator[int]:
    """Serve every connection inside the block, at most so many at a time; yields the port.

    A connection is closed when `serve` returns. At the end of the block all are broken, and an error of
    `serve` that a client cannot cause is raised.
    """
    conversations = _Conversations(serve, most)
    server = await asyncio.start_server(conversations.accept, host, port, limit=limit)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await _stop_accepting(server)
        server.close()
        await conversations.end()
    for error in conversations.errors:
        raise error


async def _stop_accepting(server: asyncio.Server) -> None:
    # asyncio loses what is accepted while its server closes: it fails to give it a transport (an assertion
    # that nobody sees) and leaves the socket to the garbage collector. So nothing may be on its way.
    for socket in server.sockets:
        asyncio.get_running_loop().remove_reader(socket)
    await _turns()


class _Conversations:
    """The connections of one server."""

    def __init__(self, serve: Serve, most: int | None) -> None:
        self._serve = serve
        self._most = most
        self._open: set[asyncio.Task[None]] = set()
        self.errors: list[Exception] = []

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection, or break it if there are too many."""
        if self._most is not None and len(self._open) >= self._most:
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
        is_closed = False  # asyncio forbids to abort what it has closed
        try:
            with suppress(*GONE):
                await self._serve(reader, writer)
                writer.close()
                await writer.wait_closed()
                is_closed = True
        except Exception as error:
            self.errors.append(error)
        finally:
            if not is_closed:
                writer.transport.abort()


async def _turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)
