"""The address that a request names, and the page that sent it: both must be this server's own.

Another site's page in the user's browser can reach this server. It cannot choose the Host and the Origin
that the browser sends, so both are compared completely, with our own parser: frameworks' parsers mishandle
`[::1]`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from urllib.parse import urlsplit

import msgspec

from onward.errors import InvalidInput
from onward.server.problems import Problem
from onward.server.settings import LOOPBACK, ServeSettings

Headers = Sequence[tuple[bytes, bytes]]
_HOST = re.compile(rb"(\[[0-9a-f:.]{2,45}\]|[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)(?::([0-9]{1,5}))?")
_FOREIGN_SITES = (b"cross-site", b"same-site")
_ORDINARY_PORTS = {"http": 80, "https": 443}


class Hosts(msgspec.Struct, frozen=True):
    """The addresses of this server: its hosts with their ports, and its origins."""

    names: frozenset[bytes]
    origins: frozenset[bytes]
    base: str = ""
    """The path before every path of ours, as the client sees it."""
    url: str = ""
    """Where people find it."""

    def check(self, headers: Headers, *, is_navigation_allowed: bool) -> None:
        """Reject a request to another address, or from another site's page."""
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or not self.has_host(hosts[0]):
            raise Problem(421, "wrong_host", "the Host header is not an address of this server.")
        origins = [value for name, value in headers if name == b"origin"]
        if len(origins) > 1 or not self.origins.issuperset(origins):
            raise _foreign()
        site = one_of(headers, b"sec-fetch-site")
        if site in _FOREIGN_SITES:
            mode = one_of(headers, b"sec-fetch-mode")
            if not (is_navigation_allowed and mode == b"navigate"):
                raise _foreign()

    def has_host(self, host: bytes) -> bool:
        """Whether this is one of our hosts; the port of the scheme may be left out."""
        return _HOST.fullmatch(host.lower()) is not None and host.lower() in self.names


def one_of(headers: Headers, wanted: bytes) -> bytes | None:
    """The last header of a name."""
    found = [value for name, value in headers if name == wanted]
    return found[-1].strip().lower() if found else None


def hosts_of(settings: ServeSettings, port: int) -> Hosts:
    """The addresses of a server with these settings, once it has its port."""
    if settings.public_url is not None:
        return _public(settings.public_url, port)
    scheme = "https" if settings.is_tls else "http"
    names = LOOPBACK if settings.is_loopback else (settings.host, *LOOPBACK)
    shown = bracketed(settings.host)
    end = "" if port == _ORDINARY_PORTS[scheme] else f":{port}"
    return Hosts(
        frozenset(_names(names, scheme, port)),
        frozenset(f"{scheme}://{bracketed(name)}{end}".encode() for name in names),
        url=f"{scheme}://{shown}{end}",
    )


def _names(names: Collection[str], scheme: str, port: int) -> list[bytes]:
    found = [f"{bracketed(name)}:{port}".encode() for name in names]
    if port == _ORDINARY_PORTS[scheme]:
        found += [bracketed(name).encode() for name in names]
    return found


def _public(url: str, port: int) -> Hosts:
    """Behind a proxy: the address that people use; and this machine's own, for probes and commands here."""
    found = urlsplit(url)
    if found.scheme not in _ORDINARY_PORTS or not found.hostname or found.query or found.fragment:
        raise InvalidInput(
            f"the public address {url[:80]!r} is not an address; write one such as https://host/onward."
        )
    if found.username is not None or found.password is not None:
        raise InvalidInput("the public address contains a user name; leave it out.")
    own = found.port or _ORDINARY_PORTS[found.scheme]
    host, end = bracketed(found.hostname), "" if own == _ORDINARY_PORTS[found.scheme] else f":{own}"
    base = found.path.rstrip("/")
    origin = f"{found.scheme}://{host}{end}"
    return Hosts(
        frozenset([*_names([found.hostname], found.scheme, own), *_names(LOOPBACK, "http", port)]),
        frozenset([origin.encode(), *(f"http://{bracketed(name)}:{port}".encode() for name in LOOPBACK)]),
        base=base,
        url=f"{origin}{base}",
    )


def bracketed(host: str) -> str:
    """A host as an address has it."""
    return f"[{host}]" if ":" in host else host


def _foreign() -> Problem:
    return Problem(403, "foreign_origin", "the request came from a page of another site, and is refused.")
