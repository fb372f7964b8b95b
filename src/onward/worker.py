"""Workers: processes that claim due runs and execute them, several at once.

A worker takes runs in turn, sweeps, and drains when asked to stop.

`Registration` is a worker as others know it: alive, with these handlers, and without these directories.
Whoever submits a run can then be told whether a worker will take it. Registering costs one small write at
the start and at a third of the lease, and one when a run of the queue needs a directory that is not here.

`EmbeddedWorker` is one inside another program, for as long as a block of it lasts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from math import inf
from types import TracebackType
from typing import Protocol, Self

import msgspec

from onward.clock import Clock
from onward.engine.engine import Engine
from onward.engine.log import Folded
from onward.engine.queue import SweepResult, Unserved
from onward.engine.stop import DRAIN, GRACE_S, StopSwitch
from onward.errors import LeaseLost, OnwardError, SchemaTooNew, StoreError, StoreGone
from onward.model.ids import called
from onward.model.row import Offer, waiting_for
from onward.model.run import Run, RunStatus
from onward.model.values import CONCURRENCY, WAIT
from onward.observe.log import about
from onward.observe.metrics import Metrics
from onward.store.port.leases import Workers

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


class ChatWork(Protocol):
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
        chats: ChatWork | None = None,
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
            self._warn(f"run {called(run.id)}: its chat could not be notified that it stopped: {error}")

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
            log.info("this worker could not unregister: %s", error)

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

    def _tell_swept(self, swept: SweepResult) -> None:
        self._metrics.sweeps.add("ok")
        for run in (*swept.stopped, *swept.requeued):
            self._metrics.swept.add(run.status.value)
            with about(run=run.id, pipeline=run.pipeline):
                self._say(f"run {called(run.id)} lost its process and is {run.status.value}")
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


TIDY_EVERY_S = 60.0


class Registration:
    """Keeps one worker registered. `warn` is told once of runs that no live worker can serve."""

    def __init__(
        self,
        workers: Workers,
        unserved: Unserved,
        clock: Clock,
        *,
        concurrency: int,
        warn: Callable[[str], None],
    ) -> None:
        self._workers, self._unserved, self._clock, self._warn = workers, unserved, clock, warn
        self._concurrency, self._is_there = concurrency, False
        self._known: frozenset[str] = frozenset()
        self._said: set[str] = set()
        self._due_s = self._tidy_s = clock.awake_s()

    async def keep(self) -> None:
        """Register again if it is time, or if the queue holds what this worker cannot serve; else nothing."""
        now_s, seen = self._clock.awake_s(), self._unserved.seen
        if now_s < self._due_s and seen.keys() == self._known:
            return
        self._due_s, self._known = now_s + self._workers.renew_s, frozenset(seen)
        self._is_there = True
        await self._workers.register(Offer(self._unserved.kinds, self._unserved.lacks, self._concurrency))
        if now_s >= self._tidy_s:
            self._tidy_s = now_s + TIDY_EVERY_S
            await self._workers.tidy()
        if seen:
            await self._tell_unserved()

    async def leave(self) -> None:
        """This worker takes no more runs."""
        if self._is_there:
            self._is_there = False
            await self._workers.leave()

    async def _tell_unserved(self) -> None:
        """Say of what this worker cannot serve whether another one can: once, until one could."""
        workers = await self._workers.read()
        for needs, run in self._unserved.seen.items():
            waiting = waiting_for(run.needs, workers)
            if waiting is None:
                self._said.discard(needs)
            elif needs not in self._said:
                self._said.add(needs)
                with about(run=run.id, pipeline=run.pipeline):
                    self._warn(f"run {called(run.id)} stays in the queue: {waiting.says}")


class EmbeddedWorker:
    """Executes queued runs while the program runs: `async with app.worker() as worker:`.

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
        chats: Callable[[Engine], ChatWork] | None = None,
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
