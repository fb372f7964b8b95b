"""How a process is asked to stop: politely, and then not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from onward.model.bounds import WAIT

GRACE_S = 30.0


class StopSwitch:
    """Asked once: take no new work and let the step finish. Asked again, or not done in time: stop now."""

    def __init__(self, grace_s: float | None = GRACE_S) -> None:
        self.reason: str | None = None
        self.is_now = False
        self._grace_s = None if grace_s is None else WAIT.check(grace_s, "grace_s")
        self._listeners: list[Callable[[], None]] = []

    def request(self, reason: str, *, now: bool = False) -> None:
        """Ask; the second time counts as now."""
        if self.reason is None and not now and self._grace_s is not None:
            asyncio.get_running_loop().call_later(self._grace_s, self._be_quick)
        self.is_now = self.is_now or now or self.reason is not None
        self.reason = self.reason or reason
        self._tell()

    def _be_quick(self) -> None:
        self.is_now = True
        self._tell()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` at every request; returns how to stop listening."""
        self._listeners.append(listener)
        return partial(self._listeners.remove, listener)

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()
