"""How a process is asked to stop: first politely, then at once.

A module of its own because commands import it, and little else of the engine.
"""

from __future__ import annotations

from collections.abc import Callable

from onward.clock import Alarm, Clock, SystemClock
from onward.errors import InvalidInput
from onward.machine.plan.planner import DRAIN as DRAIN
from onward.machine.reasons import REASONS
from onward.model.run import RunStatus
from onward.model.values import WAIT

GRACE_S = 30.0
STOP_REASONS = (DRAIN, *(name for name, reason in REASONS.items() if reason.status is RunStatus.PAUSED))
"""Why a process stops its runs: they are handed back to the queue (`drain`), or paused for this reason."""


class StopSwitch:
    """Asked once: take no new work and let the step finish. Asked again, or not done in time: stop now."""

    def __init__(self, grace_s: float | None = GRACE_S, *, clock: Clock | None = None) -> None:
        self.reason: str | None = None
        self.is_now = False
        self._grace_s = None if grace_s is None else WAIT.check(grace_s, "grace_s")
        self._clock = clock or SystemClock()
        self._listeners: list[Callable[[], None]] = []
        self._grace: Alarm | None = None

    def request(self, reason: str, *, now: bool = False) -> None:
        """Ask; the second time counts as now. `reason` is one of `STOP_REASONS`."""
        if reason not in STOP_REASONS:
            raise InvalidInput(
                f"{reason!r} is not a valid reason to stop runs; use one of {', '.join(STOP_REASONS)}."
            )
        self.is_now = self.is_now or now or self.reason is not None
        self.reason = self.reason or reason
        if self.is_now and self._grace is not None:
            self._grace.cancel()
        elif not self.is_now and self._grace_s is not None:
            self._grace = self._clock.alarm(self._clock.awake_s() + self._grace_s, self._grace_is_over)
        self._notify()

    def _grace_is_over(self) -> None:
        self.is_now = True
        self._notify()

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` at every request."""
        self._listeners.append(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Do not call `listener` any more."""
        self._listeners.remove(listener)

    def _notify(self) -> None:
        for listener in tuple(self._listeners):
            listener()
