"""One HTTP request to addresses that were checked, and the beginning of its response.

It follows no redirect, keeps no cookie, takes nothing from the environment and accepts nothing compressed.
The socket itself is created only for an address that was checked, whatever a library makes of the host.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from onward.agents.tools.web.addresses import Target
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
        raise RequestFailed("the response is compressed, which was not asked for.", is_sent=True)
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
        return "no secure connection can be made"
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
