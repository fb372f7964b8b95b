"""Messages that could not be dealt with: each is tried again later, and after each failure later still."""

from __future__ import annotations

import msgspec

WAIT_S_FIRST, WAIT_S_MAX = 1.0, 300.0
REMEMBERED_MAX = 10_000


class Failures(msgspec.Struct):
    """What this process tried in vain. Others try for themselves."""

    _waits: dict[str, tuple[float, float]] = msgspec.field(default_factory=dict)
    """By message: from when on it may be tried, and how long that was put off."""

    def may_try(self, message: str, now_s: float) -> bool:
        """Whether a message may be tried now."""
        until_s, _ = self._waits.get(message, (now_s, 0.0))
        return now_s >= until_s

    def note(self, message: str, now_s: float) -> float:
        """It failed; says for how long it is put off."""
        _, before_s = self._waits.get(message, (0.0, 0.0))
        wait_s = min(2 * before_s, WAIT_S_MAX) or WAIT_S_FIRST
        if len(self._waits) >= REMEMBERED_MAX:
            self._waits.clear()
        self._waits[message] = now_s + wait_s, wait_s
        return wait_s

    def forget(self, message: str) -> None:
        """It was dealt with."""
        self._waits.pop(message, None)
