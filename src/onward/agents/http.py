"""The client of the providers whose formats we speak, and the HTTP below it. It never retries.

`WireModel` sends one request in the provider's format and streams the answer in our words. `Http` makes one
request and reads its response in pieces, within time and size limits. It follows no redirect, so that no
key goes to another host; it takes no settings from the environment, no cookies and no compressed bodies.
The limits run on the clock that is passed in.

Every request has a connection of its own. A server may close an idle one at the moment it is used again;
the request then fails, and since nobody knows whether it was served, it must be counted as if it had cost
its maximum. Compared with that, and with the seconds that an answer takes, a handshake is cheap.

This file imports aiohttp, so it is itself imported with the first request.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec
from yarl import URL

from onward.agents.anthropic import AnthropicFormat
from onward.agents.google import GoogleFormat
from onward.agents.model import FailureKind, ModelFailed, ModelRequest, Streamed
from onward.agents.openai import OpenAIFormat
from onward.agents.providers import KeyMissing, Keys, Provider, TimeLimits, is_reference, patience, split_name
from onward.agents.refusal import AskedModel, ProviderResponse, failed
from onward.agents.wire import ExchangeFailed, ResponseReader, WireFormat
from onward.clock import Clock, within


class WireModel:
    """The models of one provider, in the format that it speaks."""

    def __init__(self, provider: Provider, wire: WireFormat, *, http: Http, keys: Keys, clock: Clock) -> None:
        self._provider, self._wire = provider, wire
        self._http, self._keys, self._clock = http, keys, clock

    async def stream(
        self, request: ModelRequest, *, idempotency_key: str | None = None
    ) -> AsyncGenerator[Streamed, None]:
        """As the port says."""
        asked = AskedModel(*split_name(request.model))
        secrets, outgoing = await self._outgoing(request, asked, idempotency_key)
        reading = ResponseReader(request, asked, self._wire.answer(asked.model), secrets)
        try:
            async with self._http.post(outgoing) as incoming:
                reading.begin(ProviderResponse(status=incoming.status, headers=incoming.headers))
                if not reading.is_answer:
                    raise ModelFailed(reading.refused(await incoming.beginning(), self._clock.now_us()))
                trouble = None
                try:
                    while not reading.is_done and (
                        received := await incoming.read(is_whole=reading.is_whole)
                    ):
                        for piece in reading.feed(received):
                            yield piece
                except ExchangeFailed as broken:
                    trouble = broken
                for piece in reading.end(trouble):
                    yield piece
        except ExchangeFailed as trouble:
            raise ModelFailed(reading.broken(trouble)) from None

    async def close(self) -> None:
        """As the port says."""
        await self._http.close()

    async def _outgoing(
        self, request: ModelRequest, asked: AskedModel, idempotency_key: str | None
    ) -> tuple[Sequence[str], Outgoing]:
        """The request with its key, and all secrets in it."""
        provider = self._provider
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if idempotency_key is not None:
            headers["Idempotency-Key"] = quote(idempotency_key, safe="/#:")
        try:
            key = await self._keys.find(provider.key, is_needed=provider.needs_key)
            headers |= self._wire.headers(key)
            given = {name.lower() for name in provider.headers}
            headers = {name: value for name, value in headers.items() if name.lower() not in given}
            for name, value in provider.headers.items():
                headers[name] = await self._keys.value(value)
        except KeyMissing as missing:
            what = f"cannot be used: {missing}"
            raise ModelFailed(failed(asked, FailureKind.AUTH, what)) from None
        outgoing = Outgoing(
            url=self._wire.address(asked.model),
            headers=headers,
            body=self._body(request, asked),
            limits=provider.limits,
        )
        secret = [headers[name] for name, text in provider.headers.items() if is_reference(text)]
        return [key, *secret], outgoing

    def _body(self, request: ModelRequest, asked: AskedModel) -> bytes:
        try:
            return self._wire.body(request, asked.model)
        except UnicodeEncodeError:
            what = "cannot be used: the request contains a lone surrogate, which is not a valid character"
            raise ModelFailed(failed(asked, FailureKind.REQUEST, what)) from None


WIRES: Mapping[str, Callable[[Provider], WireFormat]] = {
    "openai": OpenAIFormat,
    "anthropic": AnthropicFormat,
    "google": GoogleFormat,
}


def wire_format(provider: Provider) -> WireFormat:
    """The format that a provider speaks."""
    return WIRES[provider.format](provider)


LATE_S = 5.0
"""How long to wait, after a whole answer, for the tokens that were counted: they come at once or never."""
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


FindProxy = Callable[[str], str | None]


def no_proxy(url: str) -> str | None:
    """Everything is asked directly."""
    return None


class Http:
    """Makes connections. It belongs to one event loop at a time, and may be used again after `close`."""

    def __init__(
        self, clock: Clock, *, body_bytes_max: int = BODY_BYTES_MAX, proxy: FindProxy = no_proxy
    ) -> None:
        """`proxy` finds the proxy for an address; nothing else is taken from the environment."""
        self._clock, self._body_bytes_max, self._proxy = clock, body_bytes_max, proxy
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
        host, limits, proxy = URL(outgoing.url).host, outgoing.limits, self._proxy(outgoing.url)
        if proxy is not None:
            host = f"{host} through the proxy {_proxy_host(proxy)}"
        sending = self._open_session().request(
            outgoing.method,
            URL(outgoing.url, encoded=True),
            headers=outgoing.headers,
            data=outgoing.body,
            proxy=proxy,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_s),
        )
        wait_s = min(limits.connect_s + limits.first_byte_s, limits.total_s)
        try:
            return await within(sending, wait_s, self._clock)
        except TimeoutError as error:
            if isinstance(error, aiohttp.ServerTimeoutError):
                what = f"could not be reached: no connection to {host} within {limits.connect_s:g} s"
                raise ExchangeFailed(FailureKind.TRANSIENT, what, is_sent=False) from None
            what = f"did not answer within {wait_s:g} s"
            raise ExchangeFailed(FailureKind.TRANSIENT, what, is_sent=True) from None
        except aiohttp.ClientHttpProxyError as error:  # to CONNECT: nothing has been sent through it
            what = f"could not be reached: the response was {error.status} ({host})"
            raise ExchangeFailed(FailureKind.TRANSIENT, what, is_sent=False) from None
        except aiohttp.ClientConnectorError as error:
            what = f"could not be reached: {_reason(error)} ({host})"
            raise ExchangeFailed(FailureKind.TRANSIENT, what, is_sent=False) from None
        except aiohttp.InvalidURL:
            raise ExchangeFailed(
                FailureKind.REQUEST, "has a base_url that is not a valid address", is_sent=False
            ) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            what = f"closed the connection without a response ({_reason(error)})"
            raise ExchangeFailed(FailureKind.TRANSIENT, what, is_sent=True) from None

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


def _proxy_host(proxy: str) -> str:
    """The proxy without its password; refuses one that is spoken to in another way."""
    parts = urlsplit(proxy)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        what = "cannot be used: HTTPS_PROXY or HTTP_PROXY is not a valid address, such as http://proxy:3128"
        raise ExchangeFailed(FailureKind.REQUEST, what, is_sent=False)
    return parts.hostname


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
        self._whole_s: float | None = None
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.headers.items()}

    async def read(self, *, is_whole: bool = False) -> bytes:
        """The next piece of the body, empty at its end; Trouble if it breaks off, stalls, or has no end.

        `is_whole`: the answer has come, and what may follow is not waited for longer than LATE_S.
        """
        self._check_encoding()
        if is_whole and self._whole_s is None:
            self._whole_s = self._clock.awake_s()
        piece = await self._next(*self._patience())
        self._is_first = False
        self._left -= len(piece)
        if self._left < 0:
            raise ExchangeFailed(FailureKind.CUT, "sent a response that is too large", is_sent=True)
        return piece

    async def beginning(self) -> bytes:
        """The first part of an error's body; whatever came, if the rest does not."""
        read = bytearray()
        try:
            while len(read) < ERROR_BYTES_MAX and (piece := await self.read()):
                read += piece
        except ExchangeFailed:
            pass  # the status has said enough
        return bytes(read[:ERROR_BYTES_MAX])

    def _patience(self) -> tuple[float, str]:
        now_s = self._clock.awake_s()
        wait_s, late = patience(self._limits, spent_s=now_s - self._began_s, is_first=self._is_first)
        if self._whole_s is None:
            return wait_s, late
        return min(wait_s, self._whole_s + LATE_S - now_s), late

    async def _next(self, wait_s: float, late: str) -> bytes:
        """The next piece; `late` says what is wrong if it does not come in time."""
        content = self._response.content
        try:
            if wait_s > 0 and (piece := content.read_nowait(PIECE_BYTES)):
                return piece  # most of the time; an alarm would cost more than the reading
            return await within(content.read(PIECE_BYTES), wait_s, self._clock)
        except TimeoutError:
            raise ExchangeFailed(FailureKind.CUT, late, is_sent=True) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            what = f"ended its response early ({_reason(error)})"
            raise ExchangeFailed(FailureKind.CUT, what, is_sent=True) from None

    def _check_encoding(self) -> None:
        if self.headers.get("content-encoding", "identity").lower() not in ("identity", ""):
            what = "sent a compressed body, which was not requested"
            raise ExchangeFailed(FailureKind.REQUEST, what, is_sent=True)


def _reason(error: BaseException) -> str:
    """Why it failed, in words that hold nothing of the request."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "its host name cannot be resolved"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted"
    if isinstance(error, aiohttp.ClientSSLError):
        return "no secure connection can be established"
    found = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(found, OSError) and found.errno is not None and found.errno in errno.errorcode:
        return os.strerror(found.errno).lower()
    return "the connection was closed" if isinstance(error, aiohttp.ClientError) else "not HTTP"
