"""Time, identity and chance for tests: a clock that moves when told, and randomness from a seed.

    clock = ManualClock()
    engine = Engine(store, clock=clock, ids=SeededIds(1), dice=SeededDice(1), handlers=…)

The clock jumps to the next deadline as soon as a task waits for it, so a back-off of a minute costs nothing.
It never jumps during a call to a store (`busy`): real databases take real time. With `autojump=False` it
stands still until `advance`, which is how leases are tested.
Two processes of one test must not share a seed: they would create the same append ids.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onward.model.ids import sortable_id

NOVEMBER_2023_US = 1_700_000_000_000_000
TURNS = 8


class ManualClock:
    """A wall clock and an awake clock that move together, by `advance` or by themselves."""

    def __init__(self, now_us: int = NOVEMBER_2023_US, *, autojump: bool = True) -> None:
        self.autojump = autojump
        self._wall_us, self._awake_us = now_us, 0
        self._waits: list[int] = []
        self._alarms: list[_ManualAlarm] = []
        self._busy = 0
        self._moved, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()

    def now_us(self) -> int:
        return self._wall_us + self._awake_us

    def awake_s(self) -> float:
        return self._awake_us / 1_000_000

    @property
    def waiting(self) -> int:
        """The number of waits whose time has not come."""
        return sum(until_us > self._awake_us for until_us in self._waits)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._move_to(self._awake_us + round(seconds * 1_000_000))

    def jump(self) -> None:
        """Jump automatically from now on."""
        self.autojump = True
        self.advance(0)

    def set_wall_clock(self, seconds: float) -> None:
        """Set the wall clock forward, or back if negative; the awake clock is not changed."""
        self._wall_us += round(seconds * 1_000_000)

    async def wait_s(self, seconds: float, woken: asyncio.Event) -> None:
        until_us = self._awake_us + round(seconds * 1_000_000)
        self._waits.append(until_us)
        try:
            while self._awake_us < until_us and not woken.is_set():
                if self.autojump:
                    await self._jump(until_us, woken)
                else:
                    await self._event_or(self._moved, woken)
        finally:
            self._waits.remove(until_us)

    def alarm(self, at_s: float, ring: Callable[[], object]) -> _ManualAlarm:
        alarm = _ManualAlarm(at_s, ring, self._alarms)
        self._alarms.append(alarm)
        self._ring()
        return alarm

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Forbid jumps inside the block."""
        self._busy += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    async def until_idle(self) -> None:
        """Wait until there is no call to a store, so that a test may let time pass."""
        await self._idle.wait()

    async def until_waiting(self, number: int = 1) -> None:
        """Wait until this many tasks wait, so that a test knows that all are idle."""
        while self.waiting < number:  # noqa: ASYNC110 - a task does not announce that it begins to wait
            await asyncio.sleep(0)

    async def _jump(self, until_us: int, woken: asyncio.Event) -> None:
        """Give other tasks a few turns, then move to the next deadline."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
            if woken.is_set():
                return
            if self._busy:
                await self._event_or(self._idle, woken)
                return
        if until_us == min(self._waits):
            self._move_to(until_us)

    async def _event_or(self, event: asyncio.Event, woken: asyncio.Event) -> None:
        either = [asyncio.ensure_future(one.wait()) for one in (event, woken)]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiting in either:
                waiting.cancel()

    def _move_to(self, awake_us: int) -> None:
        self._awake_us = max(self._awake_us, awake_us)
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        self._ring()

    def _ring(self) -> None:
        """Ring all due alarms, including those that are set meanwhile."""
        while due := [alarm for alarm in self._alarms if alarm.at_s <= self.awake_s()]:
            alarm = min(due, key=lambda one: one.at_s)
            alarm.cancel()
            alarm.ring()


class _ManualAlarm:
    """Rings when the clock has moved to `at_s`. It does not make the clock jump."""

    def __init__(self, at_s: float, ring: Callable[[], object], alarms: list[_ManualAlarm]) -> None:
        self.at_s, self.ring, self._alarms = at_s, ring, alarms

    def cancel(self) -> None:
        if self in self._alarms:
            self._alarms.remove(self)


class SeededIds:
    """Identities that are the same in every run of a test."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(f"ids {seed}")

    def run_id(self, now_us: int) -> str:
        return sortable_id(now_us // 1000, self._random.getrandbits(80))

    def unique(self) -> str:
        return f"{self._random.getrandbits(80):020x}"


class SeededDice:
    """Chance that is the same in every run of a test."""

    def __init__(self, seed: int | str) -> None:
        self._random = random.Random(f"dice {seed}")

    def roll(self) -> float:
        return self._random.random()
