"""Calls that must go through: retried if the store is away, finished if the caller is cancelled.

A lost reply is resolved by the same call, never by guessing. Every write names itself (an append by its last
hash, a request by its append id), so the store recognises it. A short outage of the database therefore costs
a pause and not the work of a step.

This imports nothing else of the engine: `onward effect` must start quickly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from onward.clock import Clock
from onward.errors import StoreIO, StoreUnavailable

T = TypeVar("T")
RETRY_S = 10.0
OUT_OF_REACH = (StoreUnavailable, StoreIO)
PAUSE_S_FIRST, PAUSE_S_MAX = 0.05, 2.0


async def retry_store(clock: Clock, ask: Callable[[], Awaitable[T]]) -> T:
    """The result of a call that may be repeated, even if the store is out of reach for a short time."""
    failed_s, pause_s = None, PAUSE_S_FIRST
    while True:
        try:
            return await ask()
        except OUT_OF_REACH:
            now_s = clock.awake_s()
            failed_s = now_s if failed_s is None else failed_s
            if now_s - failed_s >= RETRY_S:
                raise
        await clock.wait_s(pause_s, asyncio.Event())
        pause_s = min(2 * pause_s, PAUSE_S_MAX)


async def unbroken(work: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
    """What `work` returns. A caller that is cancelled meanwhile ends when the work has ended."""
    working = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError as error:
        cancelled = error
    while not working.done():
        try:
            await asyncio.wait([working])
        except asyncio.CancelledError as error:
            cancelled = error
    if not working.cancelled():
        working.exception()  # no caller is left to report it to
    raise cancelled
