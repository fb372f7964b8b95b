"""When an attempt must have ended: an instant that moves with every renewal of a lease."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import msgspec


class Deadline(msgspec.Struct, eq=False):
    """When no process of an attempt may run any more, on the awake clock; None: no limit.

    The supervisor of each command enforces it by itself, even while the process that renews the lease is
    frozen.
    """

    at_s: float | None = None
    _followers: list[Callable[[float | None], None]] = []

    def move(self, at_s: float | None) -> None:
        """Replace the instant, and tell all followers."""
        self.at_s = at_s
        for tell in self._followers:
            tell(at_s)

    @contextlib.contextmanager
    def followed(self, tell: Callable[[float | None], None]) -> Iterator[None]:
        """Call `tell` whenever it moves."""
        self._followers.append(tell)
        try:
            yield
        finally:
            self._followers.remove(tell)


NO_DEADLINE = Deadline()
