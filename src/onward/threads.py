"""Threads beside the event loop: for functions that block, and to notice what blocks the loop itself.

asyncio's pool has a few threads for all callers, and a few functions that never return would occupy them
all. So each call of `in_thread` gets a new thread. The threads are daemons: the process may end while one
still runs.

`LoopWatch` asks the loop for a sign of life a few times a second, from a thread. If none comes for long
enough, it looks at the stack of the loop's thread: a function that is still there at the second look is
named. Steps pay nothing for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

import msgspec

from onward.errors import said

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
    if issubclass(type(error), StopIteration):  # what it says of itself does not count, and may raise
        return RuntimeError(f"the function raised StopIteration: {said(error)}")
    return error


log = logging.getLogger("onward.blocked")
LOOKS = 4
"""How often to ask in the time after which a loop counts as blocked."""
WAKING_S = 0.1
"""How long a process that was stopped or asleep may take until its loop answers again."""


class Culprit(msgspec.Struct, frozen=True):
    """The function that blocks a loop: what is said of it, fields for the log, and its part of the stack."""

    words: str
    fields: dict[str, str]
    caller: FrameType
    innermost: FrameType


FindCulprit = Callable[[FrameType], Culprit | None]
"""Whose function is being executed in a thread, by its innermost frame."""


class LoopWatch:
    """Logs a warning each time that a function of the user's blocks the running loop for `blocked_s`."""

    def __init__(self, blocked_s: float, find_culprit: FindCulprit) -> None:
        self._loop, self._of = asyncio.get_running_loop(), threading.get_ident()
        self._blocked_s, self._find = blocked_s, find_culprit
        self._stopped = threading.Event()
        threading.Thread(target=self._watch, name="onward loop watch", daemon=True).start()

    def stop(self) -> None:
        """Watch no longer; does not wait for the thread, which ends at once unless the loop is blocked."""
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(self._blocked_s / LOOKS):
            alive = threading.Event()
            try:
                self._loop.call_soon_threadsafe(alive.set)
            except RuntimeError:  # the loop is closed
                return
            if not alive.wait(self._blocked_s / 2):
                self._watch_blocked(alive)

    def _watch_blocked(self, alive: threading.Event) -> None:
        """Until the loop answers: tell once of each call that is seen twice, and so has had it since."""
        seen, told = self._culprit(), None
        while not (alive.wait(self._blocked_s / 2) or alive.wait(WAKING_S) or self._stopped.is_set()):
            found = self._culprit()
            if found is not None and seen is not None and found.caller is seen.caller is not told:
                self._tell(found)
                told = found.caller
            seen = found

    def _culprit(self) -> Culprit | None:
        frame = sys._current_frames().get(self._of)
        return None if frame is None else self._find(frame)

    def _tell(self, culprit: Culprit) -> None:
        if not log.isEnabledFor(logging.WARNING):
            return
        text = (
            f"{culprit.words} has blocked the event loop for {self._blocked_s:g} s, and nothing else in this "
            "process can run meanwhile, not even the heartbeat; use await, a plain def, or isolated=True "
            "(docs/functions.md)"
        )
        stack = f"Stack of the event loop:\n{_stack(culprit.innermost, culprit.caller)}"
        place = culprit.caller.f_code
        record = log.makeRecord(
            log.name, logging.WARNING, place.co_filename, place.co_firstlineno, text, (), None,
            extra=culprit.fields, sinfo=stack,
        )  # fmt: skip
        log.handle(record)


def _stack(innermost: FrameType, caller: FrameType) -> str:
    """The calls below `caller`, the innermost last."""
    frame: FrameType | None = innermost
    found: list[FrameType] = []
    while frame is not None and frame is not caller:
        found.append(frame)
        frame = frame.f_back
    summary = traceback.StackSummary.extract(((one, one.f_lineno) for one in reversed(found)), limit=30)
    return "".join(summary.format()).rstrip()
