"""Messages that have ended: their text is sealed soon, and a day later their chunks are deleted."""

from __future__ import annotations

import logging

from onward.clock import Clock
from onward.errors import StoreError, StoreGone
from onward.store.port.messages import Messages

log = logging.getLogger("onward.messages")
KEPT_S = 24 * 3600.0
EVERY_S = 60.0
AT_ONCE = 100


class MessageTidying:
    """Seals and tidies messages, at most once a minute. Every worker does it."""

    def __init__(self, messages: Messages, clock: Clock) -> None:
        self._messages, self._clock = messages, clock
        self._next_s = 0.0

    async def tidy(self) -> int:
        """Seal what has ended, delete old chunks; returns how many messages changed. Sealing comes first."""
        now_s = self._clock.awake_s()
        if now_s < self._next_s:
            return 0
        self._next_s = now_s + EVERY_S
        try:
            return await self._tidy()
        except StoreGone:
            raise
        except StoreError as error:  # the runs that a sweep looks for are more important
            log.warning("cannot tidy up messages: %s", error)
            return 0

    async def _tidy(self) -> int:
        now_us = self._clock.now_us()
        sealed = await self._messages.seal(at_us=now_us, limit=AT_ONCE)
        tidied = await self._messages.tidy(before_us=now_us - int(KEPT_S * 1_000_000), limit=AT_ONCE)
        if AT_ONCE in (sealed, tidied):
            self._next_s = 0.0  # there may be more: the next sweep continues
        return sealed + tidied
