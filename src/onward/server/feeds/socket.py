"""`/api/live`: everything that a page follows, over one WebSocket. It is read-only.

A message is a JSON array of frames, all that one poll has found. The address names what the socket follows;
to follow something else, a page opens another socket.
"""

from __future__ import annotations

import asyncio
import contextlib

from starlette.websockets import WebSocket, WebSocketDisconnect

from onward.server.feeds.frames import Batch, Frame, live_message
from onward.server.feeds.streams import Connection

CODES = {"bye": 1001, "cut": 1013, "denied": 1008}
"""How the socket is closed after its last frame; all else is a normal end."""


async def serve_live(connection: Connection, socket: WebSocket) -> None:
    """Send what the reader has until it ends or the other side hangs up."""
    reader = connection.reader
    hearing = asyncio.create_task(_wait_for_end(socket, connection))
    try:
        last: Frame | None = None
        while last is None and not reader.is_closed:
            await reader.wait()
            batches, last = reader.take()
            told = [*batches, Batch([last])] if last is not None else batches
            if told and not reader.is_closed:
                message = live_message(told).decode()
                await connection.write(lambda: socket.send_text(message))  # noqa: B023 - awaited here
            elif connection.is_quiet:
                connection.is_quiet = False  # the protocol pings by itself
        if last is not None and not reader.is_closed:
            await socket.close(CODES.get(last.event, 1000))
    except (WebSocketDisconnect, RuntimeError):
        pass  # it hung up while it was written to
    finally:
        hearing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await hearing
        connection.close()


async def _wait_for_end(socket: WebSocket, connection: Connection) -> None:
    """Close the reader when the other side hangs up. What it sends is not heard."""
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass
    connection.reader.close()
