"""One worker: takes runs in turn, executes several at once, sweeps, and drains when asked to stop."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from math import inf
from typing import Protocol

import msgspec

from onward.clock import Clock
from onward.engine.engine import Engine
from onward.engine.lease.sweep import Swept
from onward.engine.log.reader import Folded
from onward.engine.loop.stop import StopSwitch
from onward.errors import LeaseLost, OnwardError, SchemaTooNew, StoreError, StoreGone
from onward.model.ids import called
from onward.model.run import Run, RunStatus
from onward.model.values import CONCURRENCY, WAIT
from onward.observe.log import about
from onward.observe.metrics import Metrics
from onward.worker.registration import Registration

log = logging.getLogger("onward.worker")
POLL_S = 0.5
# How soon a run is taken from a dead process of the same machine; but where so many runs are held that a look
# takes long, all looking together takes no more than a tenth of the time.
SWEEP_S = 0.2
SWEEP_SHARE = 0.1
LOOKS_JUDGED = 5  # by the quickest of the last few: one look beside a busy neighbour says nothing
SAY_EVERY_S = 1.0


class Shift(msgspec.Struct, frozen=True):
    """A worker's result: how many runs it executed, and whether it had to leave some unfinished."""

    executed: int
    left_behind: int


class Chats(Protocol):
    """Takes up what users said in chats, and says there why runs have stopped."""

    async def take_up(self) -> int:
        """Take up the messages that wait for nothing; returns how many of them moved on."""
        ...

    async def tell_stop(self, run: Run) -> None:
        """Say in its chat why a run has stopped; once for each stop."""
        ...


class Worker:
    """Executes up to `concurrency` runs. `say` gets news for a person in front of it, `warn` what is wrong;
    `metrics` counts. `chats` are looked after at every poll, and when a run of one ends here."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        stop: StopSwitch,
        *,
        concurrency: int = 4,
        poll_s: float = POLL_S,
        say: Callable[[str], None] = lambda line: None,
        warn: Callable[[str], None] | None = None,
        until_idle: bool = False,
        metrics: Metrics | None = None,
        chats: Chats | None = None,
    ) -> None:
        CONCURRENCY.check(concurrency, "concurrency")
        WAIT.check(poll_s, "poll_s")
        self._engine, self._clock, self._stop = engine, clock, stop
        self._concurrency, self._poll_s, self._say = concurrency, poll_s, say
        self._until_idle, self._chats = until_idle, chats
        self._took_up_s = -inf
        self._warn, self._metrics = warn or say, metrics or Metrics()
        self._registration = Registration(
            engine.store.workers, engine.unserved, clock, concurrency=concurrency, warn=self._warn
        )
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._news = asyncio.Event()
        self._executed = 0
        self._gone: StoreError | None = None

    async def run(self) -> Shift:
        """Until asked to stop, or, with `until_idle`, until nothing is due and nothing is under way."""
        self._stop.listen(self._news.set)
        unwatch = await self._engine.store.watch(self._news.set)
        sweeping = asyncio.create_task(self._sweep())
        try:
            await self._register()
            wait_s = min(self._poll_s, self._engine.store.workers.renew_s)
            while self._stop.reason is None and not await self._fill():
                await self._register()
                await self._clock.wait_s(wait_s, self._news)
            leaving = asyncio.create_task(self._leave())
            shift = await self._drain()
            await asyncio.wait([leaving], timeout=SAY_EVERY_S)
            leaving.cancel()
            self._check_store()
            return shift
        finally:
            sweeping.cancel()
            await unwatch()
            self._stop.unlisten(self._news.set)
            await self._end_all()

    async def _fill(self) -> bool:
        """Take what is due while there is room; says whether there is nothing left to do at all."""
        self._news.clear()
        self._check_store()
        await self._take_up()
        while len(self._tasks) < self._concurrency and self._stop.reason is None:
            try:
                taken = await self._engine.take(self._stop)
            except StoreGone:
                raise
            except SchemaTooNew as error:
                self._gone = error
                return True  # what it holds is executed to its end first
            except OnwardError as error:
                self._warn(f"cannot claim a run: {error}")
                return False
            if taken is None:
                # A run that a dead process holds is not due before a sweep has found it.
                if not self._until_idle or self._tasks or await self._look() or await self._take_up(now=True):
                    return False
                return not self._news.is_set()  # the regular sweep may have been first
            folded, execution = taken
            extra = {"run": folded.run.id, "pipeline": folded.run.pipeline, "token": folded.run.token}
            log.info("run %s claimed", folded.run.id, extra=extra)
            task = asyncio.create_task(self._execute(folded.run, execution))
            self._tasks[task] = folded.run.id
            self._metrics.driving.set(len(self._tasks))
            task.add_done_callback(self._landed)
            await self._register()
        return False

    async def _take_up(self, *, now: bool = False) -> bool:
        """Take up what was said in chats, once in a poll; says whether something was."""
        if self._chats is None or (not now and self._clock.awake_s() - self._took_up_s < self._poll_s):
            return False
        self._took_up_s = self._clock.awake_s()
        try:
            return await self._chats.take_up() > 0
        except StoreGone:
            raise
        except OnwardError as error:
            self._warn(f"cannot look for messages in chats: {error}")
            return False

    async def _tell_chat(self, run: Run) -> None:
        """Say in its chat why a run has stopped, and look what waits there."""
        if self._chats is None or run.chat is None:
            return
        self._took_up_s = -inf
        try:
            await self._chats.tell_stop(run)
        except OnwardError as error:
            self._warn(f"run {called(run.id)}: its chat could not be told that it stopped: {error}")

    async def _register(self) -> None:
        """Be known to others as a worker, with what it serves. One that is not known works all the same."""
        try:
            await self._registration.keep()
        except StoreGone:
            raise
        except OnwardError as error:
            self._warn(f"cannot register this worker: {error}")

    async def _leave(self) -> None:
        """Tell others that this worker takes no more runs; else they learn it when the store is closed."""
        try:
            await self._registration.leave()
        except OnwardError as error:
            log.info("this worker could not sign off: %s", error)

    def _check_store(self) -> None:
        """Raise that the database is gone, or newer than this process: the worker ends."""
        if self._gone is not None:
            raise self._gone

    async def _execute(self, run: Run, execution: Awaitable[Folded]) -> None:
        with about(run=run.id, pipeline=run.pipeline):
            try:
                ended = (await execution).run
            except StoreGone as error:
                self._gone = error
            except LeaseLost:
                self._metrics.lease_losses.add()
                self._warn(f"run {called(run.id)} was taken over by another process")
            except OnwardError as error:
                self._warn(f"run {called(run.id)}: {error}")
            else:
                self._executed += 1
                await self._tell_chat(ended)
                self._tell_end(ended)

    def _tell_end(self, run: Run) -> None:
        because = f" ({run.reason})" if run.reason else ""
        tell = self._warn if run.status is RunStatus.FAILED else self._say
        with about(status=run.status.value, reason=run.reason, detail=run.detail):
            tell(f"run {called(run.id)} {run.status.value}{because}")

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._metrics.driving.set(len(self._tasks))
        self._news.set()

    async def _sweep(self) -> None:
        never, took_s = asyncio.Event(), deque[float](maxlen=LOOKS_JUDGED)
        while True:
            began_s = self._clock.awake_s()
            await self._look()
            if self._gone is not None:
                return
            took_s.append(self._clock.awake_s() - began_s)
            await self._clock.wait_s(max(SWEEP_S, min(took_s) / SWEEP_SHARE), never)

    async def _look(self) -> bool:
        """One look for runs of dead processes; says whether some can be taken now."""
        try:
            swept = await self._engine.sweep()
        except StoreGone as error:
            self._gone = error
            self._news.set()
            return False
        except Exception as error:  # of any kind: otherwise the sweep would end unnoticed
            self._metrics.sweeps.add("failed")
            self._warn(f"cannot look for lost runs: {error}")
            return False
        self._tell_swept(swept)
        for run in swept.stopped:
            await self._tell_chat(run)
        if swept.requeued:
            self._news.set()
        return bool(swept.requeued)

    def _tell_swept(self, swept: Swept) -> None:
        self._metrics.sweeps.add("ok")
        for run in (*swept.stopped, *swept.requeued):
            self._metrics.swept.add(run.status.value)
            with about(run=run.id, pipeline=run.pipeline):
                self._say(f"run {called(run.id)} lost its holder and is {run.status.value}")
        for _ in swept.broken:
            self._metrics.swept.add("broken")

    async def _drain(self) -> Shift:
        """Take no new work; each run is handed back at its next boundary, or cut off when time is over."""
        while self._tasks and not self._stop.is_now:
            left = len(self._tasks)
            self._say(f"draining: {left} {'run remains' if left == 1 else 'runs remain'}")
            self._news.clear()
            await self._clock.wait_s(SAY_EVERY_S, self._news)
        left = len(self._tasks)
        if left:
            await asyncio.wait(list(self._tasks), timeout=SAY_EVERY_S)
        return Shift(self._executed, left)

    async def _end_all(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
