"""A supervised program that we talk to through pipes, for as long as it runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from onward.supervise.supervised import CHUNK_BYTES, CHUNKS_LEFT_MAX, Capture, Child, within


class Dialogue:
    """A program that reads what we write and whose output we hear. It cannot outlive this process.

    Make one with `SystemSpawn.talk`, and end it with `close`.
    """

    def __init__(
        self, child: Child, stdin: int, stdout: int, stderr: Capture, hear: Callable[[bytes], None]
    ) -> None:
        """`hear` gets what it prints, and then nothing (`b""`) once, when it will print no more."""
        self._child, self._stdin, self._stdout, self._stderr = child, stdin, stdout, stderr
        self._hear = hear
        self._loop = asyncio.get_running_loop()
        self._unsent, self._sent = bytearray(), asyncio.Event()
        self._sent.set()
        self._is_deaf = self._is_silent = False
        os.set_blocking(stdin, False)
        os.set_blocking(stdout, False)
        self._loop.add_reader(stdout, self._read)

    @property
    def is_running(self) -> bool:
        """Whether the program still runs, as far as is known."""
        return not self._child.ended.done()

    @property
    def said(self) -> str:
        """The end of what it wrote to standard error."""
        return self._stderr.text()

    async def write(self, data: bytes) -> None:
        """Send it all; BrokenPipeError if the program reads no more. A cancelled caller sends it all, too."""
        if self._is_deaf:
            raise BrokenPipeError
        self._unsent += data
        self._send()
        await self._sent.wait()
        if self._is_deaf:
            raise BrokenPipeError

    async def wait_ended(self) -> None:
        """Wait for the program's end."""
        await asyncio.wait([self._child.ended])

    @property
    def status(self) -> int | None:
        """Its wait status; None if it runs, or if that is not known."""
        return self._child.status

    @property
    def failure(self) -> tuple[int, str] | None:
        """Why it was not started: an error number, and what could not be done."""
        return self._child.failure

    async def close(self, grace_s: float) -> None:
        """Close its input; then terminate it, then kill it. Nothing that it started is left afterwards."""
        self._deafen()
        try:
            await within(self._child.gone, grace_s)
        finally:
            try:
                await self._child.stop(grace_s)
            finally:
                self._release()

    def _send(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: os.write(self._stdin, self._unsent[:CHUNK_BYTES])]
        except BlockingIOError:
            self._sent.clear()
            self._loop.add_writer(self._stdin, self._send)
            return
        except OSError:
            self._deafen()
            return
        self._loop.remove_writer(self._stdin)
        self._sent.set()

    def _deafen(self) -> None:
        """It reads no more, or has nothing more to read."""
        if not self._is_deaf:
            self._is_deaf = True
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._sent.set()

    def _read(self) -> bool:
        """Hear what is there; says whether there was anything."""
        try:
            data = os.read(self._stdout, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._silence()
            return False
        self._hear(data)
        return True

    def _silence(self) -> None:
        if not self._is_silent:
            self._is_silent = True
            self._loop.remove_reader(self._stdout)
            self._hear(b"")

    def _release(self) -> None:
        self._deafen()
        for _ in range(CHUNKS_LEFT_MAX):  # the pipe may hold its last words
            if self._is_silent or not self._read():
                break
        self._silence()
        os.close(self._stdout)
        self._stderr.close()
        self._child.close()
