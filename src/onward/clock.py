"""The ports for time, identity and chance, and the deadline of an attempt.

Only this file uses the system's clock and randomness. Everything that decides is given the time and the
dice, so a test can run a whole fleet in one thread from a seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol, TypeVar

import msgspec

from onward.model.ids import sortable_id

T = TypeVar("T")


class Alarm(Protocol):
    """A call at time `at_s` of the awake clock, unless it is cancelled."""

    @property
    def at_s(self) -> float:
        """When it rings."""
        ...

    def cancel(self) -> None:
        """Never ring; does nothing if it has already rung."""
        ...


class Clock(Protocol):
    """What time it is, for people and for deadlines."""

    def now_us(self) -> int:
        """Wall clock, microseconds since 1970, UTC."""
        ...

    def awake_s(self) -> float:
        """A clock that never jumps and continues while the machine sleeps; for deadlines of one process."""
        ...

    async def wait_s(self, seconds: float, woken: asyncio.Event) -> None:
        """Return after `seconds`, or as soon as `woken` is set."""
        ...

    def alarm(self, at_s: float, ring: Callable[[], object]) -> Alarm:
        """Call `ring` in the event loop when the awake clock reads `at_s`."""
        ...


class Ids(Protocol):
    """New identities."""

    def run_id(self, now_us: int) -> str:
        """A new run id: 26 lower-case characters that sort by creation time."""
        ...

    def unique(self) -> str:
        """A new identity for a request, a worker or an append."""
        ...


class Dice(Protocol):
    """Chance."""

    def roll(self) -> float:
        """A number in [0, 1)."""
        ...


class TookTooLong(TimeoutError):
    """Something took longer than its limit on the clock that was passed in."""


async def within(work: Awaitable[T], seconds: float, clock: Clock) -> T:
    """The result of `work`; TookTooLong if the clock says that it took longer, and it was cancelled."""
    loop = asyncio.get_running_loop()
    limit = asyncio.timeout(None)
    try:
        async with limit:
            alarm = clock.alarm(clock.awake_s() + seconds, lambda: limit.reschedule(loop.time()))
            try:
                return await work
            finally:
                alarm.cancel()
    except TimeoutError:
        if limit.expired():
            raise TookTooLong(f"took longer than {seconds:g} s") from None
        raise


class SystemClock:
    """The machine's clocks."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def awake_s(self) -> float:
        # CLOCK_BOOTTIME counts a laptop's sleep; CLOCK_MONOTONIC on Linux does not.
        return time.clock_gettime(_AWAKE_CLOCK)

    async def wait_s(self, seconds: float, woken: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(seconds):
                await woken.wait()
        except TimeoutError:
            pass

    def alarm(self, at_s: float, ring: Callable[[], object]) -> Alarm:
        return _SystemAlarm(self, at_s, ring)


class _SystemAlarm:
    """A timer on the awake clock, because the event loop's clock stops while the machine sleeps."""

    def __init__(self, clock: SystemClock, at_s: float, ring: Callable[[], object]) -> None:
        self.at_s = at_s
        self._clock, self._ring = clock, ring
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle
        self._set()

    def cancel(self) -> None:
        self._timer.cancel()

    def _set(self) -> None:
        left_s = self.at_s - self._clock.awake_s()
        if left_s > 0:
            self._timer = self._loop.call_later(min(left_s, _LOOK_EVERY_S), self._set)
        else:
            self._timer = self._loop.call_soon(self._ring)


_LOOK_EVERY_S = 1.0
_COARSE_CLOCK = 5  # CLOCK_REALTIME_COARSE, which Linux uses for the times of files
_FILE_TICK_US = 10_000


def file_tick_us() -> int:
    """How far the time of a file that is written now can lag behind the clock."""
    try:
        return (
            round(time.clock_getres(_COARSE_CLOCK) * 1_000_000) if sys.platform == "linux" else _FILE_TICK_US
        )
    except OSError:
        return _FILE_TICK_US


_AWAKE_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemIds:
    """Identities from the system's randomness."""

    def run_id(self, now_us: int) -> str:
        return sortable_id(now_us // 1000, int.from_bytes(os.urandom(10), "big"))

    def unique(self) -> str:
        return secrets.token_hex(10)


def new_secret() -> str:
    """A secret of 256 random bits: 43 characters of A-Z, a-z, 0-9, _ and -."""
    return secrets.token_urlsafe(32)


class SystemDice:
    """Ordinary pseudo-randomness; nothing secret depends on it."""

    def roll(self) -> float:
        return random.random()


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
