"""Our end of a supervised command: request it, follow it, collect its output.

`supervisor.py`, beside this file, is the program at the other end. It is started by its path.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from onward.host import commands_name, host_identity

SUPERVISOR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "supervisor.py")
BUSY = {errno.EAGAIN, errno.ETOOMANYREFS}  # too many requests, or descriptors, are in transit
CHUNK_BYTES = 1 << 16
CHUNKS_LEFT_MAX = 16  # of a pipe: 1 MiB at most, unless a process outside the command still writes


class _Name:
    """A socket that shows others that commands of this process may run.

    It has no file. Every nursery inherits it, and every supervisor from its nursery, so its name is in use as
    long as one of them lives. This process has it too, which does not matter: others look for it only when
    this process has ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def held(self) -> int:
        """The descriptor of the socket; -1 if the system has no such sockets."""
        if sys.platform != "linux":
            return -1
        with self._lock:
            if self._socket is None:
                me, held = host_identity(), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                with contextlib.suppress(OSError):
                    held.bind("\0" + commands_name(me.pid, me.started))
                self._socket = held
            return self._socket.fileno()

    def forget(self) -> None:
        """Called in a fork of this process, which is a different process and may live longer."""
        self._lock = threading.Lock()
        if self._socket is not None:
            self._socket.close()
            self._socket = None


_name = _Name()
os.register_at_fork(after_in_child=_name.forget)


class NurseryClient:
    """The process that forks supervisors. It ends with this object, and in any case with this process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        requests, theirs = socket.socketpair()
        requests.setblocking(False)
        owner, name = _own_pidfd(), _name.held()
        arguments = [sys.executable, "-I", "-S", SUPERVISOR, str(theirs.fileno()), str(owner), str(name)]
        try:
            # No environment: the commands run below it and must not find our secrets in it. A session
            # of its own: Ctrl-C in the terminal is for us, and we may let the command finish.
            process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={},
                pass_fds=[fd for fd in (theirs.fileno(), owner, name) if fd >= 0],
                start_new_session=True,
            )
        except BaseException:
            requests.close()
            raise
        finally:
            theirs.close()
            if owner >= 0:
                os.close(owner)
        self._requests = requests
        self.close = weakref.finalize(self, _end, self.pid, process, requests)

    async def ask(self, *fds: int) -> None:
        """Have a supervisor forked that owns these descriptors; OSError if the nursery is gone."""
        while True:
            try:
                socket.send_fds(self._requests, [b"?"], list(fds))
                return
            except OSError as error:
                if error.errno not in BUSY:
                    raise
            await asyncio.sleep(0.01)


class Child:
    """One supervised command, from the request until none of its processes is left."""

    def __init__(self, control: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = loop.create_future()  # the shell
        self.gone: asyncio.Future[None] = loop.create_future()  # everything
        self.is_begun = False
        self.status: int | None = None
        self.failure: tuple[int, str] | None = None
        self._loop, self._control, self._heard, self._is_sent = loop, control, b"", False
        self._kill_at_s: float | None = None
        control.setblocking(False)
        loop.add_reader(control, self._hear)

    async def send(self, request: bytes, kill_at_s: float | None = None) -> None:
        """Send what to run, and until when. A supervisor that is already gone is noticed elsewhere."""
        self._kill_at_s = kill_at_s
        request = _instant(kill_at_s) + b"\0" + request
        with contextlib.suppress(ConnectionError):
            await self._loop.sock_sendall(self._control, len(request).to_bytes(4, "big") + request)
        self._is_sent = True
        if self._kill_at_s != kill_at_s:  # it moved while the request was being sent
            self._order(b"D" + _instant(self._kill_at_s))

    def kill_at(self, at_s: float | None) -> None:
        """Tell the supervisor at which time of the awake clock to kill everything by itself."""
        self._kill_at_s = at_s
        if self._is_sent:
            self._order(b"D" + _instant(at_s))

    async def stop(self, grace_s: float) -> None:
        """Terminate, then kill, and return when nothing is left. If cancelled, kill at once."""
        try:
            if self._is_sent and not self.gone.done():
                self._order(b"T")
                await within(self.gone, grace_s)
        finally:
            await self._kill()

    def _order(self, order: bytes) -> None:
        with contextlib.suppress(OSError):  # a supervisor that is gone has nothing left to do
            self._control.send(order + b"\n")

    async def _kill(self) -> None:
        cancelled: asyncio.CancelledError | None = None
        while not self.gone.done():
            with contextlib.suppress(OSError):
                # Closing the socket would also kill, but then we would not hear when all are gone.
                self._control.shutdown(socket.SHUT_WR)
            try:
                await asyncio.wait([self.gone])
            except asyncio.CancelledError as error:
                cancelled = error  # raised later: the caller relies on nothing being left
        if cancelled is not None:
            raise cancelled

    def close(self) -> None:
        self._loop.remove_reader(self._control)
        self._control.close()

    def _hear(self) -> None:
        try:
            data = self._control.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            self._note(line.decode("ascii"))
        if not data:
            self._loop.remove_reader(self._control)
            self._settle(self.ended, self.gone)

    def _note(self, line: str) -> None:
        match line[0], line[1:]:
            case "+", _:
                self.is_begun = True
            case "!", failure:
                number, what = failure.split()
                self.failure = int(number), what
                self._settle(self.ended)
            case "=", status:
                self.status = int(status)
                self._settle(self.ended)
            case ".", _:
                self._settle(self.ended, self.gone)

    def _settle(self, *futures: asyncio.Future[None]) -> None:
        for future in futures:
            if not future.done():
                future.set_result(None)


class Clean(Protocol):
    """Takes secrets out of what comes in pieces."""

    def feed(self, data: bytes) -> bytes:
        """What can be passed on."""
        ...

    def finish(self) -> bytes:
        """The rest."""
        ...


class Capture:
    """The last bytes that a command prints to one stream, however much it prints."""

    def __init__(
        self,
        fd: int,
        bytes_max: int,
        hear: Callable[[bytes], None] | None = None,
        clean: Clean | None = None,
    ) -> None:
        """`hear` gets everything as it comes. Whatever is kept or heard went through `clean` first."""
        self._hear, self._clean = hear, clean
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.is_cut = False
        self._fd, self._bytes_max, self._kept = fd, bytes_max, bytearray()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    def text(self) -> str:
        """What was kept, as text that any store can hold: invalid bytes and NUL are replaced."""
        self._flush()
        kept = self._kept
        if self.is_cut:
            start = next((at for at in range(min(4, len(kept))) if kept[at] & 0xC0 != 0x80), 0)
            kept = kept[start:]  # the rest of a character that was cut in two
        return kept.decode("utf-8", "replace").replace("\0", "\N{REPLACEMENT CHARACTER}")

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        for _ in range(CHUNKS_LEFT_MAX):  # of a command that was ended, the pipe may hold the last words
            if not self._read():
                break
        self._flush()
        os.close(self._fd)

    def _read(self) -> bool:
        """Take what is there; says whether there was anything."""
        try:
            data = os.read(self._fd, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if data:
            self._keep(data if self._clean is None else self._clean.feed(data))
            return True
        self._flush()
        self._loop.remove_reader(self._fd)
        if not self.closed.done():
            self.closed.set_result(None)
        return False

    def _flush(self) -> None:
        """Keep what was held back, because it might have been the beginning of a secret."""
        if self._clean is not None:
            self._keep(self._clean.finish())

    def _keep(self, data: bytes) -> None:
        if not data:
            return
        if self._hear is not None:
            self._hear(data)
        self._kept += data
        excess = len(self._kept) - self._bytes_max
        if excess > 0:
            self.is_cut = True
            del self._kept[:excess]  # a bytearray drops its beginning without moving the rest


async def within(future: asyncio.Future[None], seconds: float | None) -> bool:
    """Whether the future was done in time; if not, it is not cancelled."""
    if not future.done():
        await asyncio.wait([future], timeout=seconds)
    return future.done()


def _instant(at_s: float | None) -> bytes:
    return b"" if at_s is None else repr(at_s).encode("ascii")


def _own_pidfd() -> int:
    """A descriptor that becomes readable when this process dies; -1 where the system has none."""
    try:
        return os.pidfd_open(os.getpid())
    except (AttributeError, OSError):
        return -1  # closed sockets show it too, unless a fork of ours still has them open


def _end(pid: int, process: subprocess.Popen[bytes], requests: socket.socket) -> None:
    requests.close()
    if os.getpid() == pid:  # a fork inherits this object, but the nursery is its parent's
        process.kill()
        process.wait()
