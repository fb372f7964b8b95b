"""Telling an address: one POST with the facts as JSON, signed as Standard Webhooks are.

The address is the operator's, from the settings' file; no pipeline chooses it. It is parsed once. A
redirect is not followed, so that neither the facts nor the signature go elsewhere. Each request has a
thread and a connection of its own; when the time is over, the connection is shut and the thread ends.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import socket
import ssl
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

from onward.clock import Clock
from onward.notify.sender import Sent
from onward.store.port.runs import Delivery
from onward.threads import in_thread
from onward.version import VERSION

SECRET_PREFIX = "whsec_"
ANSWER_BYTES_MAX = 16 * 1024


class UrlSender:
    """Posts each notification; a status of 2xx means delivered."""

    def __init__(self, url: str, *, secret: bytes | None, timeout_s: float, clock: Clock) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._secret, self._timeout_s, self._clock = secret, timeout_s, clock
        # Once, because it reads all certificates, and the loop must not wait for that.
        self._context = ssl.create_default_context() if parts.scheme == "https" else None

    async def send(self, delivery: Delivery) -> Sent:
        connection = self._connection()
        headers, body = self._headers(delivery), delivery.body.encode()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await in_thread(_post, connection, self._target, body, headers)
        except TimeoutError:
            return Sent(None, f"no answer within {self._timeout_s:g} s")
        except (OSError, HTTPException, RuntimeError) as error:  # the last: the system has no thread left
            why = error.strerror if isinstance(error, OSError) else None
            return Sent(None, f"no answer: {why or str(error) or type(error).__name__}")
        finally:
            _shut(connection)

    def close(self) -> None:
        """There is nothing to let go of: each request had its own connection."""

    def _connection(self) -> HTTPConnection:
        if self._context is None:
            return HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        return HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=self._context)

    def _headers(self, delivery: Delivery) -> dict[str, str]:
        at = str(self._clock.now_us() // 1_000_000)
        headers = {
            "content-type": "application/json",
            "user-agent": f"onward/{VERSION}",
            "webhook-id": delivery.id,
            "webhook-timestamp": at,
        }
        if self._secret is not None:
            headers["webhook-signature"] = signature(self._secret, delivery.id, at, delivery.body)
        return headers


def signature(secret: bytes, id: str, at: str, body: str) -> str:
    """The header by which a receiver knows the sender: HMAC-SHA256 of id, time and body."""
    signed = hmac.new(secret, f"{id}.{at}.{body}".encode(), hashlib.sha256).digest()
    return f"v1,{base64.b64encode(signed).decode()}"


def key_of(secret: str) -> bytes:
    """The key that a secret stands for: base64 behind `whsec_`, or its own characters; ValueError if it is
    neither."""
    text = secret.strip()
    if not text:
        raise ValueError("it is empty")
    if not text.startswith(SECRET_PREFIX):
        return text.encode()
    return base64.b64decode(text.removeprefix(SECRET_PREFIX), validate=True)


def _post(connection: HTTPConnection, target: str, body: bytes, headers: dict[str, str]) -> Sent:
    connection.request("POST", target, body, headers)
    answer = connection.getresponse()
    status = answer.status
    if 200 <= status < 300:
        return Sent(status)
    if 300 <= status < 400:
        return Sent(status, f"HTTP {status}: it redirects, which is not followed; write the final address")
    said = answer.read(ANSWER_BYTES_MAX).decode("utf-8", "replace").strip()
    return Sent(status, f"HTTP {status}" + (f": {said}" if said else ""))


def _shut(connection: HTTPConnection) -> None:
    """End the connection, also under the feet of a thread that still waits for it."""
    sock = connection.sock
    if sock is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
    connection.close()
