"""The server behind an address, as all connections of one store know it.

At a switchover another server takes the place of the primary. The old one may stay up, read-only, and keep
its connections: whoever holds one would read what is out of date and write nothing, while new connections
reach the new primary. So the first connection that is refused as read-only makes all of them leave.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from onward.store.postgres.link.connection import Address
from onward.store.postgres.statements import Call, parse

IS_WRITABLE = Call(parse("is_writable", "SELECT current_setting('transaction_read_only') = 'off'"), ())


class Connected(Protocol):
    """Holds connections to a server."""

    def leave(self) -> None:
        """Hang up, each connection when nobody uses it; the next use connects anew."""


class Server(msgspec.Struct):
    """Where a store connects to. `patience_s` is how long to wait for a server that went away."""

    address: Address
    patience_s: float
    was_writable: bool = False
    """Whether it could be written at some time: then a read-only server is an outage, which may pass."""
    connected: list[Connected] = msgspec.field(default_factory=list)

    def leave(self) -> None:
        """Give up all connections that are open now."""
        for one in tuple(self.connected):
            one.leave()
