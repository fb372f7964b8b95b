"""HTTP/1.1: uvicorn's protocol, with the limits that it lacks.

The parser (llhttp) rejects what two parsers could read differently: a body with two lengths, a line
that is folded or ends with a bare line feed, a space before a colon. This module adds limits: the size of a
head and how long it may take, how many requests may be pipelined, and which request targets are valid. A
client over a limit gets a problem if no reply is in progress, and nothing more is read from it: after an
invalid request the start of the next one is unknown.

If a connection ends before its client has sent everything, the rest is read and discarded for a while.
If it closed at once, the system would reset the connection, and a client that still sends would lose the
reply.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from onward.server.app import HEADERS
from onward.server.problems import Problem, problem_reply

HEAD_BYTES_MAX = 16 * 1024
"""How large the request line and all headers may be."""
HEAD_S_MAX = 10.0
"""How long they may take."""
AHEAD_MAX = 16
"""How many requests may be sent before the first of them is answered."""
LINGER_S, LINGER_BYTES = 5.0, 16 * 1024 * 1024
"""How long, and how much, a client may still send after the reply that ends its connection."""


class StrictProtocol(HttpToolsProtocol):
    """One connection."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._late: asyncio.TimerHandle | None = None
        self._size = 0
        """Of the lines of the head that were read."""
        self._unread = 0
        """What came since the last end of a head or piece of a body; some may be a line without an end."""
        self._is_head = True
        """Whether a head is coming, and not the body behind it."""
        self._came = False
        """Whether what was received last ended a head, or had a piece of a body."""
        self._is_offer = False
        """Whether the head that was read asks for a protocol that is not spoken here."""
        self._problem = BAD
        self._cycles: deque[RequestResponseCycle] = deque()
        """The requests that are not answered yet, in their order."""
        self._lingering: asyncio.TimerHandle | None = None
        self._thrown_away = 0
        self._await_head()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._lingering is not None:
            self._thrown_away += len(data)
            if self._thrown_away > LINGER_BYTES:
                self.transport.close()
            return
        self._came = False
        self._unset_keepalive_if_required()
        try:
            self._read(data)
        except httptools.HttpParserError as error:
            if _is_ours(error):
                raise
            self._refuse()
            return
        if self._came:
            self._unread = 0
            self._head_came()
            return
        self._unread += len(data)
        if self._unread > HEAD_BYTES_MAX:
            self._problem = TOO_LARGE
            self._refuse()
        elif self._is_head and not self._is_answering:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        if self._lingering is not None:
            self._lingering.cancel()
        for cycle in self._cycles:  # uvicorn notifies only the newest: a stream before it would never end
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._size = 0
        if len(self.pipeline) >= AHEAD_MAX:
            raise ValueError("too many pipelined requests")

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._grow(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._grow(len(name) + len(value) + HEADER_EXTRA)
        if self._is_head:  # what comes behind the body was never looked at by the door
            super().on_header(name, value.strip(b" \t"))  # the parser leaves what is behind it

    def on_headers_complete(self) -> None:
        if not self.url.startswith(b"/") or b"#" in self.url:
            raise ValueError("the target is not a path")
        if self.parser.get_method() == b"CONNECT":  # the parser takes it for a wish that cannot be left out
            raise ValueError("this server is not a proxy")
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings not in ([], [b"chunked"]):
            raise ValueError("unknown transfer coding")
        if self.parser.get_http_version() not in ("1.0", "1.1"):
            raise ValueError("this HTTP version is not supported")
        if self.parser.should_upgrade() and not self._should_upgrade():
            self._is_offer = True
            return
        if self.parser.should_upgrade() and self._is_answering:
            raise ValueError("another protocol begins before the reply")
        self._is_head, self._came = False, True
        self._size = 0
        super().on_headers_complete()
        if not self.parser.should_upgrade():  # a WebSocket has no cycle of request and reply
            joined = Joined(self.transport, self.loop, self._end)
            self.cycle.transport = joined  # type: ignore[assignment]
            self._cycles.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        self._came = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._is_offer:
            return
        self._is_head = True
        self._size = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Take the next request. A body that nobody wants is not waited for."""
        self._cycles.popleft()
        if not self.pipeline and self.cycle.more_body:
            self.cycle.transport.close()
        elif self._lingering is None:
            super().on_response_complete()

    def _end(self) -> None:
        """Close the connection; one whose client still sends, once it had time to read the reply."""
        if self.cycle.more_body:
            self._linger()
        else:
            self.transport.close()

    def _linger(self) -> None:
        """Say nothing more, and throw away what still comes."""
        if self._lingering is not None or self.transport.is_closing():
            return
        self._unset_keepalive_if_required()
        self._lingering = self.loop.call_later(LINGER_S, self.transport.close)
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > HEAD_BYTES_MAX:
            self._problem = TOO_LARGE
            raise ValueError("the request head is too large")

    @property
    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _read(self, data: bytes) -> None:
        """Have it parsed. Where another protocol is asked for, the parser reads nothing behind the head.

        WebSocket is spoken from there. Of any other the head is read again, without that wish.
        """
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if not self._is_offer:
                    self._came = True
                    self.handle_websocket_upgrade()
                    return
                data = self._without_offer() + data[upgrade.args[0] :]
                self._is_offer = False
                self.parser = httptools.HttpRequestParser(self)
                # As uvicorn's own: else what follows `Connection: close` takes the reply before it away.
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def _without_offer(self) -> bytes:
        """The head that was read, without what it says about other protocols."""
        headers = [header for header in self.headers if header[0] not in OFFER]
        if any(name == b"connection" and b"close" in value.lower() for name, value in self.headers):
            headers.append((b"connection", b"close"))
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        version = self.parser.get_http_version().encode()
        return b"%b %b HTTP/%b\r\n%b\r\n" % (self.parser.get_method(), self.url, version, lines)

    def _refuse(self) -> None:
        self._head_came()
        is_broken = self._is_answering and not self.pipeline and _is_broken(self.cycle)
        if is_broken:
            self.cycle.disconnected = True  # what is still said of it goes nowhere
            self.cycle.waiting_for_100_continue = False
        if is_broken or not self._is_answering:
            self.transport.write(_refusal(self._problem))
            self._linger()
        else:
            self.transport.close()

    def _await_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEAD_S_MAX, self.transport.close)

    def _head_came(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class DeafWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket on which nothing that a client says is heard, read or kept."""

    def send_receive_event_to_app(self) -> None:
        """Forget what came. It was decoded, and what is no UTF-8 became a traceback in the log."""
        self.frames = []

    async def send(self, message: Any) -> None:
        """As uvicorn does it, which takes a handshake that was refused for one that was forgotten."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body", False):
            self.handshake_complete = True


class Joined:
    """What a reply is written to: the head waits for the first of the body, and both go in one packet.

    Without it every reply wakes its client twice. A head whose body does not follow at once goes alone.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, end: Callable[[], None]
    ) -> None:
        self._transport, self._loop, self._end = transport, loop, end
        self._head: bytes | None = None
        self._is_begun = False

    def write(self, data: bytes) -> None:
        """Send it, after the head if that waits."""
        if not self._is_begun and not data.startswith(CONTINUE):
            self._is_begun, self._head = True, data
            self._loop.call_soon(self.flush)
        elif self._head is None:
            self._transport.write(data)
        else:
            head, self._head = self._head, None
            self._transport.write(head + data)

    def flush(self) -> None:
        """Send the head if it still waits."""
        if self._head is not None:
            self.write(b"")

    def close(self) -> None:
        """End the connection when all was sent."""
        self.flush()
        self._end()

    def is_closing(self) -> bool:
        """Whether the connection is being closed."""
        return self._transport.is_closing()


CONTINUE = b"HTTP/1.1 100 "
OFFER = (b"connection", b"upgrade", b"http2-settings")
HEADER_EXTRA = len(b": \r\n")
BAD = Problem(400, "bad_request", "this is not an HTTP/1.1 request.")
TOO_LARGE = Problem(431, "head_too_large", f"the headers are larger than {HEAD_BYTES_MAX:,} bytes.")


def _is_ours(error: httptools.HttpParserError) -> bool:
    """Whether a callback failed for another reason than what was sent: a defect, which must be seen."""
    is_refusal = isinstance(error.__context__, ValueError | httptools.HttpParserError)
    return isinstance(error, httptools.HttpParserCallbackError) and not is_refusal


def _is_broken(cycle: RequestResponseCycle) -> bool:
    """Whether the body of a request has no end, and nothing was said of it yet."""
    return cycle.more_body and not cycle.response_started


def _refusal(problem: Problem) -> bytes:
    """A problem as it goes over the wire, and the end of the connection."""
    reply = problem_reply(problem, "unread")
    headers = [*reply.raw_headers, *HEADERS, (b"cache-control", b"no-store"), (b"connection", b"close")]
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    return STATUS_LINE[problem.status] + lines + b"\r\n" + bytes(reply.body)
