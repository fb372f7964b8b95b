"""Work for threads that is never left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor


async def to_the_end(threads: Executor, works: Sequence[Callable[[], object]]) -> None:
    """Do all of it beside the event loop and each other. A caller that is cancelled ends when the work has.

    A thread cannot be ended, and one that continues alone would change something after its run was given up.
    The first error is raised when all is done.
    """
    loop = asyncio.get_running_loop()
    working = [loop.run_in_executor(threads, work) for work in works]
    cancelled: asyncio.CancelledError | None = None
    while not all(future.done() for future in working):
        try:
            await asyncio.wait(working)
        except asyncio.CancelledError as error:
            cancelled = error
    errors = [future.exception() for future in working]
    if cancelled is not None:
        raise cancelled
    for failure in filter(None, errors):
        raise failure
