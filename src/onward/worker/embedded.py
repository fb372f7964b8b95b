"""A worker inside another program, for as long as a block of it lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from onward.clock import Clock
from onward.engine.engine import Engine
from onward.engine.loop.stop import DRAIN, GRACE_S, StopSwitch
from onward.model.values import CONCURRENCY
from onward.worker.worker import Chats, Shift, Worker, log


class EmbeddedWorker:
    """Executes runs of the queue beside the program: `async with app.worker() as worker:`.

    At the end of the block it takes no new runs, lets each step finish, and hands the runs back to the queue.
    If the worker itself fails, because its database is gone for instance, the block is cancelled and its
    error raised. `await app.worker(until_idle=True).run()` executes what is due and returns.
    """

    def __init__(
        self,
        engine: Callable[[], Awaitable[Engine]],
        clock: Clock,
        *,
        concurrency: int = 4,
        grace_s: float = GRACE_S,
        until_idle: bool = False,
        chats: Callable[[Engine], Chats] | None = None,
    ) -> None:
        CONCURRENCY.check(concurrency, "concurrency")
        self._engine, self._clock = engine, clock
        self._concurrency, self._until_idle, self._chats = concurrency, until_idle, chats
        self._stop = StopSwitch(grace_s, clock=clock)
        self._shift: asyncio.Task[Shift] | None = None
        self._block: asyncio.Task[object] | None = None
        self._is_block_cancelled = False

    async def run(self) -> Shift:
        """Execute runs until `stop`, or with `until_idle` until nothing is left to do; returns how many."""
        engine = await self._engine()
        worker = Worker(
            engine,
            self._clock,
            self._stop,
            concurrency=self._concurrency,
            say=log.debug,
            warn=log.warning,
            until_idle=self._until_idle,
            chats=None if self._chats is None else self._chats(engine),
        )
        return await worker.run()

    def stop(self, *, now: bool = False) -> None:
        """Take no new runs and let each step finish; `now`, or a second call, cuts the steps off."""
        self._stop.request(DRAIN, now=now)

    async def __aenter__(self) -> Self:
        self._block = asyncio.current_task()
        self._shift = asyncio.create_task(self.run(), name="onward worker")
        self._shift.add_done_callback(self._ended)
        return self

    def _ended(self, shift: asyncio.Task[Shift]) -> None:
        """Cancel the block that relies on a worker which has failed."""
        if self._block is not None and not shift.cancelled() and shift.exception() is not None:
            self._is_block_cancelled = self._block.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._shift is not None
        block, self._block = self._block, None
        if self._is_block_cancelled and block is not None:
            block.uncancel()
        if self._stop.reason is None:
            self.stop()
        try:
            await asyncio.wait([self._shift])
        except asyncio.CancelledError:  # there is no time to let steps finish
            self._shift.cancel()
            await asyncio.wait([self._shift])
            raise
        self._shift.result()
