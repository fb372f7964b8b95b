"""The messages of the protocol, JSON-RPC 2.0: written, and read from whatever a server sends. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

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


class Answer(msgspec.Struct, frozen=True):
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


class Asked(msgspec.Struct, frozen=True):
    """A request of the server, which wants a response."""

    id: str | int
    method: str


class Told(msgspec.Struct, frozen=True):
    """A notification."""

    method: str
    params: Mapping[str, Any]


Received = Answer | Asked | Told


def request(id: int, method: str, params: Mapping[str, Any]) -> bytes:
    """A request, in one line without its end."""
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params})


def notification(method: str, params: Mapping[str, Any] | None = None) -> bytes:
    """A message that is not answered."""
    body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    return msgspec.json.encode(body if params is None else {**body, "params": params})


def reply_to(asked: Asked) -> bytes:
    """What we answer: that we live, and to anything else that we do not do that."""
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": asked.id}
    if asked.method == "ping":
        return msgspec.json.encode({**body, "result": {}})
    error = {"code": METHOD_NOT_FOUND, "message": f"Onward does not offer {plain(asked.method)}"}
    return msgspec.json.encode({**body, "error": error})


def read(line: bytes) -> list[Received]:
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
            return Asked(id, method)
        return Told(method, params if isinstance(params, dict) else {})
    error, result = found.get("error"), found.get("result")
    if isinstance(error, dict) and (is_id or id is None):
        return Answer(id, error=error)
    if is_id and isinstance(result, dict):
        return Answer(id, result=result)
    raise NotAMessage


def plain(text: str, most: int = SAID_CHARACTERS_MAX) -> str:
    """Foreign text for one line."""
    shown = " ".join("".join(c if c.isprintable() else " " for c in text[: most * 4]).split())
    return shown if len(shown) <= most else shown[: most - 1] + "…"
