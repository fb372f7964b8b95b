"""Functions of users: plain ones in threads, async ones in tasks. Neither can be ended against its will.

Python cannot end a thread, and a coroutine may swallow its cancellation. What still runs after its attempt
is registered (`running`) under the step's idempotency key until it returns. So an attempt can wait for a
function that outlived its time limit, and no other attempt of the step begins in this process beside it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from onward.clock import Clock
from onward.errors import Refused
from onward.handlers.running import Entry, running
from onward.threads import begin_in_thread

T = TypeVar("T")
PATIENCE_S = 60.0
"""How long a function that does not end is waited for. After that its step is in doubt."""


class Calls:
    """What one attempt calls, and what earlier attempts of its step called and is not over."""

    __slots__ = ("_clock", "_key", "is_open")

    def __init__(self, key: str, clock: Clock) -> None:
        self._key, self._clock = key, clock
        self.is_open = True

    def check_open(self) -> None:
        """Refuse what an attempt asks for after its end."""
        if not self.is_open:
            raise Refused(
                "attempt_over",
                f"this attempt of {self._key} has ended and can start nothing more; "
                "return from the function.",
            )

    def close(self) -> None:
        """The attempt is over."""
        self.is_open = False

    async def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a plain function in a thread. A cancelled caller leaves it running, and registered."""
        name = f"onward {self._key}"
        entry = Entry(
            f"its function is running in thread {name!r} of process {os.getpid()}, which cannot be ended"
        )
        # Before the thread begins: an attempt that ends just then must see that there is one.
        running.begin(self._key, entry)
        try:
            answer = begin_in_thread(
                partial(function, *arguments), name=name, ended=partial(running.end, self._key, entry)
            )
        except BaseException:
            running.end(self._key, entry)
            raise
        return await answer

    async def attend(self, name: str, function: Awaitable[T]) -> T:
        """Await an async function in a task of its own. A cancelled caller cancels it and waits for its end.

        After `PATIENCE_S`, or when the caller is cancelled again, it is left running, and registered.
        """
        task = asyncio.create_task(_without_exit(function))
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
        entry = Entry(
            f"its async function {name} is still running in process {os.getpid()}, although it was cancelled",
            is_gone=lambda: task.get_loop().is_closed(),  # it also keeps the task from the garbage collector
        )
        running.begin(self._key, entry)
        task.add_done_callback(partial(_ended, self._key, entry))
        # Else the end of the event loop would wait for it again, and without end.
        asyncio._unregister_task(task)
        task._log_destroy_pending = False  # type: ignore[attr-defined] # the log of the run tells of it

    @property
    def is_busy(self) -> bool:
        """Whether a function that was called for the step, by whatever attempt, does not end."""
        return running.has(self._key)

    @property
    def told(self) -> str:
        """What still runs, for a person who wants to look for it."""
        return running.told(self._key)

    async def wait_idle(self) -> bool:
        """Whether every function of the step has returned, at the latest after `PATIENCE_S`."""
        if not self.is_busy:
            return True
        idle, loop = asyncio.Event(), asyncio.get_running_loop()
        running.on_idle(self._key, partial(loop.call_soon_threadsafe, idle.set))
        await self._clock.wait_s(PATIENCE_S, idle)
        await asyncio.sleep(0)  # whoever waits for what the function returned comes first
        return not self.is_busy


async def _without_exit(function: Awaitable[T]) -> T | SystemExit:
    """What it returns. Raised out of a task, a SystemExit would end the event loop: it is returned too."""
    try:
        return await function
    except SystemExit as error:
        return error


def _ended(key: str, entry: Entry, task: asyncio.Task[Any]) -> None:
    """Nothing waits for its result. Take its error, which asyncio would report as never retrieved."""
    running.end(key, entry)
    if not task.cancelled():
        task.exception()
