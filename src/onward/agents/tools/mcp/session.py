"""The protocol between a handshake and its end: which revision is spoken, and requests within a time limit.

Most servers begin with the handshake of the revisions up to 2025-11-25, also those that speak newer ones. A
server that refuses it is asked in the newest revision, where every request says what it needs to know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from onward.agents.tools.mcp.channel import Channel, Sending
from onward.agents.tools.mcp.headers import encoded
from onward.agents.tools.mcp.messages import RpcError, ServerFailed, Told, notification, plain, request
from onward.agents.tools.mcp.settings import McpServer
from onward.clock import Clock, TookTooLong, within
from onward.version import VERSION

HANDSHAKES = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
STATELESS = "2026-07-28"
OURS = {"name": "onward", "version": VERSION}
CANCELLED, INITIALIZED = "notifications/cancelled", "notifications/initialized"
LIST_CHANGED = "notifications/tools/list_changed"
_META = "io.modelcontextprotocol/"


class TooLate(ServerFailed):
    """A request took longer than its time limit; the server was told to stop."""


class Session:
    """One agreement with a server. Begin it with `open`."""

    def __init__(self, server: McpServer, channel: Channel, clock: Clock) -> None:
        self._name = f"the MCP server {server.name!r}"
        self._server, self._channel, self._clock = server, channel, clock
        self._id = 0
        self._version = ""
        self.has_tools = False
        self.is_list_current = False
        """Whether the list of tools that was read last is still right."""

    @property
    def is_stateless(self) -> bool:
        """Whether it speaks the revision without a handshake."""
        return self._version == STATELESS

    async def open(self) -> None:
        """Agree on a revision."""
        try:
            await self._shake_hands()
        except RpcError as refused:
            try:
                await self._discover()
            except RpcError:
                raise ServerFailed(f"{self._name} refused the handshake: {refused}") from None

    async def _shake_hands(self) -> None:
        asked = {"protocolVersion": HANDSHAKES[0], "capabilities": {}, "clientInfo": OURS}
        result = await self.request("initialize", asked, limit_s=self._server.time_limit_s)
        version = result.get("protocolVersion")
        if version not in HANDSHAKES:
            raise ServerFailed(
                f"{self._name} speaks {plain(str(version), 40)!r} of the protocol, which Onward does not; "
                f"it speaks {', '.join((STATELESS, *HANDSHAKES))}"
            )
        self._version = str(version)
        self._note_capabilities(result)
        await self._channel.tell(notification(INITIALIZED), self._headers(INITIALIZED, ""))

    async def _discover(self) -> None:
        self._version = STATELESS
        result = await self.request("server/discover", {}, limit_s=self._server.time_limit_s)
        versions = result.get("supportedVersions")
        if not isinstance(versions, list) or STATELESS not in versions:
            raise ServerFailed(f"{self._name} speaks no revision of the protocol that Onward does")
        self._note_capabilities(result)

    def _note_capabilities(self, result: Mapping[str, Any]) -> None:
        capabilities = result.get("capabilities")
        self.has_tools = isinstance(capabilities, dict) and "tools" in capabilities

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        limit_s: float,
        name: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Mapping[str, Any]:
        """The result of a request; RpcError, ServerFailed or SessionLost if there is none.

        If the caller is cancelled or the time is over, the server is told.
        """
        self._id = id = self._id + 1
        sent = {**params, "_meta": self._meta()} if self.is_stateless else params
        sending = Sending(id, request(id, method, sent), {**self._headers(method, name), **(headers or {})})
        try:
            answer = await within(self._channel.exchange(sending, self._heard), limit_s, self._clock)
        except TookTooLong:
            self._cancel(id, method, "it took too long")
            what = f"did not answer {method} within {limit_s:g} s{self._channel.noted}"
            raise TooLate(f"{self._name} {what}", is_sent=True) from None
        except asyncio.CancelledError:
            self._cancel(id, method, "the use was cancelled")
            raise
        return answer.value()

    def _cancel(self, id: int, method: str, why: str) -> None:
        if method == "initialize" or (self.is_stateless and self._channel.has_headers):
            return  # the one is never cancelled, the other is by closing its connection
        message = notification(CANCELLED, {"requestId": id, "reason": why})
        self._channel.tell_soon(message, self._headers(CANCELLED, ""))

    def _meta(self) -> dict[str, Any]:
        return {
            f"{_META}protocolVersion": STATELESS,
            f"{_META}clientInfo": OURS,
            f"{_META}clientCapabilities": {},
        }

    def _headers(self, method: str, name: str) -> dict[str, str]:
        if not self._version:
            return {}
        headers = {"MCP-Protocol-Version": self._version}
        if self.is_stateless:
            headers["Mcp-Method"] = method
            if name:
                headers["Mcp-Name"] = encoded(name)
        return headers

    def _heard(self, told: Told) -> None:
        """Progress and log messages are passed over."""
        if told.method == LIST_CHANGED:
            self.is_list_current = False
