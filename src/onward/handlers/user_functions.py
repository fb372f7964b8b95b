"""Functions of users: plain ones in threads, async ones in tasks. Neither can be forced to end.

Python cannot end a thread, and a coroutine may swallow its cancellation. A function that still runs after its
attempt stays registered (`running`) under the step's idempotency key until it returns, whatever ended its
attempt: a time-out, a stop, a lost lease. So an attempt can wait for a function that outlived its time limit,
and no other attempt of the step starts beside it in this process.

What a call of a flow runs is registered under that call (`of_call`): the next attempt of the flow goes on
beside it, and only the same call waits for it.

The time limit of an attempt stands still while a call waits for its turn (`Stopwatch`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec

from onward.clock import Clock
from onward.errors import Refused
from onward.handlers.copies import end_copies
from onward.threads import begin_in_thread


class Stopwatch:
    """Counts the time that an attempt works. Waiting until a limit has room for a call is not its work."""

    def __init__(self) -> None:
        self._waiting = 0
        self._stands, self._runs = asyncio.Event(), asyncio.Event()
        self._runs.set()

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Inside the block no time passes for the attempt."""
        self._waiting += 1
        self._stands.set()
        self._runs.clear()
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._stands.clear()
                self._runs.set()

    async def wait_s(self, seconds: float, clock: Clock) -> None:
        """Return when the attempt has worked for so long."""
        left_s = seconds
        while True:
            await self._runs.wait()
            began_s = clock.awake_s()
            await clock.wait_s(left_s, self._stands)
            if not self._stands.is_set():
                return
            left_s = max(0.0, left_s - (clock.awake_s() - began_s))


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, eq=False)
class RunningFunction:
    """One function. `told` says where it runs; `is_gone`: its event loop is closed, so it never ends."""

    told: str
    is_gone: Callable[[], bool] = _never


class Running:
    """Functions that have not returned. Safe to use from any thread."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Start empty; also called in a fork of this process, which has none of its threads."""
        self._lock = threading.Lock()
        self._entries: dict[str, list[RunningFunction]] = {}
        self._waiting: dict[str, list[Callable[[], object]]] = {}

    def begin(self, key: str, entry: RunningFunction) -> None:
        with self._lock:
            self._entries.setdefault(key, []).append(entry)

    def end(self, key: str, entry: RunningFunction) -> None:
        with self._lock:
            left = self._entries[key] = [other for other in self._left(key) if other is not entry]
            waiting = () if left else self._waiting.pop(key, ())
            if not left:
                del self._entries[key]
        for tell in waiting:
            with contextlib.suppress(RuntimeError):  # its loop is closed
                tell()

    def has(self, key: str) -> bool:
        if key not in self._entries:
            return False
        with self._lock:
            return bool(self._left(key))

    def told(self, key: str) -> str:
        """Where the functions of this key run."""
        with self._lock:
            return " and ".join(dict.fromkeys(entry.told for entry in self._left(key)))

    def below(self, key: str) -> list[str]:
        """The keys that begin with this one and have functions that still run."""
        with self._lock:
            return [one for one in list(self._entries) if one.startswith(key) and self._left(one)]

    def on_idle(self, key: str, tell: Callable[[], object]) -> None:
        with self._lock:
            if self._left(key):
                self._waiting.setdefault(key, []).append(tell)
                return
        tell()

    def _left(self, key: str) -> list[RunningFunction]:
        """The functions of this key that may still run; forgets the others."""
        left = [entry for entry in self._entries.pop(key, ()) if not entry.is_gone()]
        if left:
            self._entries[key] = left
        return left


running = Running()
of_call: ContextVar[str] = ContextVar("onward_call_of_flow", default="")
"""The call of a flow that the current code is in."""
os.register_at_fork(after_in_child=running.forget)
end_copies()


T = TypeVar("T")
PATIENCE_S = 60.0
"""How long to wait for a function that does not end. After that its step is in doubt."""


class Functions(msgspec.Struct, eq=False):
    """The functions that one attempt calls, and those of earlier attempts of its step that still run."""

    _key: str
    _clock: Clock
    _stopwatch: Stopwatch | None = None
    is_open: bool = True

    @property
    def stopwatch(self) -> Stopwatch:
        """Counts the time of the attempt; only an attempt with a time limit, or one that waits, needs it."""
        if self._stopwatch is None:
            self._stopwatch = Stopwatch()
        return self._stopwatch

    def check_open(self) -> None:
        """Refuse any request of an attempt that has ended."""
        if not self.is_open:
            raise Refused(
                "attempt_over",
                f"this attempt of {self._key} has ended and cannot start anything more; return from the "
                "function.",
            )

    def close(self) -> None:
        """End the attempt."""
        self.is_open = False

    async def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a plain function in a thread. A cancelled caller leaves it running, and registered."""
        key = self._key_now()
        name = f"onward {key}"
        entry = RunningFunction(
            f"its function still runs in thread {name!r} of process {os.getpid()}, which cannot be stopped"
        )
        # Before the thread starts: an attempt that ends at that moment must see it.
        running.begin(key, entry)
        try:
            answer = begin_in_thread(
                partial(function, *arguments), name=name, ended=partial(running.end, key, entry)
            )
        except BaseException:
            running.end(key, entry)
            raise
        return await answer

    def _key_now(self) -> str:
        """What is begun now is registered under this."""
        call = of_call.get()
        return self._key_of(call) if call else self._key

    def _key_of(self, call: str) -> str:
        return f"{self._key}:{call}"

    async def attend(self, name: str, function: Awaitable[T]) -> T:
        """Await an async function in its own task. A cancelled caller cancels it and waits for its end.

        After `PATIENCE_S`, or when the caller is cancelled again, it is left running, and registered.
        """
        task = asyncio.create_task(without_exit(function, name, self._key))
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            try:
                await self._wait_ended(task)
            finally:
                if not task.done():
                    self._leave(task, name)
            if not task.done():
                raise
        result = task.result()
        if isinstance(result, SystemExit):
            raise result
        return result

    async def _wait_ended(self, task: asyncio.Task[Any]) -> None:
        ended = asyncio.Event()
        task.add_done_callback(lambda _: ended.set())
        await self._clock.wait_s(PATIENCE_S, ended)

    def _leave(self, task: asyncio.Task[Any], name: str) -> None:
        entry = RunningFunction(
            f"its async function {name} is still running in process {os.getpid()}, although it was cancelled",
            is_gone=lambda: task.get_loop().is_closed(),  # it also keeps the task from the garbage collector
        )
        key = self._key_now()
        running.begin(key, entry)
        task.add_done_callback(partial(_ended, key, entry))
        # Otherwise the end of the event loop would wait for it without limit.
        asyncio._unregister_task(task)
        task._log_destroy_pending = False  # type: ignore[attr-defined] # the run's log has it

    def is_busy(self, call: str = "") -> bool:
        """Whether a function that any attempt of the step called still runs; or that this call of a flow did.

        What calls of a flow run does not count for the step.
        """
        return running.has(self._key_of(call) if call else self._key)

    def told(self, call: str = "") -> str:
        """What still runs and where, for a person."""
        return running.told(self._key_of(call) if call else self._key)

    @property
    def are_calls_busy(self) -> bool:
        """Whether a function still runs that any call of a flow has begun."""
        return bool(running.below(f"{self._key}:"))

    async def wait_idle(self, call: str = "") -> bool:
        """Wait up to `PATIENCE_S` for the functions of the step, or of a call, to end; whether they have."""
        key = self._key_of(call) if call else self._key
        await self._wait_all([key])
        return not running.has(key)

    async def wait_all(self) -> None:
        """Wait up to `PATIENCE_S` for every function of the step and of its calls to return."""
        await self._wait_all([self._key, *running.below(f"{self._key}:")])

    async def _wait_all(self, keys: Sequence[str]) -> None:
        left = set(filter(running.has, keys))
        if not left:
            return
        idle, loop = asyncio.Event(), asyncio.get_running_loop()

        def ended(key: str) -> None:
            left.discard(key)
            if not left:
                idle.set()

        for key in tuple(left):
            running.on_idle(key, partial(loop.call_soon_threadsafe, ended, key))
        await self._clock.wait_s(PATIENCE_S, idle)
        await asyncio.sleep(0)  # the caller that waits for the function's result comes first


async def without_exit(function: Awaitable[T], name: str, key: str) -> T | SystemExit:
    """The function's value. A SystemExit is returned too: raised in a task, it would end the event loop.

    `name` and `key` say whose function it is, to whoever finds this on a stack.
    """
    try:
        return await function
    except SystemExit as error:
        return error


def _ended(key: str, entry: RunningFunction, task: asyncio.Task[Any]) -> None:
    """Unregister it, and take its error, which asyncio would report as never retrieved."""
    running.end(key, entry)
    if not task.cancelled():
        task.exception()
