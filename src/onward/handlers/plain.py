"""Plain functions of users, called in threads, which nobody can end.

What a step calls is registered for the whole process, under the step's idempotency key, until it returns. So
an attempt can wait for a function that outlived its time limit, and no other attempt of the step begins in
this process while one runs, whatever became of the first attempt: a time-out, a stop, a lost lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from onward.clock import Clock
from onward.errors import Refused
from onward.threads import begin_in_thread

T = TypeVar("T")


class _Running:
    """Functions that have not returned, by the key of their step. Any thread may ask and tell."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """In a fork of this process, which has none of its threads."""
        self._lock = threading.Lock()
        self.numbers: dict[str, int] = {}
        self._waiting: dict[str, list[Callable[[], object]]] = {}

    def begin(self, key: str) -> None:
        with self._lock:
            self.numbers[key] = self.numbers.get(key, 0) + 1

    def end(self, key: str) -> None:
        with self._lock:
            self.numbers[key] -= 1
            if self.numbers[key]:
                return
            del self.numbers[key]
            waiting = self._waiting.pop(key, ())
        for tell in waiting:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                tell()

    def on_idle(self, key: str, tell: Callable[[], object]) -> None:
        with self._lock:
            if key in self.numbers:
                self._waiting.setdefault(key, []).append(tell)
                return
        tell()


_running = _Running()
os.register_at_fork(after_in_child=_running.forget)


class Calls:
    """What one attempt calls, and what earlier attempts of its step called and is not over."""

    __slots__ = ("_key", "is_open")

    def __init__(self, key: str) -> None:
        self._key = key
        self.is_open = True

    def check_open(self) -> None:
        """Refuse what an attempt asks for after its end."""
        if not self.is_open:
            raise Refused(
                "attempt_over",
                f"this attempt of {self._key} is over, so nothing can be begun for it any more; "
                "return from the function.",
            )

    def close(self) -> None:
        """The attempt is over."""
        self.is_open = False

    async def call(self, function: Callable[..., T], *arguments: object) -> T:
        """What the function returns. A cancelled caller leaves it running, and registered."""
        # Before the thread begins: an attempt that ends just then must see that there is one.
        _running.begin(self._key)
        try:
            answer = begin_in_thread(
                partial(function, *arguments), name=self._name, ended=partial(_running.end, self._key)
            )
        except BaseException:
            _running.end(self._key)
            raise
        return await answer

    @property
    def _name(self) -> str:
        return f"onward {self._key}"

    @property
    def is_busy(self) -> bool:
        """Whether a function that was called for the step, by whatever attempt, has not returned."""
        return self._key in _running.numbers

    @property
    def told(self) -> str:
        """Which thread still runs, for a person who wants to look for it."""
        return f"its function runs in thread {self._name!r} of process {os.getpid()}, which cannot be ended"

    async def wait_idle(self, clock: Clock, patience_s: float) -> bool:
        """Whether every function of the step has returned, at the latest after `patience_s`."""
        if not self.is_busy:
            return True
        idle, loop = asyncio.Event(), asyncio.get_running_loop()
        _running.on_idle(self._key, partial(loop.call_soon_threadsafe, idle.set))
        await clock.wait_s(patience_s, idle)
        await asyncio.sleep(0)  # whoever waits for what the function returned comes first
        return not self.is_busy
