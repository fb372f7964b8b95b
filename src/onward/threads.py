"""Run a function in its own thread, beside the event loop.

asyncio's pool has a few threads for all callers, and a few functions that never return would occupy them all.
So each call here gets a new thread. The threads are daemons: the process may end while one still runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Call the function with the caller's context variables. If the caller is cancelled, it keeps running."""
    return await begin_in_thread(lambda: function(*arguments))


def begin_in_thread(
    function: Callable[[], T], *, name: str | None = None, ended: Callable[[], None] = lambda: None
) -> asyncio.Future[T]:
    """Call the function in a thread; returns a future of the result.

    `ended` is called after the function: before anybody sees the result, and also if nobody waits for it. So
    it may be called twice, in two threads. RuntimeError if the system has no thread left: then nothing was
    called.
    """
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    answer: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        settle: Callable[[], None]
        try:
            returned = context.run(function)
            settle = lambda: answer.set_result(returned)  # noqa: E731 - one of two
        except BaseException as error:
            raised = _acceptable(error)
            settle = lambda: answer.set_exception(raised)  # noqa: E731

        def hand_over() -> None:
            if not answer.done():
                settle()
            ended()  # this thread may be held up for long before it comes to its own

        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits for it
            loop.call_soon_threadsafe(hand_over)
        ended()

    threading.Thread(target=work, name=name, daemon=True).start()
    return answer


def _acceptable(error: BaseException) -> BaseException:
    """The error, but StopIteration as another one: a future does not accept it."""
    if isinstance(error, StopIteration):
        return RuntimeError(f"the function raised StopIteration: {error}")
    return error
