"""A copy of this process, which a user's function has made with `os.fork` and not ended.

When the function returns, raises or waits in the copy, the copy is back in an event loop that shares its
selector, and the connections to the database, with ours. If the copy stops watching a file, this process no
longer hears of it either, and its run waits forever. So the copy ends where its loop would continue. Whatever
the function does in it before, such as replacing it by another program, is not affected.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any, NoReturn

SAID = "onward: a function has copied this process with os.fork; the copy ends here. End it with os._exit.\n"


def leave(*_: object) -> NoReturn:
    """End the copy at once: nothing is closed, since all of it is shared."""
    try:
        os.write(2, SAID.encode())
    finally:
        os._exit(1)


class _Forks(threading.local):
    """The loop that runs where a fork is made: in the copy, asyncio says that none does."""

    loop: Any = None

    def before(self) -> None:
        self.loop = asyncio._get_running_loop()

    def in_parent(self) -> None:
        self.loop = None

    def in_copy(self) -> None:
        loop, self.loop = self.loop, None
        if hasattr(loop, "_ready") and hasattr(loop, "_selector"):  # another kind of loop has others
            loop._ready.clear()
            loop._selector = _Leaving()
            loop.call_soon(leave)


class _Leaving:
    """In the place of the selector: whoever uses it in the copy ends the copy."""

    def __getattr__(self, name: str) -> NoReturn:
        leave()


def end_copies() -> None:
    """End each copy of this process, from now on, where its event loop would continue."""
    forks = _Forks()
    os.register_at_fork(before=forks.before, after_in_parent=forks.in_parent, after_in_child=forks.in_copy)
