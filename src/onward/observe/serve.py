"""A very small HTTP server for read-only pages.

A client can neither block the process nor fill its memory: a request is one short head, has a few seconds,
and the number of connections is limited.
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

from onward.errors import InvalidInput
from onward.listener import GONE, LOOPBACK, listening
from onward.model.values import PORT, shown

HEAD_BYTES_MAX = 8 * 1024
REQUEST_S_MAX = 10.0
CONNECTIONS_MAX = 32
PLAIN = "text/plain; charset=utf-8"
log = logging.getLogger("onward.metrics")


class Reply(msgspec.Struct, frozen=True):
    """What is sent back."""

    status: int
    content_type: str
    body: str


def _refusal(status: HTTPStatus) -> Reply:
    return Reply(status, PLAIN, f"{status.phrase}\n")


NOT_FOUND = _refusal(HTTPStatus.NOT_FOUND)
_BAD = _refusal(HTTPStatus.BAD_REQUEST)
_TOO_LARGE = _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
_NO_METHOD = _refusal(HTTPStatus.METHOD_NOT_ALLOWED)
_BROKEN = _refusal(HTTPStatus.INTERNAL_SERVER_ERROR)
Answer = Callable[[str], Awaitable[Reply]]


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
        return f"port {port} of {host} may not be opened; choose one above 1023."
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

    async def _replied(self, reader: asyncio.StreamReader) -> tuple[Reply, bool]:
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


async def _send(writer: asyncio.StreamWriter, reply: Reply, with_body: bool) -> None:
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
