"""Executing the function of a call: async ones here, plain ones in a thread, within a time limit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from onward.clock import Clock, TookTooLong, within
from onward.errors import CallTimedOut
from onward.handlers.calls import CallOptions
from onward.handlers.user_functions import Functions


async def execute(functions: Functions, function: Callable[..., Any], *arguments: Any) -> Any:
    """What the function returns. A plain one is registered until it has ended."""
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    returned = await functions.call(function, *arguments)
    return await returned if inspect.isawaitable(returned) else returned


async def execute_in_time(
    clock: Clock,
    functions: Functions,
    key: str,
    function: Callable[..., Any],
    arguments: Sequence[Any],
    options: CallOptions,
) -> Any:
    """The same within the call's time limit, if it has one; CallTimedOut after that.

    One that swallows its cancellation has as long to return as the function of a step has.
    """
    if options.time_limit_s is None:
        return await execute(functions, function, *arguments)
    began_s, limit_s = clock.awake_s(), options.time_limit_s
    try:
        return await within(functions.attend(key, function(*arguments)), limit_s, clock)
    except TookTooLong:
        raise CallTimedOut(key, limit_s, is_running=functions.is_busy()) from None
    except Exception as error:
        if clock.awake_s() - began_s < limit_s:
            raise
        raise CallTimedOut(key, limit_s) from error  # it failed because it was cancelled
