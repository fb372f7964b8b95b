"""Whether a process is healthy: it reaches its database, and it claims runs."""

from __future__ import annotations

import itertools

SLOW_S_MIN, SLOW_S = 1.0, 5.0
STALE_S = 30.0


def slow_after_s(lease_s: float | None) -> float:
    """How long a call may take before the database counts as unreachable: the interval between heartbeats.

    A worker whose heartbeats get no answer is about to lose its runs. The store itself waits longer for a
    server to come back before a call fails.
    """
    return SLOW_S if lease_s is None else min(SLOW_S, max(SLOW_S_MIN, lease_s / 3))


class Health:
    """The state of the calls to the database. `fault` is None if all is well, else a sentence."""

    def __init__(self, now_s: float) -> None:
        self.is_draining, self.slow_s = False, SLOW_S
        self._reached_s = now_s
        self._failure = ""
        self._waiting: dict[int, float] = {}
        self._calls = itertools.count()

    def asking(self, now_s: float) -> int:
        """A call begins; returns its number, to report its end."""
        call = next(self._calls)
        self._waiting[call] = now_s
        return call

    def answered(self, call: int, now_s: float) -> None:
        """The database answered, perhaps with a refusal."""
        del self._waiting[call]
        self._reached_s, self._failure = now_s, ""

    def failed(self, call: int, why: str) -> None:
        """The database did not answer, or it answered that it cannot do its work."""
        del self._waiting[call]
        self._failure = why

    def dropped(self, call: int) -> None:
        """The caller no longer waits for the answer."""
        del self._waiting[call]

    def fault(self, now_s: float) -> str | None:
        """What is wrong; a call that hangs is noticed before it fails."""
        if self.is_draining:
            return "draining: this worker claims no new runs."
        if self._failure:
            return f"the database cannot be reached: {self._failure}"
        slowest_s = max((now_s - began_s for began_s in self._waiting.values()), default=0.0)
        if slowest_s > self.slow_s:
            return f"the database has not answered for {slowest_s:.0f} s."
        if now_s - self._reached_s > STALE_S:
            return f"no answer from the database for {now_s - self._reached_s:.0f} s."
        return None
