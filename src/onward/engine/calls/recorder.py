"""Calls that are recorded: made once, and answered from the log ever after.

A call that may be repeated is one append, its answer. One that must not be repeated is on disk before it
begins, so that a crash in the middle of it is noticed and a person decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from onward.clock import Clock, Dice
from onward.engine.calls.asking import check_kind, decision_of, take_answer
from onward.engine.calls.effects import effect
from onward.engine.calls.functions import execute_in_time
from onward.engine.calls.holding import Holding
from onward.engine.calls.memory import CallMemory, read_memory, value_of
from onward.engine.calls.told import told
from onward.engine.calls.waiting import WaitingCalls
from onward.engine.lease.keeper import Hold, LeaseKeeper
from onward.engine.log.appender import Appender
from onward.engine.log.journal import Journal
from onward.engine.messages.flusher import Flusher
from onward.engine.messages.stream import MessageStream
from onward.engine.step.effects import AtMostOnce
from onward.engine.step.shielded import unbroken
from onward.errors import CallFailed, CallTimedOut, InvalidInput, LimitReached, Refused, StoreError
from onward.handlers.calls import CallAnswer, CallOptions, StepPast
from onward.handlers.plain import Calls
from onward.handlers.questions import StepQuestion
from onward.machine.decide.calls import call_in_doubt, finish_call, lose_call, open_attempt, start_call
from onward.model.answer import Decision
from onward.model.call import CallFinished, CallLost, CallStarted, CallStatus, LimitHit, Streamed, call_key
from onward.model.chats.message import message_id
from onward.model.event import StepStarted
from onward.model.values.value import check_value
from onward.store.port.blobs import Blobs

RETRY_S_FIRST, RETRY_S_MAX = 0.5, 30.0
ROOM_S = 1.0
"""How often to ask again for what others have reserved."""


@dataclass(frozen=True, slots=True)
class CallParts:
    """What the calls of one held run need."""

    appender: Appender
    journal: Journal
    blobs: Blobs
    effects: AtMostOnce
    keeper: LeaseKeeper
    hold: Hold
    clock: Clock
    dice: Dice
    loop: asyncio.AbstractEventLoop
    flusher: Flusher
    sweep: Callable[[], Awaitable[object]]
    """Looks for runs whose holder died, which settles what their calls had reserved."""
    waiting: WaitingCalls


@dataclass(frozen=True, slots=True)
class _Enclosing:
    """The call that the current code is inside of."""

    recorder: CallRecorder
    key: str
    repeatable: bool


_enclosing: ContextVar[_Enclosing | None] = ContextVar("onward_enclosing_call", default=None)


class CallRecorder:
    """The calls of one attempt. `functions` are those of the user that run in it."""

    def __init__(self, parts: CallParts, started: StepStarted, functions: Calls, holding: Holding) -> None:
        self._parts, self._started, self._functions = parts, started, functions
        self._holding = holding
        self._memory: asyncio.Task[CallMemory] | None = None
        self._under_way: set[str] = set()

    def key_of(self, call: str) -> str:
        """The idempotency key of a call."""
        run, step = self._parts.appender.run, self._started.step
        calls = run.open_steps[step].calls if step in run.open_steps else None
        return call_key(run.id, step, call, 0 if calls is None else calls.generation)

    async def call(
        self, key: str, function: Callable[..., Any], arguments: Sequence[Any], options: CallOptions
    ) -> Any:
        """What the function answered: now, or when this call was made before."""
        self._check_open()
        outer = self._outer(key)
        memory = await self._remembered()
        answered = memory.answers.get(key)
        if answered is not None:
            check_kind(answered, is_question=False)
            return await value_of(memory, self._parts.appender.run.id, answered)
        self._check_idle(key)
        if outer is None:
            await self._holding.boundary()
        with self._under(key, outer):
            return await self._make(memory, key, partial(self._run, function, arguments, options), options)

    async def ask(self, key: str, question: StepQuestion) -> Decision:
        """What a person answered. Until somebody has, the attempt ends here and the run waits."""
        self._check_open()
        outer = self._outer(key)
        memory = await self._remembered()
        answered = memory.answers.get(key)
        if answered is None:
            self._check_idle(key)
            if outer is None and not self._holding.is_asking:
                await self._holding.boundary()
            with self._under(key, outer):
                await self._trust()
                parts, number = self._parts, memory.tries.get(key, 0) + 1
                answered = await take_answer(
                    parts.appender, self._holding, self._started, key, number, question
                )
                memory.next_try(key)
                memory.note(answered)
        check_kind(answered, is_question=True)
        recorded = await value_of(memory, self._parts.appender.run.id, answered)
        return decision_of(question, answered, recorded)

    async def effect(self, key: str, function: Callable[[], Any], *, only_success: bool = False) -> Any:
        """The same for an effect: what it raised is an answer, too, unless `only_success`."""
        opened = self._parts.appender.run.open_steps.get(self._started.step)
        earlier = self._parts.effects if opened is not None and opened.starts > 1 else None
        return await effect(self, self._functions, earlier, key, function, only_success=only_success)

    def call_from_thread(self, call: Coroutine[Any, Any, Any]) -> Any:
        """The same for a plain function, which runs in a thread."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run_coroutine_threadsafe(call, self._parts.loop).result()
        call.close()
        raise InvalidInput(
            "call_sync and ask_sync are for plain functions; in an async function write "
            "`await step.call(…)` or `await step.ask(…)`."
        )

    async def has(self, call: str) -> bool:
        """Whether a call has been answered."""
        return call in (await self._remembered()).answers

    async def past(self) -> StepPast:
        """What earlier attempts of the step asked, if their answers still count."""
        return (await self._remembered()).past

    async def content(self, hash: str) -> bytes | None:
        """Stored content, such as a message of a conversation."""
        return await (await self._remembered()).content.find(hash)

    async def partial(self, call: str) -> str:
        """The text that came of a call before its last tries failed or were lost; empty if none did."""
        memory = await self._remembered()
        for message in reversed(memory.messages.get(call, ())):
            text = await self._parts.flusher.text_of(message)
            if text:
                return text
        return ""

    def thread_of(self, key: str) -> str:
        """The end of the conversation with this key, which earlier steps had; empty if there is none."""
        return self._parts.appender.run.threads.get(key, "")

    async def hold(
        self, reason: str, detail: str, until_us: int | None = None, limit: LimitHit | None = None
    ) -> None:
        """End the attempt between two calls; the run continues it later. This never returns."""
        self._holding.ask(reason, detail, until_us, limit)
        await self._holding.boundary()

    async def wait_s(self, seconds: float) -> None:
        """Wait before a call is made again; ends early when the attempt does."""
        await self._parts.clock.wait_s(seconds, self._holding.over)
        self._check_open()

    async def is_held(self) -> bool:
        """Whether the attempt was ended between two calls, and its result does not count."""
        return await self._holding.is_held()

    def close(self) -> None:
        """The attempt is over."""
        self._holding.close()

    # -- making a call -------------------------------------------------------------------------------

    def _check_open(self) -> None:
        self._functions.check_open()
        open_attempt(self._parts.appender.run, self._started.step, self._started.attempt)

    def _check_idle(self, key: str) -> None:
        if key in self._under_way:
            why = f"call {key!r} of step {self._started.step} is being made already."
            raise Refused("call_under_way", why)

    @contextmanager
    def _under(self, key: str, outer: _Enclosing | None) -> Iterator[None]:
        """The call is under way: a hold waits for it, unless it only waits for calls inside it."""
        self._under_way.add(key)
        self._holding.begin(key, None if outer is None else outer.key)
        try:
            yield
        finally:
            self._under_way.discard(key)
            self._holding.end(key)

    def _outer(self, key: str) -> _Enclosing | None:
        outer = _enclosing.get()
        if outer is None or outer.recorder is not self or outer.key not in self._under_way:
            return None
        if not outer.repeatable:
            raise InvalidInput(
                f"call {outer.key!r} must not be repeated, so it cannot contain call {key!r}; "
                "make the calls one after the other."
            )
        return outer

    async def _remembered(self) -> CallMemory:
        if self._memory is None:
            parts = self._parts
            self._memory = asyncio.create_task(
                read_memory(parts.journal, parts.blobs, parts.appender.run, self._started.step)
            )
        return await asyncio.shield(self._memory)

    async def _make(
        self,
        memory: CallMemory,
        key: str,
        function: Callable[[str, MessageStream | None], Any],
        options: CallOptions,
    ) -> Any:
        tries = 0
        while True:
            tries += 1
            try:
                return await self._try(memory, key, function, options)
            except Exception:
                if tries > options.retries or key in self._lost():
                    raise
            await self._parts.clock.wait_s(self._pause_s(tries), self._holding.over)
            self._check_open()

    def _pause_s(self, tries: int) -> float:
        return min(RETRY_S_FIRST * 2.0 ** (tries - 1), RETRY_S_MAX) * (0.5 + self._parts.dice.roll() / 2)

    def _lost(self) -> dict[str, int]:
        opened = self._parts.appender.run.open_steps.get(self._started.step)
        return {} if opened is None or opened.calls is None else opened.calls.lost

    async def _try(
        self,
        memory: CallMemory,
        key: str,
        function: Callable[[str, MessageStream | None], Any],
        options: CallOptions,
    ) -> Any:
        """One try of the call, and the record of its end."""
        await self._trust()
        number = memory.next_try(key)
        streamed = self._streamed(key, number, options)
        if options.records_start:
            try:
                await self._start(key, number, options, streamed)
            except LimitReached:
                memory.tries[key] = number - 1  # it was not begun
                raise
            if streamed is not None:
                memory.begin(key, streamed.message)
        began_s = self._parts.clock.awake_s()
        with self._open(streamed) as stream:
            try:
                value = await function(key, stream)
                finished = self._finished(key, number, options, began_s, value)
                if stream is not None:
                    await stream.drain()  # the end of a message comes after its text
                    finished = stream.with_text(finished)
            except CallTimedOut as error:
                await unbroken(self._too_late(key, number, options, began_s, error))
                raise
            except Exception as error:
                await unbroken(self._failed(key, number, options, began_s, error, stream))
                raise
        # Even if the caller is cancelled now: it was answered, and must not be asked again.
        written = await unbroken(self._parts.appender.record(partial(finish_call, finished=finished)))
        # The answer as it was written, without secrets: a resumed step gets no other.
        finished = next(event for event in written if isinstance(event, CallFinished))
        memory.note(finished)
        return finished.content if finished.is_bytes else finished.value

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

    async def _trust(self) -> None:
        """Make sure of the lease: after its deadline, the database decides before anything is done."""
        if not self._parts.keeper.is_trusted(self._parts.hold):
            await self._parts.keeper.regain(self._parts.hold)

    async def _run(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        options: CallOptions,
        key: str,
        stream: MessageStream | None,
    ) -> Any:
        arguments = arguments if stream is None else (*arguments, stream)
        token = _enclosing.set(_Enclosing(self, key, options.repeatable))
        try:
            return await execute_in_time(
                self._parts.clock, self._functions, key, function, arguments, options
            )
        finally:
            _enclosing.reset(token)

    # -- recording it --------------------------------------------------------------------------------

    async def _start(self, key: str, number: int, options: CallOptions, streamed: Streamed | None) -> None:
        if key in self._lost():
            raise call_in_doubt(self._started.step, key)
        started = CallStarted(
            step=self._started.step,
            attempt=self._started.attempt,
            call=key,
            number=number,
            type=options.type,
            name=options.name,
            definition=options.definition,
            repeatable=options.repeatable,
            reserved=options.reserved,
            streamed=streamed,
            model=options.model,
            thread=options.thread,
            shortened_to=options.shortened_to,
            nodes=dict(options.nodes),
        )
        while True:
            try:
                await self._parts.appender.record(partial(start_call, started=started))
                return
            except LimitReached as reached:
                if not reached.fits_spent:
                    raise
            # Others have reserved what is left. They may be dead: then somebody must notice.
            with self._parts.waiting.one(), self._functions.stopwatch.standing():
                await self._parts.sweep()
                await self.wait_s(ROOM_S)

    def _finished(
        self,
        key: str,
        number: int,
        options: CallOptions,
        began_s: float,
        value: Any = None,
        *,
        error: str | None = None,
    ) -> CallFinished:
        answer = value if isinstance(value, CallAnswer) else CallAnswer(value)
        value = answer.value
        content = bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None
        if content is None:
            check_value(value, f"the result of call {key!r}")
        return CallFinished(
            step=self._started.step,
            attempt=self._started.attempt,
            call=key,
            number=number,
            status=CallStatus.OK if error is None else CallStatus.ERROR,
            type=options.type,
            name=options.name,
            value=value if content is None else None,
            content=content,
            is_bytes=content is not None,
            error=error or "",
            usage=answer.usage,
            cost_micro=answer.cost_micro,
            model=answer.model or options.model,
            request_id=answer.request_id,
            thread=answer.thread,
            nodes=dict(answer.nodes),
            duration_us=max(0, int((self._parts.clock.awake_s() - began_s) * 1_000_000)),
        )

    async def _failed(
        self,
        key: str,
        number: int,
        options: CallOptions,
        began_s: float,
        error: Exception,
        stream: MessageStream | None = None,
    ) -> None:
        if stream is not None:
            with suppress(StoreError):  # what came of the answer stays visible, if the store takes it
                await stream.drain()
        failed = self._finished(key, number, options, began_s, error=told(error))
        failed = failed if stream is None else stream.with_text(failed)
        if isinstance(error, CallFailed):
            failed = replace(failed, is_cost_unknown=error.may_have_cost)
        await self._parts.appender.record(partial(finish_call, finished=failed))

    async def _too_late(
        self, key: str, number: int, options: CallOptions, began_s: float, error: CallTimedOut
    ) -> None:
        """A call that took too long failed; one that must not be repeated may have done its work."""
        if options.repeatable:
            await self._failed(key, number, options, began_s, error)
            return
        lost = CallLost(step=self._started.step, call=key, number=number, why=str(error))
        await self._parts.appender.record(partial(lose_call, lost=lost, attempt=self._started.attempt))
