"""The settings of `[serve]` and the flags of `onward serve`, validated.

Limits and rates are settings as well, with the defaults of the API page.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from onward.errors import InvalidInput
from onward.model.values import CONCURRENCY, PORT, shown

HOST, SERVER_PORT = "127.0.0.1", 8765
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a server is reached, what it allows, and its ceilings.

    `public_url` is its address behind a proxy. `proxies` are the addresses whose X-Forwarded-For is
    believed. `shell`: pipelines that are sent may name commands. `inline`: runs may bring their own
    source. `requests` a second and credential, `burst` at once, `creations` a second; `failures` of
    credentials a minute and address.
    """

    host: str = HOST
    port: int = SERVER_PORT
    public_url: str | None = None
    worker: bool = True
    concurrency: int = 4
    tls_cert: str | None = None
    tls_key: str | None = None
    insecure_http: bool = False
    proxies: tuple[str, ...] = ()
    shell: bool = False
    inline: bool = False
    body_bytes: int = 1024 * 1024
    json_depth: int = 64
    requests: float = 50.0
    burst: int = 100
    creations: float = 10.0
    failures: int = 10
    streams: int = 20
    streams_all: int = 1_000
    session_hours: float = 12.0
    audit_days: int = 400

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in LOOPBACK

    @property
    def is_tls(self) -> bool:
        """Whether it uses TLS itself."""
        return self.tls_cert is not None


def read_serve(table: Mapping[str, Any], given: Mapping[str, Any], *, file: str) -> ServeSettings:
    """The settings of a table, overridden by flags; raises InvalidInput if one is wrong."""
    said = {name.replace("-", "_"): value for name, value in table.items()}
    try:
        found = msgspec.convert({**said, **given}, ServeSettings)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"[serve] in {file}: {_plain(error, said)}") from None
    PORT.check(found.port, "the port of [serve]")
    CONCURRENCY.check(found.concurrency, "the concurrency of [serve]")
    if (found.tls_cert is None) != (found.tls_key is None):
        raise InvalidInput("a certificate needs its key, and a key its certificate; give both or neither.")
    for name in ("body_bytes", "json_depth", "requests", "burst", "creations", "failures"):
        if getattr(found, name) <= 0:
            raise InvalidInput(f"{name} of [serve] is {shown(getattr(found, name))}; write more than 0.")
    if found.audit_days < 0:
        raise InvalidInput(f"audit_days of [serve] is {found.audit_days}; write 0 to keep the audit forever.")
    return found


def _plain(error: msgspec.ValidationError, said: Mapping[str, Any]) -> str:
    known = ServeSettings.__struct_fields__
    if unknown := sorted(said.keys() - set(known)):
        return f"it sets {', '.join(unknown)}; known settings are {', '.join(sorted(known))}."
    return f"{error}."
