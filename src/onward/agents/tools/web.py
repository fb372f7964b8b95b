"""The tools http_get and http_send: two, because asking may be repeated and sending may not.

    url ──► parsed once ──► in the allow-list? ──► resolved once ──► all addresses checked ──► connected
             ▲                                                                                  │
             └───────────────────────── a redirect, three at most ──────────────────────────────┘

Where a request may go is decided in `web_addresses`; nothing is allowed by default. The address that is
connected to is one of those that were checked: no name is resolved a second time, and no other reader of
addresses is asked what an address means. The socket itself is created only for an address that was checked,
whatever a library makes of the host.

The client makes one request and reads the beginning of its response. It follows no redirect, keeps no
cookie, takes nothing from the environment and accepts nothing compressed. It is aiohttp, so this file is
imported only where the tools are set up.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from onward.agents.model import Tool
from onward.agents.tools.port import (
    CutOff,
    ToolAnswer,
    ToolRefused,
    ToolRules,
    ToolUse,
    arguments_schema,
    text_schema,
)
from onward.agents.tools.web_addresses import (
    Allowed,
    Target,
    UrlRefused,
    check_addresses,
    check_target,
    redirected,
    target_of,
)
from onward.errors import CallTimedOut
from onward.model.values import HTTP_GET_TOOL, HTTP_SEND_TOOL
from onward.threads import in_thread

BODY_BYTES_MAX = 1024 * 1024
PIECE_BYTES = 64 * 1024
CONNECT_S = 10.0


class RequestFailed(Exception):
    """There is no response. If `is_sent`, nobody knows what the other side did."""

    def __init__(self, why: str, *, is_sent: bool) -> None:
        self.is_sent = is_sent
        super().__init__(why)


class Response(msgspec.Struct, frozen=True):
    """What came back; `is_cut` if the body has more."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes
    charset: str | None = None
    is_cut: bool = False


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host, each once; none if the name is unknown."""
    try:
        found = await in_thread(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except OSError:
        return []
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def request(
    method: str,
    target: Target,
    *,
    addresses: Sequence[str],
    headers: Mapping[str, str],
    body: bytes | None = None,
    body_bytes_max: int = BODY_BYTES_MAX,
) -> Response:
    """Make the request to one of these addresses; RequestFailed if no response comes."""
    connector = aiohttp.TCPConnector(
        resolver=_Checked(addresses),
        socket_factory=_Only(addresses),
        use_dns_cache=False,
        force_close=True,
    )
    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
    ) as session:
        sent = {"Accept-Encoding": "identity", "User-Agent": "onward", **headers}
        try:
            async with session.request(
                method,
                URL(target.url, encoded=True),
                headers=sent,
                data=body,
                allow_redirects=False,
            ) as response:
                return await _read(response, body_bytes_max)
        except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError) as error:
            why = f"{target.shown_host} cannot be reached: {_reason(error)}."
            raise RequestFailed(why, is_sent=False) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            why = f"{target.shown_host} closed the connection or did not speak HTTP ({type(error).__name__})."
            raise RequestFailed(why, is_sent=True) from None


async def _read(response: aiohttp.ClientResponse, bytes_max: int) -> Response:
    headers = {name.lower(): value for name, value in response.headers.items()}
    body, is_cut = bytearray(), False
    if headers.get("content-encoding", "identity").lower() not in ("identity", ""):
        raise RequestFailed("the response is compressed, which was not requested.", is_sent=True)
    while not is_cut and (piece := await response.content.read(PIECE_BYTES)):
        body += piece
        is_cut = len(body) > bytes_max
    return Response(
        response.status, response.reason or "", headers, bytes(body[:bytes_max]), response.charset, is_cut
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted"
    if isinstance(error, aiohttp.ClientSSLError):
        return "no secure connection can be established"
    if isinstance(error, aiohttp.ClientConnectorError):
        return (error.os_error.strerror or "no connection").lower()
    return f"no connection within {CONNECT_S:g} s"


class _Only:
    """Creates sockets for these addresses, and for no other."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = frozenset(addresses)

    def __call__(self, found: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, address = found
        if address[0] not in self._addresses:
            raise OSError(f"{address[0]} was not checked")
        return socket.socket(family, kind, protocol)


class _Checked(AbstractResolver):
    """Answers with the addresses that were checked."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Nothing is open."""


REDIRECTS_MAX = 3
REDIRECTS = frozenset({301, 302, 303, 307, 308})
HEADERS_MAX = 50
HEADER_CHARACTERS_MAX = 4_000
SENT_BYTES_MAX = 1024 * 1024
SHOWN = ("content-type", "content-length", "location", "retry-after", "etag", "last-modified", "link")
CARRIED = frozenset({"accept", "accept-language"})
"""Headers that go to another host with a redirect: nothing that could be a key."""
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_OURS = re.compile(
    r"host|content-length|transfer-encoding|connection|keep-alive|te|trailer|upgrade|expect|accept-encoding|proxy-.*",
    re.IGNORECASE,
)
_ASKING = ToolRules(time_limit_s=60.0)
_SENDING = ToolRules(repeatable=False, approval=True, is_concurrent=False, time_limit_s=60.0)
Resolve = Callable[[str, int], Awaitable[list[str]]]


class Web(msgspec.Struct, frozen=True):
    """Where requests may go. Without entries, nowhere."""

    allowed: tuple[Allowed, ...] = ()
    allows_private: bool = False
    resolve: Resolve = resolve
    body_bytes_max: int = BODY_BYTES_MAX

    async def addresses(self, target: Target) -> list[str]:
        """The addresses of a host, all of them checked; UrlRefused if a request may not go there."""
        check_target(target, self.allowed)
        found = await self.resolve(target.host, target.port)
        check_addresses(target, found, allows_private=self.allows_private)
        return found

    async def get(self, method: str, url: str, headers: Mapping[str, str]) -> tuple[Target, Response]:
        """Ask, and follow redirects; each is checked as if it had been asked for."""
        target, sent = target_of(url), headers
        for _ in range(REDIRECTS_MAX + 1):
            addresses = await self.addresses(target)
            response = await request(
                method, target, addresses=addresses, headers=sent, body_bytes_max=self.body_bytes_max
            )
            if response.status not in REDIRECTS or "location" not in response.headers:
                return target, response
            after = redirected(target, response.headers["location"])
            if after.origin != target.origin:
                sent = {name: value for name, value in sent.items() if name.lower() in CARRIED}
            target = after
        raise UrlRefused(
            f"there were more than {REDIRECTS_MAX} redirects; the last one leads to {target.url}."
        )

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[Target, Response]:
        """Send; a redirect is an answer, since whoever follows it sends once more."""
        target = target_of(url)
        addresses = await self.addresses(target)
        response = await request(
            method,
            target,
            addresses=addresses,
            headers=headers,
            body=body,
            body_bytes_max=self.body_bytes_max,
        )
        return target, response


class HttpGet(msgspec.Struct, frozen=True):
    """Asks a server; may be repeated."""

    web: Web
    described: Tool
    rules: ToolRules = _ASKING

    async def run(self, use: ToolUse) -> ToolAnswer:
        given = use.arguments
        asking = self.web.get(given.get("method", "GET"), given["url"], _headers(given.get("headers", {})))
        return await _answered(asking, use)


class HttpSend(msgspec.Struct, frozen=True):
    """Sends something to a server, which may not be repeated: if no answer comes in time, it is in doubt."""

    web: Web
    described: Tool
    rules: ToolRules = _SENDING

    async def run(self, use: ToolUse) -> ToolAnswer:
        given = use.arguments
        body, headers = given.get("body", "").encode(), _headers(given.get("headers", {}))
        if len(body) > SENT_BYTES_MAX:
            raise ToolRefused(f"the body has more than {SENT_BYTES_MAX:,} bytes; send less.")
        return await _answered(self.web.send(given["method"], given["url"], headers, body), use)


async def _answered(asking: Awaitable[tuple[Target, Response]], use: ToolUse) -> ToolAnswer:
    limit_s = use.rules.time_limit_s
    try:
        async with asyncio.timeout(limit_s):
            target, response = await asking
    except TimeoutError:
        if not use.rules.repeatable:
            raise CallTimedOut(use.key, limit_s) from None
        raise ToolRefused(f"no answer within {limit_s:g} s.") from None
    except UrlRefused as refused:
        raise ToolRefused(str(refused)) from None
    except RequestFailed as failed:
        if failed.is_sent and not use.rules.repeatable:
            raise CutOff(use.key, limit_s, str(failed)) from None
        raise ToolRefused(str(failed)) from None
    return ToolAnswer(_shown(target, response), is_error=response.status >= 400)


def _shown(target: Target, response: Response) -> str:
    head = [f"HTTP {response.status} {response.reason}".rstrip(), f"from {target.url}"]
    head += [f"{name}: {response.headers[name][:1000]}" for name in SHOWN if name in response.headers]
    lines = ["\n".join(head), "", _body(response)]
    if response.is_cut:
        lines.append(f"[the body continues; only its first {len(response.body):,} bytes were read]")
    return "\n".join(lines).rstrip("\n")


def _body(response: Response) -> str:
    if b"\0" in response.body[:8192]:
        return f"[a body of {len(response.body):,} bytes that is not text]"
    try:
        return response.body.decode(response.charset or "utf-8", "replace")
    except LookupError:
        return response.body.decode("utf-8", "replace")


def _headers(given: Mapping[str, Any]) -> dict[str, str]:
    """The headers that the model wants; ToolRefused for those that decide about the connection."""
    if len(given) > HEADERS_MAX:
        raise ToolRefused(f"there are more than {HEADERS_MAX} headers; send fewer.")
    for name, value in given.items():
        is_text = isinstance(value, str) and len(value) <= HEADER_CHARACTERS_MAX and _VALUE.fullmatch(value)
        if not _NAME.fullmatch(name) or not is_text:
            raise ToolRefused(f"the header {name[:80]!a} cannot be sent; use printable ASCII in one line.")
        if _OURS.fullmatch(name):
            raise ToolRefused(f"the header {name} is set by Onward; leave it out.")
    return dict(given)


_URL = text_schema("The URL, with https:// or http://. Only hosts that a person has allowed can be used.")
_HEADERS = {"type": "object", "additionalProperties": {"type": "string"}, "description": "More headers."}


def web_tools(web: Web) -> list[HttpGet | HttpSend]:
    """Both of them; none if no host is allowed."""
    if not web.allowed:
        return []
    get = Tool(
        HTTP_GET_TOOL,
        "Make an HTTP request that changes nothing, and show the response. Redirects are followed.",
        arguments_schema({"url": _URL}, {"method": {"enum": ["GET", "HEAD"]}, "headers": _HEADERS}),
    )
    send = Tool(
        HTTP_SEND_TOOL,
        "Make an HTTP request that sends or changes something. No redirect is followed.",
        arguments_schema(
            {"url": _URL, "method": {"enum": ["POST", "PUT", "PATCH", "DELETE"]}},
            {"headers": _HEADERS, "body": text_schema("The body; say its type in the header Content-Type.")},
        ),
    )
    return [HttpGet(web, get), HttpSend(web, send)]
