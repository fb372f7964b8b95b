"""Work that is finished even if its caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


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
