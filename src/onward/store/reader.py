"""A second store for reading, in a thread with an event loop of its own.

SQLite reads in the calling thread, and a long list takes its time in Python on every database: in the loop of
an engine, leases and streams would wait for it. So a server opens the database twice. What reads is built in
the reader's thread, on the reader's store, and is used only there: `ask` brings the work to it and the answer
back.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable
from typing import Generic, Self, TypeVar

from onward.errors import StoreUnavailable
from onward.store.port.store import Store
from onward.threads import begin_in_thread

T = TypeVar("T")
R = TypeVar("R")


class Reader(Generic[T]):
    """What reads a database in a thread of its own; made by `start`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._ready: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._made: T
        self._over: asyncio.Event
        self._ended: asyncio.Future[None]
        self._is_closed = False

    @classmethod
    async def start(
        cls, open_store: Callable[[], Awaitable[Store]], build: Callable[[Store], T], *, name: str = "reader"
    ) -> Self:
        """Open a store in a new thread, and there build on it what reads; raises what opening raises."""
        reader = cls(name)
        reader._ended = begin_in_thread(lambda: asyncio.run(reader._live(open_store, build)), name=name)
        try:
            await asyncio.wrap_future(reader._ready)
        except asyncio.CancelledError:
            reader._ready.add_done_callback(lambda _: reader._stop())
            raise
        return reader

    async def ask(self, work: Callable[[T], Awaitable[R]]) -> R:
        """What `work` returns in the reader's thread. If the caller is cancelled, so is the work."""
        if self._is_closed:
            raise StoreUnavailable("the store for reading was closed.")
        asked = asyncio.run_coroutine_threadsafe(self._answer(work), self._ready.result())
        return await asyncio.wrap_future(asked)

    async def close(self) -> None:
        """Close the store and end the thread; what is under way there is cancelled."""
        self._stop()
        await asyncio.wait([self._ended])

    async def _live(self, open_store: Callable[[], Awaitable[Store]], build: Callable[[Store], T]) -> None:
        self._over = asyncio.Event()
        try:
            store = await open_store()
        except BaseException as error:
            self._ready.set_exception(error)
            return
        try:
            self._made = build(store)
            self._ready.set_result(asyncio.get_running_loop())
            await self._over.wait()
        except Exception as error:
            self._ready.set_exception(error)
        finally:
            await _cancel_others()
            await store.close()

    async def _answer(self, work: Callable[[T], Awaitable[R]]) -> R:
        return await work(self._made)

    def _stop(self) -> None:
        if not self._is_closed and self._ready.done() and self._ready.exception() is None:
            self._ready.result().call_soon_threadsafe(self._over.set)
        self._is_closed = True


async def _cancel_others() -> None:
    """Cancel all tasks of this loop but the caller, and wait for them: each has a part of the store."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
