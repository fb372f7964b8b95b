"""One attempt: call the handler, end it from outside, or hold it between two calls.

**Ending.** The handler runs in the task of the run loop, or of its branch. Ending it early is cancelling
that task with a reason noted first, so that a stop, a lost lease and a real cancellation can be told apart.
A plain function runs in a thread, which cannot be ended: where the step may begin again afterwards, as after
a time-out, the attempt waits for the function first. An async function may swallow its cancellation. What
still runs when all patience is over leaves the step in doubt.

**Holding.** From the moment a hold is asked for, only calls inside an open one may begin. The hold waits for
the leaves that are under way: calls with none inside them. Then the attempt is over, and what its handler
returns is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace as with_changes
from functools import partial
from typing import NoReturn

import msgspec
from msgspec.structs import replace

from onward.clock import Clock
from onward.engine.appender import Appender
from onward.engine.persist import unbroken
from onward.engine.redacted import redacted_result
from onward.errors import CallTimedOut, InvalidInput, OnwardError, Refused, StoreIO, StoreUnavailable
from onward.handlers.calls import StepQuestion
from onward.handlers.port import Handler, Postponed, StepContext, close_attempt
from onward.machine.decide.calls import attempt_over, hold_attempt
from onward.machine.fold.calls import GATE, PAUSE
from onward.model.call import AttemptHeld, LimitHit
from onward.model.context import check_updates
from onward.model.events import Event, StepStarted
from onward.model.result import Result
from onward.model.run import Run


class Interrupted(msgspec.Struct, frozen=True):
    """The attempt was ended from outside before it had a result. `in_doubt`: something of it still runs."""

    why: str
    in_doubt: bool = False


class AttemptRunner:
    """Runs attempts one after another, all in one task, and can interrupt the one that is under way.

    One that is `for_one` attempt can be interrupted before that begins.
    """

    def __init__(self, clock: Clock, *, for_one: bool = False) -> None:
        self._clock, self._for_one = clock, for_one
        self._own: asyncio.Task[object] | None = None
        self._task: asyncio.Task[object] | None = None
        self._step: StepContext | None = None
        self._why: str | None = None
        self._is_cancelled = self._is_patient = self._is_in_doubt = False
        self._waiting: asyncio.Task[None] | None = None

    def interrupt(self, why: str, *, patiently: bool = False) -> None:
        """End the current attempt; with none under way, nothing happens unless this is for one alone.

        `patiently`: a function that cannot be ended may return first, for as long as there is patience.
        """
        if self._task is None:
            if self._for_one and self._why is None:
                self._why = why
            return
        assert self._step is not None
        if self._why is not None and (patiently or self._is_cancelled):
            return
        self._why, self._is_patient = why, patiently
        self._stop_waiting()
        if patiently and self._step.functions.is_busy():
            self._waiting = asyncio.create_task(self._wait(self._step))
        else:
            self._cancel()

    async def _wait(self, step: StepContext) -> None:
        self._is_in_doubt = not await step.functions.wait_idle()
        if step.functions.is_open:  # else the handler has just returned, and has a result
            self._cancel()

    def _cancel(self) -> None:
        assert self._task is not None
        self._is_cancelled = True
        self._task.cancel()

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    async def run(self, handler: Handler, step: StepContext) -> Result | Interrupted:
        """The handler's result, or that it was ended. Its errors are results too."""
        if self._for_one and self._why is not None:
            return Interrupted(self._why)
        task = self._task = self._own = self._own or _this_task()
        self._step, self._why, cancels = step, None, task.cancelling()
        self._is_cancelled = self._is_patient = self._is_in_doubt = False
        result: Result | Interrupted
        try:
            result = await _call(handler, step, self._clock)
        except asyncio.CancelledError:
            if task.cancelling() == cancels:
                return Result.fail("the handler waited for something that was cancelled")
            if not self._is_cancelled:
                raise
            result = self._interrupted(step)
        finally:
            self._task = self._step = None
            close_attempt(step)
            if self._waiting is not None:
                self._stop_waiting()
        if self._is_cancelled:
            await _uncancel(task, cancels)
        return result

    def _interrupted(self, step: StepContext) -> Interrupted:
        assert self._why is not None
        if not self._is_in_doubt and not (self._is_patient and step.functions.is_busy()):
            return Interrupted(self._why)
        return Interrupted(f"{self._why}, and {step.functions.told}", in_doubt=True)


def _this_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def _uncancel(task: asyncio.Task[object], cancels: int) -> None:
    """Forget our own cancellation; one that came from elsewhere at the same time still counts."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # it may not have reached the handler, which was done just then
    if task.uncancel() > cancels:
        raise asyncio.CancelledError


async def _call(handler: Handler, step: StepContext, clock: Clock) -> Result | Interrupted:
    """The handler's result; an error becomes a failure, and one of ours is not worth another try.

    Only a database that was out of reach may be back by then. Neither does a handler that exits end the
    process: the run has other steps, and the process other runs.
    """
    room, node = step.room, step.node
    try:
        if step.functions.is_busy() and not await step.functions.wait_idle():
            return Interrupted(f"an earlier attempt has not ended: {step.functions.told}", in_doubt=True)
        if room.is_full:
            await room.prepare(node, step.prompt)
        if node.timeout_s is None or handler.keeps_time:
            result = await handler.run(step)
        else:
            in_time = await _in_time(handler, step, node.timeout_s, clock)
            if isinstance(in_time, Interrupted):
                return in_time
            result = in_time
        step.functions.close()
        result = _without_secrets(result, step)  # before anything is written from it
        if room.is_used() or (node.auto_status and not result.is_decided):
            result = await room.settle(node, result)
        if result.context_updates:
            check_updates(result.context_updates)
        return result
    except Postponed as postponed:
        if not step.stopping.is_set():
            return Result.fail("the handler postponed its step without being asked to", retryable=False)
        return Interrupted(step.redactor.redact(postponed.why))
    except OnwardError as error:
        if isinstance(error, CallTimedOut) and error.is_running and step.functions.is_busy():
            why = step.redactor.redact(str(error)).rstrip(".")
            return Interrupted(f"{why}, and {step.functions.told}", in_doubt=True)
        step.output.raised(error)
        may_pass = isinstance(error, StoreUnavailable | StoreIO)  # a database may come back
        failed = _without_secrets(Result.fail(str(error), retryable=may_pass), step)
        return with_changes(failed, keeps_calls=True)
    except (Exception, SystemExit) as error:
        step.output.raised(error)
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return with_changes(_without_secrets(Result.fail(why), step), keeps_calls=True)


def _without_secrets(result: Result, step: StepContext) -> Result:
    """The result with what the handler wrote down on the way."""
    return redacted_result(step.redactor, result.with_log(step.lines) if step.lines else result)


async def _in_time(
    handler: Handler, step: StepContext, timeout_s: float, clock: Clock
) -> Result | Interrupted:
    """The handler's result, or that its time was over. A late result of a plain function still counts."""
    task = _this_task()
    limit = _TimeLimit(task, step, timeout_s, clock)
    cancels, timer = task.cancelling(), asyncio.create_task(limit.enforce())
    try:
        return await handler.run(step)
    except asyncio.CancelledError:
        if not limit.is_over or task.uncancel() > cancels:
            raise
        why = f"timed out after {timeout_s:g} s"
        return (
            Interrupted(f"{why}, and {step.functions.told}", in_doubt=True)
            if step.functions.is_busy()
            else with_changes(Result.fail(why), keeps_calls=True)
        )
    finally:
        timer.cancel()


class _TimeLimit(msgspec.Struct):
    """Cancels an attempt when its time is over; a plain function cannot be ended, so it may return first."""

    task: asyncio.Task[object]
    step: StepContext
    timeout_s: float
    clock: Clock
    is_over: bool = False

    async def enforce(self) -> None:
        await self.step.functions.stopwatch.wait_s(self.timeout_s, self.clock)
        await self.step.functions.wait_idle()
        self.is_over = True
        self.task.cancel()


class AttemptHold:
    """Whether one attempt is to stop, or has stopped. `end_attempt` stops its handler.

    `stops_at_call` says why the attempt should stop before its next call; empty if it should not.
    """

    def __init__(
        self,
        appender: Appender,
        started: StepStarted,
        stops_at_call: Callable[[], str],
        end_attempt: Callable[[], None],
    ) -> None:
        self._appender, self._started = appender, started
        self._stops_at_call, self._end_attempt = stops_at_call, end_attempt
        self._leaves: set[str] = set()
        self._wanted: AttemptHeld | None = None
        self._asked: dict[str, StepQuestion] = {}
        self._writing: asyncio.Task[None] | None = None
        self._is_held, self.over = False, asyncio.Event()

    async def boundary(self) -> None:
        """Pass from one call to the next; if the attempt is to stop, this never returns."""
        why = self._stops_at_call()
        if why:
            self.ask(PAUSE, why)
        if self._wanted is not None:
            await self.over.wait()
            raise attempt_over(self._appender.run.id, self._started.step)

    def begin(self, call: str, inside: str | None) -> None:
        """A call is under way; the one that it is inside of is not a leaf any more."""
        if inside is not None:
            self._leaves.discard(inside)
        self._leaves.add(call)

    def end(self, call: str) -> None:
        """A call is not under way any more."""
        self._leaves.discard(call)
        self._hold_if_idle()

    def ask(
        self, reason: str, detail: str = "", until_us: int | None = None, limit: LimitHit | None = None
    ) -> None:
        """Let no further call begin, and end the attempt when those that are open have finished."""
        if self._wanted is None:
            self._wanted = AttemptHeld(
                step=self._started.step,
                attempt=self._started.attempt,
                reason=reason,
                detail=detail,
                until_us=until_us,
                limit=limit,
            )
        self._hold_if_idle()

    @property
    def is_asking(self) -> bool:
        """Whether the attempt is to stop for an answer; it may ask more until it has stopped."""
        return self._wanted is not None and self._wanted.reason == GATE

    async def wait_for_answer(self, call: str, gate: str, question: StepQuestion) -> NoReturn:
        """Put a question to people and end the attempt; it continues with the answer."""
        self._asked[gate] = question
        self.ask(GATE, f"it waits for an answer at {gate}")
        self.end(call)
        await self.over.wait()
        raise attempt_over(self._appender.run.id, self._started.step)

    async def is_held(self) -> bool:
        """Whether the log says that the attempt was held; waits for a hold that is being written.

        Raises what kept the hold from being written.
        """
        if self._writing is not None:
            await unbroken(self._writing)
        return self._is_held

    def close(self) -> None:
        """The attempt is over: calls that wait are refused."""
        self.over.set()

    def _hold_if_idle(self) -> None:
        is_writing = self._writing is not None and not self._writing.done()
        if self._wanted is not None and not self._leaves and not is_writing and not self.over.is_set():
            self._writing = asyncio.create_task(self._write(self._wanted))
            self._writing.add_done_callback(_note_failure)

    async def _write(self, wanted: AttemptHeld) -> None:
        """Record the hold and end the handler; nothing if a nested call has begun meanwhile."""
        try:
            self._is_held = bool(await self._appender.record(partial(self._decide, wanted)))
        except Refused:
            pass  # something else ended the attempt first
        finally:
            if not self._leaves:  # held, or the run is lost: either way the attempt is over
                self.close()
                self._end_attempt()

    def _decide(self, wanted: AttemptHeld, run: Run) -> Sequence[Event]:
        """The hold, together with all that was asked until now: only then is anybody asked."""
        if wanted.reason != GATE:
            return hold_attempt(run, wanted, self._leaves)
        now_us, node = self._appender.now_us(), self._started.node
        asked = [question.opened(gate, node, now_us) for gate, question in self._asked.items()]
        return hold_attempt(run, replace(wanted, gates=tuple(self._asked)), self._leaves, asked)


def _note_failure(writing: asyncio.Task[None]) -> None:
    """`is_held` raises what failed; an attempt that ended otherwise does not ask for it."""
    if not writing.cancelled():
        writing.exception()


class Enclosing(msgspec.Struct, frozen=True):
    """The call that the current code is inside of."""

    calls: UnderWay
    key: str
    repeatable: bool


_enclosing: ContextVar[Enclosing | None] = ContextVar("onward_enclosing_call", default=None)


class UnderWay:
    """Those of one attempt. A hold waits for them, unless they only wait for calls inside them."""

    def __init__(self, step: str, holding: AttemptHold) -> None:
        self._step, self._holding = step, holding
        self._keys: set[str] = set()

    def check_idle(self, key: str) -> None:
        """Refuse a call that is being made already."""
        if key in self._keys:
            raise Refused("call_under_way", f"call {key!r} of step {self._step} is being made already.")

    def outer(self, key: str) -> Enclosing | None:
        """The call that this one is inside of; InvalidInput if that one must not be repeated."""
        outer = _enclosing.get()
        if outer is None or outer.calls is not self or outer.key not in self._keys:
            return None
        if not outer.repeatable:
            raise InvalidInput(
                f"call {outer.key!r} must not be repeated, so it cannot contain call {key!r}; "
                "make the calls one after the other."
            )
        return outer

    @contextmanager
    def one(self, key: str, outer: Enclosing | None) -> Iterator[None]:
        """The call is under way."""
        self._keys.add(key)
        self._holding.begin(key, None if outer is None else outer.key)
        try:
            yield
        finally:
            self._keys.discard(key)
            self._holding.end(key)

    @contextmanager
    def inside(self, key: str, *, repeatable: bool) -> Iterator[None]:
        """Calls that are made here are inside this one."""
        token = _enclosing.set(Enclosing(self, key, repeatable))
        try:
            yield
        finally:
            _enclosing.reset(token)
