"""Whether a process is well: it reaches its database, and it takes work."""

from __future__ import annotations

import itertools

SLOW_S = 5.0
STALE_S = 30.0


class Health:
    """What is known of the calls to the database. `fault` is None when all is well, else a sentence."""

    def __init__(self, now_s: float) -> None:
        self.is_draining = False
        self._reached_s = now_s
        self._failure = ""
        self._waiting: dict[int, float] = {}
        self._calls = itertools.count()

    def asking(self, now_s: float) -> int:
        """A call begins; returns what to name it by when it ends."""
        call = next(self._calls)
        self._waiting[call] = now_s
        return call

    def answered(self, call: int, now_s: float) -> None:
        """The database answered, be it with a refusal."""
        del self._waiting[call]
        self._reached_s, self._failure = now_s, ""

    def failed(self, call: int, why: str) -> None:
        """It did not, or it answered that it cannot do its work."""
        del self._waiting[call]
        self._failure = why

    def dropped(self, call: int) -> None:
        """Nobody waits for the answer any more."""
        del self._waiting[call]

    def fault(self, now_s: float) -> str | None:
        """What is wrong; a call that hangs is noticed before it fails."""
        if self.is_draining:
            return "draining: this worker takes no new runs."
        if self._failure:
            return f"the database is out of reach: {self._failure}"
        slowest_s = max((now_s - began_s for began_s in self._waiting.values()), default=0.0)
        if slowest_s > SLOW_S:
            return f"the database has not answered for {slowest_s:.0f} s."
        if now_s - self._reached_s > STALE_S:
            return f"nothing was heard of the database for {now_s - self._reached_s:.0f} s."
        return None
