"""Work for a thread that is never left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def to_the_end(work: Callable[[], T]) -> T:
    """What `work` returns, done beside the event loop. Who is cancelled meanwhile ends when the work has.

    A thread cannot be ended, and one that goes on alone would change something after its run was given up.
    """
    working = asyncio.ensure_future(asyncio.to_thread(work))
    cancelled: asyncio.CancelledError | None = None
    while not working.done():
        try:
            await asyncio.wait([working])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        working.exception()  # nobody is left to hear of it
        raise cancelled
    return working.result()
