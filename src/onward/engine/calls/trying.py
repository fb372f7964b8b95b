"""Making a call: its tries, and the record of each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any

from onward.engine.calls.holding import Holding
from onward.engine.calls.memory import CallMemory
from onward.engine.calls.one_try import OneTry
from onward.engine.calls.parts import CallParts
from onward.engine.messages.stream import MessageStream
from onward.engine.step.shielded import unbroken
from onward.errors import CallTimedOut, LimitReached, Refused, StoreError
from onward.handlers.calls import CallOptions
from onward.handlers.user_functions import Functions
from onward.machine.decide.calls import call_in_doubt, finish_call, lose_call, open_attempt, start_call
from onward.model.call import CallFinished, CallStarted, Streamed
from onward.model.chat import message_id
from onward.model.events import StepStarted

RETRY_S_FIRST, RETRY_S_MAX = 0.5, 30.0
ROOM_S = 1.0
"""How often to ask again for what others have reserved."""
Function = Callable[[MessageStream | None], Any]
"""What is called; it gets the message that its text is stored in, if there is one."""


class CallTries:
    """Tries the calls of one attempt. `functions` are those of the user that run in it."""

    def __init__(
        self, parts: CallParts, started: StepStarted, functions: Functions, holding: Holding
    ) -> None:
        self._parts, self._started, self._functions = parts, started, functions
        self._holding = holding

    def check_open(self) -> None:
        """Refuse a call of an attempt that is over."""
        self._functions.check_open()
        open_attempt(self._parts.appender.run, self._started.step, self._started.attempt)

    async def wait_s(self, seconds: float) -> None:
        """Wait before a call is made again; ends early when the attempt does."""
        await self._parts.clock.wait_s(seconds, self._holding.over)
        self.check_open()

    async def make(self, memory: CallMemory, key: str, function: Function, options: CallOptions) -> Any:
        """What the function answered, tried as often as `options` allow."""
        tries = 0
        while True:
            tries += 1
            try:
                return await self._try(memory, key, function, options)
            except Exception:
                if tries > options.retries or key in self._lost():
                    raise
            await self.wait_s(self._pause_s(tries))

    def _pause_s(self, tries: int) -> float:
        return min(RETRY_S_FIRST * 2.0 ** (tries - 1), RETRY_S_MAX) * (0.5 + self._parts.dice.roll() / 2)

    def _lost(self) -> dict[str, int]:
        opened = self._parts.appender.run.open_steps.get(self._started.step)
        return {} if opened is None or opened.calls is None else opened.calls.lost

    async def _try(self, memory: CallMemory, key: str, function: Function, options: CallOptions) -> Any:
        """One try of the call, and the record of its end."""
        await self._parts.trust()
        number = memory.next_try(key)
        one, streamed = OneTry(self._started, key, number, options), self._streamed(key, number, options)
        if options.records_start:
            try:
                await self._start(one.started(streamed), options.steering)
            except (LimitReached, Refused):
                memory.tries[key] = number - 1  # it was not begun
                raise
            if streamed is not None:
                memory.begin(key, streamed.message)
        began_s = self._parts.clock.awake_s()
        with self._open(streamed) as stream:
            try:
                value = await function(stream)
                finished = one.answered(value, self._since_us(began_s))
                if stream is not None:
                    await stream.drain()  # the end of a message comes after its text
                    finished = stream.with_text(finished)
            except CallTimedOut as error:
                await unbroken(self._too_late(one, began_s, error))
                raise
            except Exception as error:
                await unbroken(self._failed(one, began_s, error, stream))
                raise
        # Even if the caller is cancelled now: it was answered, and must not be asked again.
        written = await unbroken(self._parts.appender.record(partial(finish_call, finished=finished)))
        # The answer as it was written, without secrets: a resumed step gets no other.
        finished = next(event for event in written if isinstance(event, CallFinished))
        memory.note(finished)
        return finished.content if finished.is_bytes else finished.value

    def _since_us(self, began_s: float) -> int:
        return max(0, int((self._parts.clock.awake_s() - began_s) * 1_000_000))

    def _streamed(self, key: str, number: int, options: CallOptions) -> Streamed | None:
        """The message that the text of the call is stored in, if there is a chat for it."""
        if not options.chat:
            return None
        run_id, step = self._parts.appender.run.id, self._started.step
        return Streamed(chat=options.chat, message=message_id(run_id, step, key, number))

    def _open(self, streamed: Streamed | None) -> AbstractContextManager[MessageStream | None]:
        """The message, once the start of its call is recorded. A refused flush means: ask for the lease."""
        if streamed is None:
            return nullcontext()
        lease = self._parts.hold.lease
        return self._parts.flusher.open(streamed, run_id=lease.run_id, token=lease.token)

    async def _start(self, started: CallStarted, told: tuple[str, ...]) -> None:
        """Record the start; if others have reserved what is left of a limit, wait for it."""
        if started.call in self._lost():
            raise call_in_doubt(started.step, started.call)
        while True:
            try:
                await self._parts.appender.record(partial(start_call, started=started, told=told))
                return
            except LimitReached as reached:
                if not reached.fits_spent:
                    raise
            # Others have reserved what is left. They may be dead: then somebody must notice.
            with self._parts.waiting.one(), self._functions.stopwatch.standing():
                await self._parts.sweep()
                await self.wait_s(ROOM_S)

    async def _failed(
        self, one: OneTry, began_s: float, error: Exception, stream: MessageStream | None = None
    ) -> None:
        if stream is not None:
            with suppress(StoreError):  # what came of the answer stays visible, if the store takes it
                await stream.drain()
        failed = one.failed(error, self._since_us(began_s))
        failed = failed if stream is None else stream.with_text(failed)
        await self._parts.appender.record(partial(finish_call, finished=failed))

    async def _too_late(self, one: OneTry, began_s: float, error: CallTimedOut) -> None:
        """A call that took too long failed; one that must not be repeated may have done its work."""
        if one.options.repeatable:
            await self._failed(one, began_s, error)
            return
        decide = partial(lose_call, lost=one.lost(error), attempt=self._started.attempt)
        await self._parts.appender.record(decide)
