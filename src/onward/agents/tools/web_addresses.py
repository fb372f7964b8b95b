"""Where a request may go: addresses as they are written, the allow-list, and what a name resolves to.

It is apart from `web`, because settings are checked with it before an HTTP client is needed.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from urllib.parse import unquote, urljoin, urlsplit

import msgspec

from onward.errors import InvalidInput

URL_CHARACTERS_MAX = 8_000
PORTS = {"http": 80, "https": 443}
_CLEAN = re.compile(r"[!#$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]+")
"""What an address may hold. Readers differ about the rest: some drop it in silence."""
_HOST = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*"
)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_DECODED_MAX = 4
IP = ipaddress.IPv4Address | ipaddress.IPv6Address


class UrlRefused(Exception):
    """A request may not go there; the text says why."""


class Target(msgspec.Struct, frozen=True):
    """An address in its parts; `url` is put together from them, so that nobody reads another out of it."""

    scheme: str
    host: str
    port: int
    path: str
    query: str = ""

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def shown_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def url(self) -> str:
        port = "" if self.port == PORTS[self.scheme] else f":{self.port}"
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{self.shown_host}{port}{self.path}{query}"


def target_of(url: str) -> Target:
    """The parts of an address; UrlRefused unless every reader would find the same in it."""
    if len(url) > URL_CHARACTERS_MAX:
        raise UrlRefused(f"the address is longer than {URL_CHARACTERS_MAX:,} characters.")
    if not _CLEAN.fullmatch(url):
        raise UrlRefused("the address has invalid characters; encode them, as in %20.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise UrlRefused("this is not an address; write one such as https://example.com/path.") from None
    if parts.scheme not in PORTS or not parts.hostname:
        raise UrlRefused("the address must begin with https:// or http:// and a host.")
    if "@" in parts.netloc:
        raise UrlRefused("the address has a user name before its host; leave it out.")
    if port == 0:
        raise UrlRefused("the address has the port 0.")
    path = parts.path or "/"
    _check_path(path)
    return Target(parts.scheme, _host(parts.hostname), port or PORTS[parts.scheme], path, parts.query)


def redirected(target: Target, location: str) -> Target:
    """Where a redirect leads to."""
    try:
        return target_of(urljoin(target.url, location))
    except UrlRefused as refused:
        raise UrlRefused(
            f"{target.shown_host} redirects to an address that cannot be used: {refused}"
        ) from None


def _host(host: str) -> str:
    """A name, or an address in its usual form: there are many others, and not all readers know them."""
    if ":" in host:
        try:
            return str(ipaddress.IPv6Address(host)) if "%" not in host else _refuse_host()
        except ValueError:
            _refuse_host()
    name = host.removesuffix(".")
    if not _HOST.fullmatch(name):
        _refuse_host()
    if _NUMBER.fullmatch(name.rpartition(".")[2]):
        try:
            return str(ipaddress.IPv4Address(name))
        except ValueError:
            _refuse_host()
    return name


def _refuse_host() -> str:
    raise UrlRefused("the host of the address is neither a name nor an address in its usual form.")


def _check_path(path: str) -> None:
    """Refuse `..`, however it is encoded: whoever serves it may walk out of a path that is allowed.

    Some servers drop what follows a `;` in a name before they walk: for them, `..;x` is `..`.
    """
    for _ in range(_DECODED_MAX):
        path = unquote(path)
    if "%" in path and unquote(path) != path:
        raise UrlRefused("the path of the address is encoded too many times.")
    if any(name.partition(";")[0] in (".", "..") for name in re.split(r"[/\\]", path)):
        raise UrlRefused("the path of the address has . or .. in it; write the resolved path.")


class Allowed(msgspec.Struct, frozen=True):
    """One entry of the allow-list: a host with its scheme and port, and perhaps only what is below a path."""

    scheme: str
    host: str
    port: int
    path: str = "/"

    def holds(self, target: Target) -> bool:
        """Whether it allows a request to this address."""
        is_below = target.path.startswith(self.path) or target.path == self.path.removesuffix("/")
        return (self.scheme, self.host, self.port) == target.origin and is_below


def read_allowed(entry: object, what: str) -> Allowed:
    """An entry of `allow`: `api.example.com`, which means https, or an address with all its parts."""
    if not isinstance(entry, str):
        raise InvalidInput(
            f'{what} has {entry!r}; write hosts and addresses in quotes, as "api.example.com".'
        )
    url = entry if "://" in entry else f"https://{entry}"
    try:
        target = target_of(url)
    except UrlRefused as refused:
        raise InvalidInput(f"{what} has {entry!r}: {refused}") from None
    if target.query or ("://" not in entry and target.path != "/"):
        raise InvalidInput(
            f"{what} has {entry!r}; write a host, or an address such as https://host:8443/path/."
        )
    path = target.path if target.path.endswith("/") else f"{target.path}/"
    return Allowed(target.scheme, target.host, target.port, path)


def check_target(target: Target, allowed: Sequence[Allowed]) -> None:
    """Refuse an address that no entry allows."""
    if not any(entry.holds(target) for entry in allowed):
        raise UrlRefused(
            f"{target.scheme}://{target.shown_host}:{target.port}{target.path} is not allowed; "
            "a person can allow it in [tools.http] of onward.toml."
        )


def check_addresses(target: Target, addresses: Sequence[str], *, allows_private: bool) -> None:
    """Refuse a host of which any address is inside a private network, or is this machine."""
    if not addresses:
        raise UrlRefused(f"{target.shown_host} has no address.")
    for text in addresses:
        kind = kind_of(text)
        is_named = text == target.host  # the allow-list has this very address
        if kind == "public" or (allows_private and (kind == "private" or is_named)):
            continue
        raise UrlRefused(
            f"{target.shown_host} is at {text}, a {kind} address, which is not allowed"
            + ("." if allows_private else "; a person can set allow_private in [tools.http].")
        )


def kind_of(address: str) -> str:
    """What an address is: public, private (also this machine), or special, such as that of cloud metadata."""
    ip: IP = ipaddress.ip_address(address.partition("%")[0])
    ip = _inner(ip)
    if ip.is_link_local or ip.is_multicast or ip.is_unspecified or ip in _METADATA:
        return "special"
    if ip.is_global and not ip.is_reserved:
        return "public"
    is_known = ip.is_loopback or any(ip in network for network in _PRIVATE if network.version == ip.version)
    return "private" if is_known else "special"


_METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "168.63.129.16")))
_PRIVATE = tuple(
    map(
        ipaddress.ip_network,
        ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"),
    )
)
_EMBEDDING = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "::/96")))


def _inner(ip: IP) -> IP:
    """The IPv4 address that an IPv6 address stands for; else the address itself."""
    if isinstance(ip, ipaddress.IPv4Address):
        return ip
    inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
    if inner is None and int(ip) > 1 and any(ip in network for network in _EMBEDDING):
        inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return inner or ip
