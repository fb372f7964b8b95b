"""Calls that wait for room: others have reserved what is left of a limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class WaitingCalls:
    """How many calls of a process wait, for operators."""

    def __init__(self) -> None:
        self.number = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """A call waits inside."""
        self.number += 1
        try:
            yield
        finally:
            self.number -= 1
