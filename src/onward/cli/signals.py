"""Ctrl-C and similar signals: the first asks to stop, the second ends the process, whatever handlers do.

The interpreter writes signal numbers into a pipe when they arrive, and the event loop reads them. If a
handler blocks the loop or the main thread, a thread reads them instead. If the process has not ended in time
after that, the thread ends it. The next holder treats what was running as cut off, exactly as after `kill
-9`.

Native code may hold the interpreter's lock, so that no thread of ours runs. If there are handlers of users,
another process (`watchdog`) sees that the pipe is not read, and kills this one.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import faulthandler
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

import msgspec

import onward.watchdog
from onward.clock import Clock, SystemClock

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WATCHDOG = onward.watchdog.__file__
FORCE_S = 5.0
"""How long a process may take to stop now, before it is ended without waiting."""
LOOP_S = 0.1
"""How long the thread leaves a signal to the event loop."""
FORCED = b"onward: stopped without waiting for what was running, which counts as cut off.\n"


class Force(msgspec.Struct, frozen=True):
    """How long the process may take after the first signal, and its exit code if it has to be ended."""

    grace_s: float
    code: int
    is_watched: bool = True
    """Whether a watchdog process enforces it, in case no code of ours can run."""


@contextmanager
def on_signals(call: Callable[[], None], force: Force | None = None) -> Iterator[None]:
    """Inside the block, signals that ask this process to stop call `call` instead.

    With `force`, the process ends after `grace_s`, or at once after a second signal. Then it has `FORCE_S` to
    record what it can; a third signal cuts that short. A SIGHUP that was ignored when the process started
    stays ignored, for `nohup`.
    """
    listener = _Listener(call, force, SystemClock())
    listener.start()
    try:
        yield
    finally:
        listener.stop()


class _Listener:
    """Receives signals, and ends the process at its deadline."""

    def __init__(self, call: Callable[[], None], force: Force | None, clock: Clock) -> None:
        self._loop, self._call, self._force, self._clock = asyncio.get_running_loop(), call, force, clock
        self._numbers = [number for number in SIGNALS if number != signal.SIGHUP or not _is_ignored(number)]
        self._reader, self._writer = os.pipe()
        self._nudged, self._nudge = os.pipe()
        for end in (self._reader, self._writer, self._nudged, self._nudge):
            os.set_blocking(end, False)
        self._thread = threading.Thread(target=self._watch, name="onward signals", daemon=True)
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._heard = 0
        self._deadline_s: float | None = None

    def start(self) -> None:
        self._fd_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, _nothing) for number in self._numbers}
        for number in self._numbers:
            signal.siginterrupt(number, False)
        self._loop.add_reader(self._reader, self._take)
        self._thread.start()
        if self._force is not None and self._force.is_watched:
            self._watchdog = _watchdog(self._reader, self._force.grace_s)

    def stop(self) -> None:
        """Restore the signal handlers; a process that is ending stays watched until it has ended."""
        self._loop.remove_reader(self._reader)
        if self._heard and self._force is not None:
            self._end_within(FORCE_S)
            atexit.register(_ignore, self._numbers)
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd_before)
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.wait()
        os.close(self._nudge)
        self._thread.join()
        for end in (self._reader, self._writer, self._nudged):
            os.close(end)

    def _take(self) -> None:
        """Read the pipe, in the loop or in the thread, whichever comes first."""
        with self._lock, contextlib.suppress(BlockingIOError):
            for number in os.read(self._reader, 64):
                if number in self._numbers:
                    self._hear()

    def _hear(self) -> None:
        self._heard += 1
        if self._force is not None:
            if self._heard > 2:
                self._leave()
            self._end_within(FORCE_S + (self._force.grace_s if self._heard == 1 else 0))
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._call)

    def _watch(self) -> None:
        """Read what the loop does not, and end the process at its deadline."""
        while True:
            ready, _, _ = select.select([self._reader, self._nudged], [], [], self._left_s())
            if not ready:
                self._leave()
            if self._nudged in ready and not os.read(self._nudged, 64):
                return
            if self._reader in ready:
                select.select([], [], [], LOOP_S)  # the loop goes first, if it runs
                self._take()

    def _end_within(self, seconds: float) -> None:
        """Set the deadline, or make it earlier."""
        left_s = self._left_s()
        if left_s is not None and left_s <= seconds:
            return
        self._deadline_s = self._clock.awake_s() + seconds
        os.write(self._nudge, b"!")
        # Native code may keep the interpreter's lock. This needs no lock, but its exit code is 1.
        faulthandler.dump_traceback_later(seconds + 1, exit=True, file=_nowhere())

    def _left_s(self) -> float | None:
        return None if self._deadline_s is None else max(0.0, self._deadline_s - self._clock.awake_s())

    def _leave(self) -> NoReturn:
        assert self._force is not None
        with contextlib.suppress(OSError):
            os.write(2, FORCED)
        os._exit(self._force.code)


def _nothing(number: int, frame: FrameType | None) -> None:
    """The signal arrives through the pipe."""


def _ignore(numbers: Sequence[signal.Signals]) -> None:
    """Let a signal no longer change the exit code: Python takes handlers away before it has ended."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def _nowhere() -> int:
    return os.open(os.devnull, os.O_WRONLY)


def _watchdog(pipe: int, grace_s: float) -> subprocess.Popen[bytes]:
    numbers = (pipe, os.getpid(), grace_s, FORCE_S)
    return subprocess.Popen(
        [sys.executable, "-I", "-S", WATCHDOG, *map(str, numbers)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
        pass_fds=[pipe],
        start_new_session=True,  # Ctrl-C in the terminal is not for it
    )


def _is_ignored(number: signal.Signals) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN
