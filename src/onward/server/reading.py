"""Who answers requests that only look.

On SQLite a read never yields, so that the loop would stand still for as long as it takes. `ThreadReader` has
operations on a store of its own, in a thread with a loop of its own; `LoopReader` is for a store that has no
second connection.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from onward.operations.protocol import Operations

T = TypeVar("T")
Work = Callable[["Operations"], Awaitable[T]]


class Reader(Protocol):
    """Asks operations that only look."""

    async def read(self, work: Work[T]) -> T:
        """What `work` returns; it may run in another thread, and must share nothing with this one."""
        ...

    async def close(self) -> None:
        """Let go of what it reads."""
        ...


class LoopReader:
    """Asks in the loop of the caller."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def read(self, work: Work[T]) -> T:
        """What `work` returns."""
        return await work(self._operations)

    async def close(self) -> None:
        """The operations belong to somebody else."""


class ThreadReader:
    """Asks in a thread with a loop and operations of its own, opened there by `opening`."""

    def __init__(self, opening: Callable[[], AbstractAsyncContextManager[Operations]]) -> None:
        self._opening = opening
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="onward reads", daemon=True)
        self._opened: asyncio.Future[None] | None = None

    async def open(self) -> ThreadReader:
        """Open the operations in the thread; raises what that raises."""
        here = asyncio.get_running_loop()
        self._opened = here.create_future()
        self._here = here
        self._thread.start()
        await self._opened
        return self

    async def read(self, work: Work[T]) -> T:
        """What `work` returns there; cancelled there if the caller is cancelled."""
        assert self._loop is not None

        async def asked() -> T:
            return await work(self._operations)

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asked(), self._loop))

    async def close(self) -> None:
        """Close the operations, and wait for the thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._enough.set)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        assert self._opened is not None
        self._enough = asyncio.Event()
        try:
            async with self._opening() as operations:
                self._operations, self._loop = operations, asyncio.get_running_loop()
                self._here.call_soon_threadsafe(self._opened.set_result, None)
                await self._enough.wait()
                self._loop = None
        except BaseException as error:
            self._here.call_soon_threadsafe(_fail, self._opened, error)


def _fail(opened: asyncio.Future[None], error: BaseException) -> None:
    if not opened.done():
        opened.set_exception(error)
