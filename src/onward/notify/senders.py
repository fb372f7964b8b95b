"""Telling a command or an address what happened to a run.

**A command** gets the facts as JSON on its standard input, and the main ones in its environment. It runs
below a supervisor like every command of a step: in a process group of its own, with a time limit, and
nothing that it started is left afterwards. It gets the variables that tools always get, and those that are
named.

**An address** gets one POST with the facts as JSON, signed as Standard Webhooks are. The address is the
operator's, from the settings' file; no pipeline chooses it. It is parsed once. A redirect is not followed,
so that neither the facts nor the signature go elsewhere. Each request has a thread and a connection of its
own; when the time is over, the connection is shut and the thread ends.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from urllib.parse import urlsplit

import msgspec

from onward.clock import Clock
from onward.errors import OnwardError
from onward.notify.courier import SendResult
from onward.process import CommandExit, SystemSpawn
from onward.store.port.runs import Delivery
from onward.threads import in_thread
from onward.version import VERSION


class CommandSender:
    """Runs a command for each notification; exit code 0 means delivered. A `str` is for the shell."""

    def __init__(
        self,
        command: str | tuple[str, ...],
        spawn: SystemSpawn,
        *,
        environment: Mapping[str, str],
        cwd: str | None,
        timeout_s: float,
    ) -> None:
        self._command, self._environment = command, dict(environment)
        self._cwd, self._timeout_s = cwd, timeout_s
        self._spawn = spawn

    async def send(self, delivery: Delivery) -> SendResult:
        env = {**self._environment, **variables(delivery)}
        body = delivery.body.encode()
        try:
            if isinstance(self._command, str):
                finished = await self._spawn.run(
                    self._command, env=env, cwd=self._cwd, timeout_s=self._timeout_s, stdin=body
                )
            else:
                finished = await self._spawn.run_program(
                    self._command, env=env, cwd=self._cwd, timeout_s=self._timeout_s, stdin=body
                )
        except OnwardError as error:  # it did not run
            return SendResult(None, str(error))
        return _sent(finished, self._timeout_s)

    def close(self) -> None:
        self._spawn.close()


def _sent(finished: CommandExit, timeout_s: float) -> SendResult:
    if finished.timed_out:
        return SendResult(finished.exit_code, f"timed out after {timeout_s:g} s")
    if finished.signal is not None:
        return SendResult(None, f"ended by signal {finished.signal}")
    if finished.exit_code == 0:
        return SendResult(0)
    said = finished.stderr.strip() or finished.stdout.strip().rpartition("\n")[2]
    return SendResult(finished.exit_code, f"exit code {finished.exit_code}" + (f": {said}" if said else ""))


def variables(delivery: Delivery) -> dict[str, str]:
    """The main facts, for a command that does not read JSON. Texts that steps wrote are not among them."""
    facts = msgspec.json.decode(delivery.body)  # a newer Onward may have written more of them
    told = {
        "ONWARD_DELIVERY_ID": delivery.id,
        "ONWARD_NOTIFICATION": delivery.kind.value,
        "ONWARD_RUN_ID": delivery.run_id,
        "ONWARD_DISPLAY_ID": facts["display_id"],
        "ONWARD_PIPELINE": facts["pipeline"],
        "ONWARD_STATUS": facts["status"],
        "ONWARD_REASON": facts["reason"],
        **({} if facts["gate"] is None else {"ONWARD_GATE": facts["gate"]["gate"]}),
    }
    return {name: value.replace("\0", "") for name, value in told.items()}


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

    async def send(self, delivery: Delivery) -> SendResult:
        connection = self._connection()
        headers, body = self._headers(delivery), delivery.body.encode()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await in_thread(_post, connection, self._target, body, headers)
        except TimeoutError:
            return SendResult(None, f"no response within {self._timeout_s:g} s")
        # ValueError: a chunk of a negative length. RuntimeError: the system has no thread left.
        except (OSError, HTTPException, ValueError, RuntimeError) as error:
            why = error.strerror if isinstance(error, OSError) else None
            return SendResult(None, f"no response: {why or str(error) or type(error).__name__}")
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


def _post(connection: HTTPConnection, target: str, body: bytes, headers: dict[str, str]) -> SendResult:
    connection.request("POST", target, body, headers)
    answer = connection.getresponse()
    status = answer.status
    if 200 <= status < 300:
        return SendResult(status)
    if 300 <= status < 400:
        return SendResult(status, f"HTTP {status}: redirects are not followed; write the final address")
    said = answer.read(ANSWER_BYTES_MAX).decode("utf-8", "replace").strip()
    return SendResult(status, f"HTTP {status}" + (f": {said}" if said else ""))


def _shut(connection: HTTPConnection) -> None:
    """End the connection, also under the feet of a thread that still waits for it."""
    sock = connection.sock
    if sock is not None:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
    connection.close()
