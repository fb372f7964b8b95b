"""The way to a server: a message out, its answer back. What else the server says is told to a listener."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from onward.agents.tools.mcp.messages import Answer, Told

Listen = Callable[[Told], None]


class Sending(msgspec.Struct, frozen=True):
    """One request; the headers are for channels that have any."""

    id: int
    body: bytes
    headers: Mapping[str, str] = {}


class SessionLost(Exception):
    """The server does not know our session any more, and did nothing; a new one may be begun."""


class Channel(Protocol):
    """Carries messages. It answers what the server asks by itself."""

    has_headers: bool
    """Whether requests have headers, and a request that is dropped is cancelled by that."""

    @property
    def noted(self) -> str:
        """What is odd about the server so far, as the end of a sentence about a request that failed."""
        ...

    async def exchange(self, sending: Sending, listen: Listen) -> Answer:
        """The answer to a request; ServerFailed or SessionLost if there is none."""
        ...

    async def tell(self, message: bytes, headers: Mapping[str, str]) -> None:
        """Send a message that is not answered; ServerFailed or SessionLost if it cannot be sent."""
        ...

    def tell_soon(self, message: bytes, headers: Mapping[str, str]) -> None:
        """The same without waiting, and whether or not it can be sent."""
        ...

    async def close(self) -> None:
        """End it, with everything that belongs to it."""
        ...
