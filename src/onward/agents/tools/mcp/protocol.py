"""The protocol with a server: its messages, the channel that carries them, and the session over it.

The messages are JSON-RPC 2.0: written, and read from whatever a server sends. A `Channel` is the way to a
server: a message out, its answer back; what else the server says is told to a listener.

A session is the protocol between a handshake and its end: which revision is spoken, and requests within a
time limit. Most servers begin with the handshake of the revisions up to 2025-11-25, also those that speak
newer ones. A server that refuses it is asked in the newest revision, where every request says what it needs
to know. In revisions without a handshake, headers repeat parts of a request.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from onward.agents.tools.mcp.settings import McpServer
from onward.clock import Clock, TookTooLong, within
from onward.errors import InvalidInput
from onward.version import VERSION

MESSAGE_BYTES_MAX = 8 * 1024 * 1024
"""One message may carry a picture; a larger one is not read."""
METHOD_NOT_FOUND = -32601
SAID_CHARACTERS_MAX = 500


class ServerFailed(Exception):
    """A server cannot be used, or did not answer; the text is one sentence.

    `is_sent`: it may have done what it was asked. `is_lost`: the connection to it is of no use any more.
    """

    def __init__(self, what: str, *, is_sent: bool = False, is_lost: bool = False) -> None:
        self.is_sent, self.is_lost = is_sent, is_lost
        super().__init__(what)


class RpcError(Exception):
    """A server answered a request with an error."""

    def __init__(self, code: int, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)


class NotAMessage(Exception):
    """Bytes that are no message of the protocol."""


class ServerAnswer(msgspec.Struct, frozen=True):
    """The response to the request with this id: a result, or an error."""

    id: str | int | None
    result: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None

    def value(self) -> Mapping[str, Any]:
        """The result; RpcError if it is an error."""
        if self.error is not None:
            code = self.error.get("code")
            message = plain(str(self.error.get("message", "")))
            raise RpcError(code if isinstance(code, int) else 0, message or f"error {code}")
        return self.result or {}


class ServerRequest(msgspec.Struct, frozen=True):
    """A request of the server, which wants a response."""

    id: str | int
    method: str


class ServerNotification(msgspec.Struct, frozen=True):
    """A notification."""

    method: str
    params: Mapping[str, Any]


Received = ServerAnswer | ServerRequest | ServerNotification


def encode_request(id: int, method: str, params: Mapping[str, Any]) -> bytes:
    """A request, in one line without its end."""
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def encode_notification(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    """A message that is not answered."""
    body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    return msgspec.json.encode(body if params is None else {**body, "params": params})


def reply_to(asked: ServerRequest) -> bytes:
    """What we answer: that we live, and to anything else that we do not do that."""
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": asked.id}
    if asked.method == "ping":
        return msgspec.json.encode({**body, "result": {}})
    error = {"code": METHOD_NOT_FOUND, "message": f"Onward does not offer {plain(asked.method)}"}
    return msgspec.json.encode({**body, "error": error})


def read_messages(line: bytes) -> list[Received]:
    """The messages in a line or a body; NotAMessage if it is anything else. Unknown fields say nothing."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NotAMessage from None
    # One revision of the protocol sends several at once.
    return [_message(one) for one in (found if isinstance(found, list) else [found])]


def _message(found: Any) -> Received:
    if not isinstance(found, dict):
        raise NotAMessage
    id: Any = found.get("id")
    method = found.get("method")
    params = found.get("params")
    is_id = isinstance(id, str | int) and not isinstance(id, bool)
    if isinstance(method, str):
        if is_id:
            return ServerRequest(id, method)
        return ServerNotification(method, params if isinstance(params, dict) else {})
    error, result = found.get("error"), found.get("result")
    if isinstance(error, dict) and (is_id or id is None):
        return ServerAnswer(id, error=error)
    if is_id and isinstance(result, dict):
        return ServerAnswer(id, result=result)
    raise NotAMessage


def plain(text: str, most: int = SAID_CHARACTERS_MAX) -> str:
    """Foreign text for one line."""
    shown = " ".join("".join(c if c.isprintable() else " " for c in text[: most * 4]).split())
    return shown if len(shown) <= most else shown[: most - 1] + "…"


Listen = Callable[[ServerNotification], None]


class OutgoingRequest(msgspec.Struct, frozen=True):
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

    async def exchange(self, sending: OutgoingRequest, listen: Listen) -> ServerAnswer:
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


HANDSHAKES = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
STATELESS = "2026-07-28"
OURS = {"name": "onward", "version": VERSION}
CANCELLED, INITIALIZED = "notifications/cancelled", "notifications/initialized"
LIST_CHANGED = "notifications/tools/list_changed"
_META = "io.modelcontextprotocol/"


class TooLate(ServerFailed):
    """A request took longer than its time limit; the server was told to stop. `noted` is of its channel."""

    def __init__(self, what: str, noted: str) -> None:
        self.noted = noted
        super().__init__(what + noted, is_sent=True)


class McpSession:
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
                raise ServerFailed(f"{self._name} rejected the handshake: {refused}") from None

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
        await self._channel.tell(encode_notification(INITIALIZED), self._headers(INITIALIZED, ""))

    async def _discover(self) -> None:
        self._version = STATELESS
        result = await self.request("server/discover", {}, limit_s=self._server.time_limit_s)
        versions = result.get("supportedVersions")
        if not isinstance(versions, list) or STATELESS not in versions:
            raise ServerFailed(f"{self._name} supports no revision of the protocol that Onward supports")
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
        sending = OutgoingRequest(
            id, encode_request(id, method, sent), {**self._headers(method, name), **(headers or {})}
        )
        try:
            answer = await within(self._channel.exchange(sending, self._heard), limit_s, self._clock)
        except TookTooLong:
            self._cancel(id, method, "it took too long")
            what = f"{self._name} did not answer {method} within {limit_s:g} s"
            raise TooLate(what, self._channel.noted) from None
        except asyncio.CancelledError:
            self._cancel(id, method, "the use was cancelled")
            raise
        return answer.value()

    def _cancel(self, id: int, method: str, why: str) -> None:
        if method == "initialize" or (self.is_stateless and self._channel.has_headers):
            return  # the one is never cancelled, the other is by closing its connection
        message = encode_notification(CANCELLED, {"requestId": id, "reason": why})
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

    def _heard(self, told: ServerNotification) -> None:
        """Progress and log messages are passed over."""
        if told.method == LIST_CHANGED:
            self.is_list_current = False


MARK = "x-mcp-header"
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PLAIN = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_TYPES = ("string", "integer", "boolean")


def encoded(value: str) -> str:
    """A text as the value of a header; in base64 if it could not be sent as it is."""
    if _PLAIN.fullmatch(value) and not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    return f"=?base64?{base64.b64encode(value.encode('utf-8', 'replace')).decode()}?="


def check_marks(schema: Mapping[str, Any]) -> None:
    """Refuse a schema whose marks cannot be followed."""
    marked = [name for _, name, _ in _marked(schema, ())]
    if len({str(name).lower() for name in marked}) != len(marked) or _count(schema) != len(marked):
        raise InvalidInput(f"it has {MARK} twice, or where it cannot be.")
    for path, name, part in _marked(schema, ()):
        if not isinstance(name, str) or not _TOKEN.fullmatch(name) or part.get("type") not in _TYPES:
            raise InvalidInput(f"its parameter {'.'.join(path)!r} has an {MARK} that cannot be a header.")


def mirrored(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, str]:
    """The headers that arguments become, as the schema marks them."""
    headers = {}
    for path, name, _ in _marked(schema, ()):
        value: Any = arguments
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, bool):
            headers[f"Mcp-Param-{name}"] = "true" if value else "false"
        elif isinstance(value, str | int):
            headers[f"Mcp-Param-{name}"] = encoded(str(value))
    return headers


def _marked(
    schema: Mapping[str, Any], above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any, Mapping[str, Any]]]:
    """The marked parameters: where they are, the name of the header, and their schemas."""
    properties = schema.get("properties")
    for name, part in properties.items() if isinstance(properties, Mapping) else ():
        if isinstance(part, Mapping):
            if MARK in part:
                yield (*above, name), part[MARK], part
            yield from _marked(part, (*above, name))


def _count(schema: object) -> int:
    """How many marks there are anywhere."""
    if isinstance(schema, list):
        return sum(map(_count, schema))
    if not isinstance(schema, Mapping):
        return 0
    return (MARK in schema) + sum(map(_count, schema.values()))
