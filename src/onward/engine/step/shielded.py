"""Work that is never left half done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from typing import Any, TypeVar

T = TypeVar("T")


async def to_the_end(threads: Executor, works: Sequence[Callable[[], object]]) -> None:
    """Do all of it beside the event loop and each other. A caller that is cancelled ends when the work has.

    A thread cannot be ended, and one that continues alone would change something after its run was given up.
    The first error is raised when all is done.
    """
    loop = asyncio.get_running_loop()
    working = [loop.run_in_executor(threads, work) for work in works]
    try:
        await unbroken(asyncio.wait(working))
    finally:
        errors = [future.exception() for future in working]
    for failure in filter(None, errors):
        raise failure


async def unbroken(work: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:
    """What `work` returns. A caller that is cancelled meanwhile ends when the work has."""
    working = asyncio.ensure_future(work)
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
