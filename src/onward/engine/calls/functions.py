"""Executing the function of a call: async ones here, plain ones in a thread, within a time limit."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from onward.clock import Clock
from onward.errors import CallTimedOut
from onward.handlers.calls import CallOptions
from onward.handlers.plain import Calls


async def execute(functions: Calls, function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns. A plain one is registered until it has ended."""
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    returned = await functions.call(function, *arguments)
    return await returned if inspect.isawaitable(returned) else returned


async def execute_in_time(
    clock: Clock,
    functions: Calls,
    key: str,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    options: CallOptions,
) -> Any:
    """The same within the call's time limit, if it has one; CallTimedOut after that."""
    if options.time_limit_s is None:
        return await execute(functions, function, *arguments)
    return await _in_time(clock, function(*arguments), key, options.time_limit_s)


async def _in_time(clock: Clock, work: Coroutine[Any, Any, Any], key: str, limit_s: float) -> Any:
    task, done = asyncio.ensure_future(work), asyncio.Event()
    task.add_done_callback(lambda _: done.set())
    try:
        await clock.wait_s(limit_s, done)
    finally:
        is_late = not task.done()
        if is_late:
            task.cancel()
    if is_late:
        await asyncio.wait([task])
        if task.cancelled() or task.exception() is not None:
            raise CallTimedOut(key, limit_s)
    return task.result()
