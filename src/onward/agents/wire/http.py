"""The HTTP client of all providers: one request, its response read in pieces, within time and size limits.

It follows no redirect, so that no key goes to another host; it takes no settings from the environment, no
cookies and no compressed bodies. The limits run on the clock that is passed in. It never retries.

Every request has a connection of its own. A server may close an idle one at the moment it is used again; the
request then fails, and since nobody knows whether it was served, it must be counted as if it had cost its
maximum. Beside that, and beside the seconds that an answer takes, a handshake is cheap.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
import msgspec
from yarl import URL

from onward.agents.model.failure import FailureKind
from onward.agents.wire.limits import TimeLimits, patience
from onward.agents.wire.trouble import Trouble
from onward.clock import Clock, within

BODY_BYTES_MAX = 64 * 1024 * 1024
ERROR_BYTES_MAX = 64 * 1024
PIECE_BYTES = 64 * 1024


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """One request; its headers hold the key, so it has no readable form."""

    url: str
    headers: Mapping[str, str]
    body: bytes
    method: str = "POST"
    limits: TimeLimits

    def __repr__(self) -> str:
        return f"Outgoing(to {URL(self.url).host})"


class Http:
    """Makes connections. It belongs to one event loop at a time, and may be used again after `close`."""

    def __init__(self, clock: Clock, *, body_bytes_max: int = BODY_BYTES_MAX) -> None:
        self._clock, self._body_bytes_max = clock, body_bytes_max
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @asynccontextmanager
    async def post(self, outgoing: Outgoing) -> AsyncIterator[Incoming]:
        """Send it; yields the response as soon as its head has come, and drops it at the end of the block."""
        began_s = self._clock.awake_s()
        response = await self._answered(outgoing, began_s)
        try:
            yield Incoming(response, self._clock, outgoing.limits, began_s, self._body_bytes_max)
        finally:
            response.close()

    async def _answered(self, outgoing: Outgoing, began_s: float) -> aiohttp.ClientResponse:
        host, limits = URL(outgoing.url).host, outgoing.limits
        sending = self._open_session().request(
            outgoing.method,
            URL(outgoing.url, encoded=True),
            headers=outgoing.headers,
            data=outgoing.body,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_s),
        )
        wait_s = min(limits.connect_s + limits.first_byte_s, limits.total_s)
        try:
            return await within(sending, wait_s, self._clock)
        except TimeoutError as error:
            if isinstance(error, aiohttp.ServerTimeoutError):
                what = f"could not be reached: no connection to {host} within {limits.connect_s:g} s"
                raise Trouble(FailureKind.TRANSIENT, what, is_sent=False) from None
            what = f"did not answer within {wait_s:g} s"
            raise Trouble(FailureKind.TRANSIENT, what, is_sent=True) from None
        except aiohttp.ClientConnectorError as error:
            what = f"could not be reached: {_reason(error)} ({host})"
            raise Trouble(FailureKind.TRANSIENT, what, is_sent=False) from None
        except aiohttp.InvalidURL:
            raise Trouble(FailureKind.REQUEST, "has a base_url that is no address", is_sent=False) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            what = f"closed the connection before it answered ({_reason(error)})"
            raise Trouble(FailureKind.TRANSIENT, what, is_sent=True) from None

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                headers={"Accept-Encoding": "identity", "User-Agent": "onward"},
            )
        return self._session


class Incoming:
    """A response whose head has come."""

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        clock: Clock,
        limits: TimeLimits,
        began_s: float,
        body_bytes_max: int,
    ) -> None:
        self._response, self._clock, self._limits = response, clock, limits
        self._began_s, self._left = began_s, body_bytes_max
        self._is_first = True
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}

    async def read(self) -> bytes:
        """The next piece of the body, empty at its end; Trouble if it breaks off, stalls, or has no end."""
        self._check_encoding()
        piece = await self._next(*self._patience())
        self._is_first = False
        self._left -= len(piece)
        if self._left < 0:
            raise Trouble(FailureKind.CUT, "sent more than any answer has", is_sent=True)
        return piece

    async def beginning(self) -> bytes:
        """The first part of an error's body; whatever came, if the rest does not."""
        read = bytearray()
        try:
            while len(read) < ERROR_BYTES_MAX and (piece := await self.read()):
                read += piece
        except Trouble:
            pass  # the status has said enough
        return bytes(read[:ERROR_BYTES_MAX])

    def _patience(self) -> tuple[float, str]:
        spent_s = self._clock.awake_s() - self._began_s
        return patience(self._limits, spent_s=spent_s, is_first=self._is_first)

    async def _next(self, wait_s: float, late: str) -> bytes:
        """The next piece; `late` says what is wrong if it does not come in time."""
        content = self._response.content
        try:
            if wait_s > 0 and (piece := content.read_nowait(PIECE_BYTES)):
                return piece  # most of the time; an alarm would cost more than the reading
            return await within(content.read(PIECE_BYTES), wait_s, self._clock)
        except TimeoutError:
            raise Trouble(FailureKind.CUT, late, is_sent=True) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            what = f"broke off its answer ({_reason(error)})"
            raise Trouble(FailureKind.CUT, what, is_sent=True) from None

    def _check_encoding(self) -> None:
        if self.headers.get("content-encoding", "identity").lower() not in ("identity", ""):
            what = "sent a compressed body, which was not asked for"
            raise Trouble(FailureKind.REQUEST, what, is_sent=True)


def _reason(error: BaseException) -> str:
    """Why it failed, in words that hold nothing of the request."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its name cannot be resolved"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted"
    if isinstance(error, aiohttp.ClientSSLError):
        return "no secure connection can be made"
    found = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(found, OSError) and found.errno is not None and found.errno in errno.errorcode:
        return os.strerror(found.errno).lower()
    return "the connection was closed" if isinstance(error, aiohttp.ClientError) else "not HTTP"
