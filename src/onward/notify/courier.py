"""Delivers what is in the outbox, beside everything else that its process does.

A courier never holds up a run: it has its own tasks, and whatever goes wrong is recorded or told, never
raised. What it does not deliver before its process ends is left in the outbox, for the next one.

When a try is made again, and when no more, is a pure function of what came of it and a roll of the dice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from onward.clock import Clock, Dice
from onward.errors import OnwardError, StoreGone
from onward.machine.fold.rows import tells
from onward.model.events import Event
from onward.model.row import DeliveryState, NotificationKind
from onward.model.run import Run
from onward.redact.redactor import NOTHING_SECRET, Redactor
from onward.store.port.runs import Attempted, Delivery, Outbox

ERROR_CHARACTERS_MAX = 300


class SendResult(NamedTuple):
    """How a try ended: it was delivered if `error` is empty. `response` is an HTTP status or an exit code.

    `error` may be long: it is redacted as a whole before it is cut.
    """

    response: int | None
    error: str = ""


class Sender(Protocol):
    """Delivers notifications."""

    async def send(self, delivery: Delivery) -> SendResult:
        """Try once, within the time limit. Whatever goes wrong outside is in the answer, and nothing is
        raised."""
        ...

    def close(self) -> None:
        """Let go of what sending needs."""
        ...


def one_line(text: str) -> str:
    """What a receiver said, short enough for a list, and without what no store takes or a terminal obeys."""
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())[:ERROR_CHARACTERS_MAX]


TRIES_MAX = 12
FIRST_WAIT_S, WAIT_S_MAX = 5.0, 3_600.0
AGE_S_MAX = 3 * 86_400
"""Tries take up to about two and a half hours. One that nobody made for days would tell old news."""


def attempted(claimed: Delivery, sent: SendResult, roll: float) -> Attempted:
    """What to record of a try."""
    if not sent.error:
        return Attempted(DeliveryState.DELIVERED, sent.response)
    if claimed.tries >= TRIES_MAX:
        return Attempted(DeliveryState.FAILED, sent.response, sent.error)
    return Attempted(DeliveryState.WAITING, sent.response, sent.error, wait_us(claimed.tries, roll))


def wait_us(tries: int, roll: float) -> int:
    """The pause after so many tries: twice as long each time, and between half of that and all of it."""
    whole_s = min(FIRST_WAIT_S * 2 ** (tries - 1), WAIT_S_MAX)
    return int(whole_s * (0.5 + roll / 2) * 1_000_000)


def is_too_late(claimed: Delivery, now_us: int) -> Attempted | None:
    """What to record instead of a try that comes too late; None if it does not."""
    if claimed.tries > TRIES_MAX:  # its processes died over it
        error = claimed.error or "the process that delivered it died"
        return Attempted(DeliveryState.FAILED, claimed.response, error)
    if claimed.tries == 1 and now_us - claimed.created_at_us > AGE_S_MAX * 1_000_000:
        return Attempted(
            DeliveryState.FAILED, None, f"it was not delivered within {AGE_S_MAX // 86_400} days"
        )
    return None


SUBSCRIBER = "notify"
AT_ONCE_MAX = 4
POLL_S = 2.0
FINISH_S = 10.0
LEASE_MARGIN_S = 30.0
WANTED_US = 7 * 86_400 * 1_000_000
RENEW_US = WANTED_US - 86_400 * 1_000_000
RENEW_EVERY_S = 3_600.0
CUT_OFF = "cut off: its process ended before a response arrived"


class Courier:
    """Subscribes to the outbox, and delivers through `sender` what has no secrets that the `redactor` knows.

    `count` gets each result by its word: delivered, again or failed. Once `is_hurried` says so, nothing
    more is waited for at the end.
    """

    def __init__(
        self,
        outbox: Outbox,
        sender: Sender,
        clock: Clock,
        dice: Dice,
        *,
        kinds: Sequence[NotificationKind],
        timeout_s: float,
        warn: Callable[[str], None],
        redactor: Redactor = NOTHING_SECRET,
        count: Callable[[str], None] = lambda result: None,
        is_hurried: Callable[[], bool] = lambda: False,
    ) -> None:
        self._outbox, self._sender, self._clock, self._dice = outbox, sender, clock, dice
        self._kinds, self._warn, self._count, self._is_hurried = kinds, warn, count, is_hurried
        self._redactor = redactor
        self._lease_us = int((timeout_s + LEASE_MARGIN_S) * 1_000_000)
        self._tasks: dict[asyncio.Task[None], Delivery] = {}
        self._news = asyncio.Event()
        self._is_ending, self._is_asked, self._warned = False, False, ""

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Deliver inside. Afterwards what is due is delivered for a while, and what remains is told."""
        try:
            await self.subscribe()
        except OnwardError as error:  # what the command is for says more, or does not need this
            self._warn_once(f"cannot register for notifications: {error}")
        working = asyncio.create_task(self._work())
        try:
            yield
            self._is_ending = True
            self._news.set()
            await working  # and not cancelled: what it claims is for it to deliver
            await self._finish()
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            await self._cut_off()
            self._sender.close()

    async def subscribe(self) -> None:
        """From now on, every process at this database writes what is wanted."""
        await self._outbox.subscribe(SUBSCRIBER, self._kinds, for_us=WANTED_US, renew_us=RENEW_US)

    def observe(self, run: Run, events: Sequence[Event]) -> None:
        """Look at once, if this process appended something that may be told."""
        if tells(events):
            self._news.set()

    def hurry(self) -> None:
        """The process is asked to stop: if it only waits for deliveries, it waits no longer."""
        self._is_asked = self._is_ending
        self._news.set()

    async def _work(self) -> None:
        renew_s = self._clock.awake_s() + RENEW_EVERY_S
        while not self._is_ending:
            try:
                await self._begin_due()
                if self._clock.awake_s() >= renew_s:
                    await self.subscribe()
                    renew_s = self._clock.awake_s() + RENEW_EVERY_S
            except StoreGone:
                return  # whoever executes runs here says so
            except OnwardError as error:
                self._warn_once(f"cannot look for notifications: {error}")
            await self._clock.wait_s(POLL_S, self._news)

    async def _begin_due(self) -> int:
        """Begin what is due as far as there is room; how many."""
        self._news.clear()
        room = AT_ONCE_MAX - len(self._tasks)
        if room <= 0:
            return 0
        claimed = await self._outbox.claim(SUBSCRIBER, limit=room, lease_us=self._lease_us)
        for delivery in claimed:
            task = asyncio.create_task(self._deliver(delivery))
            self._tasks[task] = delivery
            task.add_done_callback(self._landed)
        return len(claimed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._news.set()

    async def _deliver(self, delivery: Delivery) -> None:
        result = is_too_late(delivery, self._clock.now_us())
        if result is None:
            result = attempted(delivery, await self._sent(delivery), self._dice.roll())
        await self._record(delivery, result)
        self._count("again" if result.wait_us is not None else result.state.value)
        if result.state is DeliveryState.FAILED:
            self._warn(
                f"notification {delivery.id} of run {delivery.run_id} was given up: {result.error}; "
                f"`onward notifications --retry {delivery.id}` tries again"
            )

    async def _sent(self, delivery: Delivery) -> SendResult:
        try:
            sent = await self._sender.send(self._without_secrets(delivery))
        except Exception as error:  # of any kind: a defect here must not reach a run
            sent = SendResult(None, f"{type(error).__name__}: {error}")
        return SendResult(sent.response, one_line(self._redactor.redact(sent.error)))

    def _without_secrets(self, delivery: Delivery) -> Delivery:
        """What is told comes from events, and was redacted, but for what is in the pipeline itself: its
        source is stored as it is, and may ask at a gate what nobody outside should read."""
        body = msgspec.json.decode(delivery.body)
        clean = self._redactor.redact_value(body)
        return delivery if clean is body else replace(delivery, body=msgspec.json.encode(clean).decode())

    async def _record(self, delivery: Delivery, result: Attempted) -> None:
        try:
            await self._outbox.record(delivery, result)
        except OnwardError as error:  # it is due again when its lease is over
            self._warn_once(f"cannot record a notification: {error}")

    async def _finish(self) -> None:
        """Deliver what is due now and what is under way, for a while; tell what remains."""
        until_s = self._clock.awake_s() + FINISH_S
        try:
            while (await self._begin_due() or self._tasks) and not (self._is_asked or self._is_hurried()):
                left_s = until_s - self._clock.awake_s()
                if left_s <= 0:
                    break
                if left_s <= FINISH_S - POLL_S:
                    self._warn_once(
                        f"waiting for {_count(len(self._tasks))} to be delivered; press Ctrl-C to stop "
                        "waiting"
                    )
                await self._clock.wait_s(min(left_s, POLL_S), self._news)
            await self._cut_off()
            left = await self._outbox.waiting(SUBSCRIBER)
        except OnwardError as error:
            self._warn_once(f"cannot look for notifications: {error}")
            return
        if left:
            self._warn(
                f"{_count(left)} {'is' if left == 1 else 'are'} not delivered yet; the next worker or run "
                "with [notify] tries again (`onward notifications`)"
            )

    async def _cut_off(self) -> None:
        """End what is under way. Whether it was delivered is not known, so it is due at once."""
        under_way = dict(self._tasks)
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.gather(*under_way, return_exceptions=True)
        for task, delivery in under_way.items():
            if task.cancelled():
                await self._record(delivery, Attempted(DeliveryState.WAITING, None, CUT_OFF, 0))

    def _warn_once(self, line: str) -> None:
        if line != self._warned:
            self._warned = line
            self._warn(line)


def _count(number: int) -> str:
    return f"{number:,} notification{'' if number == 1 else 's'}"
