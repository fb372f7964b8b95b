"""A stream as `text/event-stream`: one write per poll, and one for each page of the backlog."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from onward.server.feeds.streams import Connection

RETRY = b"retry: 1000\n\n"
"""How long a browser waits before it comes back, in milliseconds."""
QUIET = b":\n\n"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class EventStream(Response):
    """A reply that goes on until its reader ends or the client hangs up."""

    media_type = "text/event-stream"

    def __init__(self, connection: Connection) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._connection = connection

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what the reader has, as long as both are there."""
        connection, reader = self._connection, self._connection.reader
        hearing = asyncio.create_task(_wait_for_end(receive, connection))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            text, has_more = RETRY, True
            while has_more and not reader.is_closed:
                if text:
                    await connection.write(lambda: send(_body(text, has_more=True)))  # noqa: B023 - awaited here
                await reader.wait()
                batches, last = reader.take()
                text, has_more = b"".join([batch.sse for batch in batches]), last is None
                if last is not None:
                    text += last.sse()
                elif not text and connection.is_quiet:
                    text = QUIET
            if not reader.is_closed:
                await connection.write(lambda: send(_body(text, has_more=False)))
        finally:
            hearing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await hearing
            connection.close()


def _body(text: bytes, *, has_more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": text, "more_body": has_more}


async def _wait_for_end(receive: Receive, connection: Connection) -> None:
    """Close the reader when the client hangs up."""
    while (await receive())["type"] != "http.disconnect":
        pass
    connection.reader.close()
