"""Rate limits, in the memory of one process."""

from __future__ import annotations

from math import ceil

import msgspec

from onward.clock import Clock
from onward.server.problems import Problem

KNOWN_MAX = 10_000
"""Of so many callers at most is anything remembered; those that were quiet longest are forgotten."""


class _Bucket(msgspec.Struct):
    left: float
    at_s: float


class Rate:
    """At most `burst` requests at once, and `a_second` on average, of each caller."""

    def __init__(self, a_second: float, burst: float, clock: Clock) -> None:
        self._a_second, self._burst, self._clock = a_second, burst, clock
        self._buckets: dict[str, _Bucket] = {}

    def take(self, who: str, code: str = "too_many_requests") -> None:
        """Count one request; if it is over the limit, raise a Problem with the time to wait."""
        wait_s = self.wait_s(who)
        if wait_s > 0:
            raise Problem(
                429,
                code,
                "too many requests; try again later.",
                headers={"Retry-After": str(ceil(wait_s))},
            )
        self._buckets[who].left -= 1

    def wait_s(self, who: str) -> float:
        """How long until there is room for one more; 0 if there is."""
        now_s = self._clock.awake_s()
        bucket = self._buckets.pop(who, None) or _Bucket(self._burst, now_s)
        self._buckets[who] = bucket  # the last of all now
        if len(self._buckets) > KNOWN_MAX:
            del self._buckets[next(iter(self._buckets))]
        bucket.left = min(self._burst, bucket.left + (now_s - bucket.at_s) * self._a_second)
        bucket.at_s = now_s
        return 0.0 if bucket.left >= 1 else (1 - bucket.left) / self._a_second
