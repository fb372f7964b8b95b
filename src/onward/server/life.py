"""The life cycle of a server: its socket, recovery, its worker, and shutdown.

The socket is bound first, so that a port in use fails before a run is touched; no connection is accepted
before interrupted runs have been recovered. During shutdown it accepts no new work and lets steps finish,
while clients can still read; then the listener closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import uvicorn

from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput
from onward.operations.requests import RecoverRuns
from onward.server.context import Context
from onward.server.protocol import DeafWebSocket, StrictProtocol
from onward.server.settings import ServeSettings

if TYPE_CHECKING:
    from onward.operations.protocol import Operations
    from onward.worker import Shift

recovery_log = logging.getLogger("onward.recovery")
IDLE_S, CLOSE_S = 75, 5
WITHOUT_TLS_CHARACTERS_MIN, TOKEN_CHARACTERS_MIN = 32, 16


def check_bind(settings: ServeSettings, chosen: str | None) -> None:
    """Refuse connections from other machines without TLS, or with a token that could be guessed."""
    if chosen is not None and (len(chosen) < TOKEN_CHARACTERS_MIN or not chosen.isprintable()):
        raise InvalidInput(f"ONWARD_TOKEN has fewer than {TOKEN_CHARACTERS_MIN} printable characters.")
    if chosen is not None and not (chosen.isascii() and " " not in chosen):
        raise InvalidInput("ONWARD_TOKEN has a space, or a character that is not ASCII.")
    if settings.is_loopback:
        return
    if chosen is not None and len(chosen) < WITHOUT_TLS_CHARACTERS_MIN:
        raise InvalidInput(
            f"{settings.host} can be reached from elsewhere, and ONWARD_TOKEN has fewer than "
            f"{WITHOUT_TLS_CHARACTERS_MIN} characters."
        )
    if not settings.is_tls and not settings.insecure_http:
        raise InvalidInput(
            f"{settings.host} can be reached from elsewhere, and tokens could be read in transit; give "
            "--tls-cert and --tls-key, or put a proxy in front of 127.0.0.1, or give --insecure-http."
        )


def check_files(paths: Iterable[str]) -> None:
    """Refuse a database that another user owns, or that other users may write."""
    for path in paths:
        try:
            found = os.stat(path)
        except FileNotFoundError:
            continue
        if found.st_uid != os.getuid() and os.getuid() != 0:
            raise InvalidInput(f"{path} belongs to another user; a server uses only files of its own user.")
        if stat.S_IMODE(found.st_mode) & 0o022:
            raise InvalidInput(f"other users may write to {path}; to fix this, run `chmod go-w {path}`.")


@contextlib.contextmanager
def bound(settings: ServeSettings) -> Iterator[socket.socket]:
    """The socket, bound and not yet listening; InvalidInput if it cannot be."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        try:
            sock.bind((settings.host, settings.port))
            sock.listen(2048)  # else a second server on this port would find out too late
        except OSError as error:
            raise InvalidInput(_cannot(error, settings)) from None
        yield sock


def _cannot(error: OSError, settings: ServeSettings) -> str:
    where = f"port {settings.port} of {settings.host}"
    if error.errno == errno.EADDRINUSE:
        return f"{where} is in use; stop the process that uses it, or choose another with --port."
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{where} needs more privileges; choose a port above 1023."
    return f"cannot listen on {where}: {error.strerror or error}."


async def recover(operations: Operations, say: Callable[[str], None] | None) -> None:
    """Stop or requeue the runs of dead processes, and report them in the words that people look for.

    They are lines of the log; `say` gets them if the log is not printed anyway.
    """
    with contextlib.nullcontext() if say is None else _heard(say):
        await operations.decide.recover_runs(RecoverRuns())


@contextlib.contextmanager
def _heard(say: Callable[[str], None]) -> Iterator[None]:
    """Say what the log has of a recovery inside."""
    told, before = _Told(say), recovery_log.level
    recovery_log.addHandler(told)
    recovery_log.setLevel(logging.INFO)
    try:
        yield
    finally:
        recovery_log.setLevel(before)
        recovery_log.removeHandler(told)


class _Told(logging.Handler):
    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        self._say(record.getMessage())


class Listener(uvicorn.Server):
    """Uvicorn, without its hands on the signals: it would raise them again before the worker has drained."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals to the process that started the server."""
        yield


def listener(app: Any, settings: ServeSettings) -> Listener:
    """The server that accepts connections. It ignores addresses that a proxy sends."""
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http=StrictProtocol,
        ws=DeafWebSocket,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=CLOSE_S,
        ws_max_size=64 * 1024,
        ws_per_message_deflate=False,
    )
    try:
        config.load()
    except (OSError, ValueError) as error:
        raise InvalidInput(f"the certificate or its key cannot be used: {error}.") from None
    return Listener(config)


async def live(
    context: Context,
    server: Listener,
    sock: socket.socket,
    *,
    work: Callable[[], Awaitable[Shift]],
    stop: StopSwitch,
    opened: Callable[[], None],
    until_left: Callable[[], Awaitable[None]],
) -> Shift:
    """Serve until asked to stop, and until the worker has drained; returns what it did.

    `until_left` waits for streams to end, for the listener would cut them off without their last frame.

    A worker that fails, because the database is gone, ends the server with its error.
    """
    life = context.life

    def asked() -> None:
        life.draining.set()

    stop.listen(asked)
    serving = asyncio.create_task(server.serve(sockets=[sock]), name="onward listener")
    working = asyncio.ensure_future(work())
    try:
        opened()
        await asyncio.wait([serving, working], return_when=asyncio.FIRST_COMPLETED)
        life.draining.set()
        life.ending.set()
        if not stop.is_now:
            await until_left()
        server.should_exit = True
        server.force_exit = stop.is_now
        await serving
        return await working
    finally:
        stop.unlisten(asked)
        server.should_exit = server.force_exit = True
        for task in (working, serving):
            if not task.done():
                task.cancel()
        await asyncio.gather(serving, working, return_exceptions=True)
