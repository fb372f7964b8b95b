"""The pages that a worker serves: its metrics with the database's, and its health.

The HTTP server is very small and its pages are read-only. A client can neither block the process nor fill its
memory: a request is one short head, has a few seconds, and the number of connections is limited.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus

import msgspec

from onward.clock import Clock
from onward.errors import InvalidInput, OnwardError
from onward.listener import GONE, LOOPBACK, listening
from onward.model.values import PORT, shown
from onward.observe.figures import CONTENT_TYPE, Family, Sample, families_of, gauge, render
from onward.observe.metrics import Health, Metrics
from onward.store.port.runs import Measured

HEAD_BYTES_MAX = 8 * 1024
REQUEST_S_MAX = 10.0
CONNECTIONS_MAX = 32
PLAIN = "text/plain; charset=utf-8"
log = logging.getLogger("onward.metrics")


class PageReply(msgspec.Struct, frozen=True):
    """What is sent back."""

    status: int
    content_type: str
    body: str


def _refusal(status: HTTPStatus) -> PageReply:
    return PageReply(status, PLAIN, f"{status.phrase}\n")


NOT_FOUND = _refusal(HTTPStatus.NOT_FOUND)
_BAD = _refusal(HTTPStatus.BAD_REQUEST)
_TOO_LARGE = _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
_NO_METHOD = _refusal(HTTPStatus.METHOD_NOT_ALLOWED)
_BROKEN = _refusal(HTTPStatus.INTERNAL_SERVER_ERROR)
Answer = Callable[[str], Awaitable[PageReply]]


def address_of(text: str, flag: str) -> tuple[str, int]:
    """Parse `PORT` or `HOST:PORT`; without a host, only this machine. Port 0 picks a free one."""
    host, colon, port = text.rpartition(":")
    if not colon:
        host, port = LOOPBACK, text
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    is_plain = not any(mark in host for mark in " /@?#") and (":" not in host or _is_ipv6(host))
    try:
        if host and is_plain:
            return host, PORT.read(port)
    except ValueError:
        pass
    raise InvalidInput(
        f"{flag} {shown(text)} is not a port or HOST:PORT; write 9464, 127.0.0.1:9464 or [::1]:9464."
    )


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False


@asynccontextmanager
async def serving(address: tuple[str, int], answer: Answer, flag: str) -> AsyncIterator[str]:
    """Serve inside the block; yields the address, such as `http://127.0.0.1:9464`."""
    host, port = address
    answering = _Answering(answer)
    async with AsyncExitStack() as stack:
        try:
            bound = await stack.enter_async_context(
                listening(
                    answering.serve,
                    host,
                    port,
                    limit=HEAD_BYTES_MAX,
                    limit_s=REQUEST_S_MAX,
                    connections_max=CONNECTIONS_MAX,
                )
            )
        except OSError as error:
            raise InvalidInput(f"{flag}: {_cannot(error, host, port)}") from None
        yield f"http://{f'[{host}]' if ':' in host else host}:{bound}"


def _cannot(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use; choose another one."
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"port {port} of {host} needs more privileges; choose a port above 1023."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine; choose one of its own."
    return f"cannot listen on port {port} of {host} ({error.strerror or error}); choose another address."


class _Answering:
    """Answers requests, one on each connection."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _send(writer, *await self._replied(reader))
        except GONE:
            raise
        except Exception:  # what a client asked for must not end the process at its close
            log.exception("a page could not be sent")

    async def _replied(self, reader: asyncio.StreamReader) -> tuple[PageReply, bool]:
        """What to send, and whether with its body."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _TOO_LARGE, True
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or not words[1].startswith(b"/"):
            return _BAD, True
        if words[0] not in (b"GET", b"HEAD"):
            return _NO_METHOD, True
        path = words[1].partition(b"?")[0].decode("latin-1")
        try:
            reply = await self._answer(path)
        except Exception:
            log.exception("the page %s could not be rendered", path)
            reply = _BROKEN
        return reply, words[0] == b"GET"


async def _send(writer: asyncio.StreamWriter, reply: PageReply, with_body: bool) -> None:
    body = reply.body.encode()
    head = (
        f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}\r\n"
        f"Content-Type: {reply.content_type}\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\n"
        + ("Allow: GET, HEAD\r\n" if reply is _NO_METHOD else "")
        + "Connection: close\r\n\r\n"
    )
    writer.write(head.encode() + (body if with_body else b""))
    await writer.drain()


REFRESH_S = 5.0
PATIENCE_S = 3.0
"""After this time, a page is sent without the database's numbers."""


class Pages:
    """Serves `/metrics` and `/healthz`. A request measures the database, at most once per `REFRESH_S`."""

    def __init__(
        self,
        metrics: Metrics,
        health: Health,
        measure: Callable[[], Awaitable[Measured]],
        clock: Clock,
        version: str,
    ) -> None:
        self._metrics, self._health, self._measure, self._clock = metrics, health, measure, clock
        self._version, self._began_us = version, clock.now_us()
        self._found: Measured | None = None
        self._asked_s: float | None = None
        self._looking: asyncio.Task[None] | None = None

    async def answer(self, path: str) -> PageReply:
        """The page of a path."""
        if path == "/metrics":
            return PageReply(200, CONTENT_TYPE, await self._page())
        if path == "/healthz":
            fault = self._health.fault(self._clock.awake_s())
            return PageReply(200, PLAIN, "ok\n") if fault is None else PageReply(503, PLAIN, f"{fault}\n")
        return NOT_FOUND

    async def _page(self) -> str:
        await self._refresh()
        fault, found = self._health.fault(self._clock.awake_s()), self._found
        families = [
            Family("onward_build_info", "gauge", "Its version.", [Sample(1, {"version": self._version})]),
            gauge(
                "onward_start_time_seconds",
                "When this process started, in seconds since 1970.",
                self._began_us / 1_000_000,
            ),
            gauge("onward_healthy", "1 when /healthz reports the process as healthy, else 0.", fault is None),
            *self._metrics.families(),
            gauge("onward_database_up", "1 when the database could be measured, else 0.", found is not None),
        ]
        return render([*families, *(() if found is None else families_of(found))])

    async def _refresh(self) -> None:
        """Get recent numbers, or none; of many requests at once, one measures."""
        now_s = self._clock.awake_s()
        if self._looking is None and (self._asked_s is None or now_s - self._asked_s >= REFRESH_S):
            self._asked_s = now_s
            self._looking = asyncio.create_task(self._look())
        if self._looking is not None:
            done, _ = await asyncio.wait([self._looking], timeout=PATIENCE_S)
            if not done:
                self._found = None

    async def _look(self) -> None:
        try:
            self._found = await self._measure()
        except OnwardError:
            self._found = None  # onward_database_up becomes 0
        finally:
            self._looking = None

    async def aclose(self) -> None:
        """Stop looking."""
        looking = self._looking
        if looking is not None:
            looking.cancel()
            await asyncio.wait([looking])
