"""Notice that something blocks the event loop, and say what.

A thread asks the loop for a sign of life a few times a second. If none comes for long enough, it looks at the
stack of the loop's thread: a function that is still there at the second look is named. Steps pay nothing.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType

import msgspec

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
            "process runs meanwhile, not even the heartbeat; use await, a plain def, or isolated=True "
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
