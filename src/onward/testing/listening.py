"""A server on loopback for tests, which leaves nothing open behind it."""

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
async def listening(serve: Serve, *, port: int = 0, limit: int = 64 * 1024) -> AsyncIterator[int]:
    """Serve every connection inside the block; yields the port.

    At the end of the block all connections are broken. An error of `serve` that a client cannot cause is
    raised then.
    """
    conversations: list[asyncio.Task[None]] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conversations.append(asyncio.create_task(_converse(serve, reader, writer)))

    server = await asyncio.start_server(accept, LOOPBACK, port, limit=limit)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await _turns()  # until what was just accepted has come here
        for conversation in conversations:
            conversation.cancel()
        ended = await asyncio.gather(*conversations, return_exceptions=True)
        await _turns()  # until what was broken is closed
    for error in ended:
        if isinstance(error, Exception):
            raise error


async def _converse(serve: Serve, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        with suppress(*GONE):
            await serve(reader, writer)
            writer.close()
            await writer.wait_closed()
    finally:
        writer.transport.abort()


async def _turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)
