"""One attempt: call the handler, and be able to end it from outside.

The handler runs in the driver's own task. Ending it early is cancelling that task with a reason noted
first, so that a stop, a lost lease and a real cancellation can be told apart.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from onward.errors import OnwardError, StoreIO, StoreUnavailable
from onward.handlers.port import Handler, Postponed, StepContext
from onward.model.namespace import check_updates
from onward.model.result import Result


@dataclass(frozen=True, slots=True)
class Ended:
    """The attempt was ended from outside before it had a result."""

    why: str


class Interrupter:
    """Ends the attempt that is under way, if one is. One `for_one` attempt can end it before it begins.

    All of its attempts are made in one task.
    """

    def __init__(self, *, for_one: bool = False) -> None:
        self._for_one = for_one
        self._own: asyncio.Task[object] | None = None
        self._task: asyncio.Task[object] | None = None
        self._why: str | None = None

    def interrupt(self, why: str) -> None:
        """End the current attempt; with none under way, nothing happens unless this is for one alone."""
        if self._why is None and (self._for_one or self._task is not None):
            self._why = why
            if self._task is not None:
                self._task.cancel()

    async def run(self, handler: Handler, step: StepContext) -> Result | Ended:
        """The handler's result, or that it was ended. Its errors are results too."""
        if self._for_one and self._why is not None:
            return Ended(self._why)
        task = self._task = self._own = self._own or _this_task()
        self._why, cancels = None, task.cancelling()
        result: Result | Ended
        try:
            result = await _call(handler, step)
        except asyncio.CancelledError:
            if task.cancelling() == cancels:
                return Result.fail("the handler waited for something that was cancelled")
            why = self._asked()
            if why is None:
                raise
            result = Ended(why)
        finally:
            self._task = None
        if self._asked() is not None:
            await _take_back(task, cancels)
        return result

    def _asked(self) -> str | None:
        return self._why


def _this_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def _take_back(task: asyncio.Task[object], cancels: int) -> None:
    """Forget our own cancellation; one that came from elsewhere at the same time still counts."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # it may not have reached the handler, which was done just then
    if task.uncancel() > cancels:
        raise asyncio.CancelledError


async def _call(handler: Handler, step: StepContext) -> Result | Ended:
    """The handler's result; an error becomes a failure, and one of ours is not worth another try.

    Only a database that was out of reach may be back by then. Neither does a handler that exits end the
    process: the run has other steps, and the process other runs.
    """
    room = step.room
    try:
        if room.is_full:
            await room.prepare(step.node, step.prompt)
        if step.node.timeout_s is None or handler.keeps_time:
            result = await handler.run(step)
        else:
            result = await _in_time(handler, step, step.node.timeout_s)
        if room.is_used or (step.node.auto_status and not result.is_decided):
            result = await room.settle(step.node, result)
        if result.context_updates:
            check_updates(result.context_updates)
        return result.with_log(step.lines) if step.lines else result
    except Postponed as postponed:
        if not step.stopping.is_set():
            return Result.fail("the handler put its step off, and nobody had asked it to", retryable=False)
        return Ended(postponed.why)
    except OnwardError as error:
        may_pass = isinstance(error, StoreUnavailable | StoreIO)  # a database may come back
        return Result.fail(str(error), retryable=may_pass).with_log(step.lines)
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return Result.fail(why).with_log(step.lines)


async def _in_time(handler: Handler, step: StepContext, timeout_s: float) -> Result:
    limit = asyncio.timeout(timeout_s)
    try:
        async with limit:
            return await handler.run(step)
    except TimeoutError:
        if limit.expired():
            return Result.fail(f"timed out after {timeout_s:g} s")
        raise
