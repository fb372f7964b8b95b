"""Execute one held run until it stops: plan, act, and plan again.

Starting, resuming, taking over and waking are all this loop. The appender plans and writes; the loop does
what the plan says. A run without branches executes its steps right here. Branches execute theirs beside each
other, in a task each, which are ended one by one or all together; all of them are recorded by this one loop.

`Runner` begins it for a run that was claimed, and then for the runs that restarts created.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from onward.clock import Clock
from onward.engine.appender import Appender, EngineParts
from onward.engine.attempt import EXPIRED, STOPPED, AttemptRunner, Executor
from onward.engine.awaited import AwaitedRuns
from onward.engine.claims import Claims, Hold, Reply
from onward.engine.control.requests import Interviewer
from onward.engine.definitions import Serving
from onward.engine.files.run_files import RunFiles
from onward.engine.log import Folded, applied
from onward.engine.sources import Sources
from onward.engine.stop import StopSwitch
from onward.errors import HistoryCorrupt, LeaseLost, StoreError
from onward.handlers.port import Handler
from onward.machine.catalogue import RUNNING
from onward.machine.decide.requests import HolderView, decide_claim
from onward.machine.definition import Definition
from onward.machine.path import nodes_ahead
from onward.machine.plan.action import Action, Execute, Merge, Restart, Sleep, Wait
from onward.machine.plan.branch import restarted
from onward.machine.plan.results import ActionResult, SuccessorCreated, WaitTooLong
from onward.model.events import Event, StepStarted
from onward.model.run import Frozen, Pending, Run, RunStatus
from onward.version import VERSION

T = TypeVar("T")


class AttemptTasks(msgspec.Struct, Generic[T], eq=False):
    """Tasks by step. `done` is set whenever one of them is done."""

    _done: asyncio.Event
    _clock: Clock
    _tasks: dict[str, asyncio.Task[T]] = {}
    _runners: dict[str, AttemptRunner] = {}

    def start(self, step: str, attempt: Callable[[AttemptRunner], Coroutine[Any, Any, T]]) -> None:
        """Start an attempt beside the others."""
        runner = self._runners[step] = AttemptRunner(self._clock, for_one=True)
        task = self._tasks[step] = asyncio.create_task(attempt(runner))
        task.add_done_callback(lambda _: self._done.set())

    def take_done(self) -> list[T]:
        """The results of the attempts that are done; raises what one of them died of."""
        done = [step for step, task in self._tasks.items() if task.done()]
        for step in done:
            del self._runners[step]
        return [self._tasks.pop(step).result() for step in done]

    def interrupt(self, why: str, steps: Iterable[str] | None = None, *, patiently: bool = False) -> None:
        """End these attempts, or all of them; `patiently` as in `AttemptRunner.interrupt`."""
        for step in list(self._runners) if steps is None else steps:
            if step in self._runners:
                self._runners[step].interrupt(why, patiently=patiently)

    async def end_all(self) -> None:
        """End everything, and return when nothing is left of it."""
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)


HALTED = "it is no longer needed"
Results = Sequence[ActionResult]


class RunLoop:
    """One run under one lease. For a wait of more than `patience_s` the run is requeued."""

    def __init__(
        self,
        parts: EngineParts,
        definition: Definition,
        folded: Folded,
        stop: StopSwitch,
        *,
        claimed_s: float,
        patience_s: float | None = None,
    ) -> None:
        """`claimed_s` is the awake clock's reading before the claim was sent."""
        self._parts, self._definition, self._stop, self._patience_s = parts, definition, stop, patience_s
        self._news, self._stopping = asyncio.Event(), asyncio.Event()
        self._runner = AttemptRunner(parts.clock)
        self._tasks: AttemptTasks[ActionResult] = AttemptTasks(self._news, parts.clock)
        self._looking: asyncio.Task[None] | None = None
        self._successor: str | None = None
        self._hold: Hold = parts.keeper.hold(folded.lease, self, claimed_s=claimed_s)
        self._appender = Appender(parts, definition, folded, self._hold, stop, self._follow)
        self._executor = Executor(parts, definition, self._appender, self._hold, stop, self._stopping)

    async def run(self, action: Action | None = None) -> Folded:
        """Execute until the run stops. LeaseLost: another process holds it, and nothing here counts any more.

        `action` is what was planned together with the claim, if anything was.
        """
        self._stop.listen(self._asked_to_stop)
        try:
            results: Results = ()
            if self._appender.run.workspace is not None:
                unusable = await self._executor.open_workspace(self._appender.run)
                if unusable is not None:
                    results, action = (unusable,), None
            while True:
                if action is None:
                    action = await self._appender.append(results)
                    self._heed_pause()
                    if self._successor is not None:
                        await self._cancel_with_run(self._successor)
                match action:
                    case Execute():  # nothing is unpacked here: every step comes this way
                        executor, folded = self._executor, self._appender.folded
                        results = (await executor.execute(folded, action.started, self._runner),)
                    case Wait(starts, halt, until_us):
                        self._start(starts)
                        self._tasks.interrupt(HALTED, halt)
                        results = await self._finished(until_us)
                    case Restart(to, run_id):
                        results = (await self._restart(to, run_id),)
                    case Merge(step, starts):
                        self._start(starts)
                        results = (await self._executor.merge(self._appender.run, step),)
                    case Sleep(until_us) if self._is_too_long(until_us):
                        results = (WaitTooLong(until_us),)
                    case Sleep(until_us):
                        results = ()
                        await self._sleep(until_us)
                    case _:
                        return self._appender.folded
                action = None
        finally:
            self._stop.unlisten(self._asked_to_stop)
            await self._let_go()

    async def _let_go(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        try:
            await self._tasks.end_all()
            await self._appender.close()
        finally:
            self._parts.keeper.release(self._hold)

    def _heed_pause(self) -> None:
        """Handlers may end early if the log says that the run is to be paused."""
        if self._appender.folded.run.pending.pause_after is not None:
            self._stopping.set()

    async def _cancel_with_run(self, successor: str) -> None:
        """Cancel the run that was to take over, if this one was cancelled before it could."""
        if self._appender.run.status is RunStatus.CANCELLED:
            await self._parts.services.cancel_child(successor)

    async def _execute(self, started: StepStarted, runner: AttemptRunner) -> ActionResult:
        return await self._executor.execute(self._appender.folded, started, runner)

    def _start(self, starts: Sequence[StepStarted]) -> None:
        for started in starts:
            self._tasks.start(started.step, partial(self._execute, started))

    async def _finished(self, until_us: int | None) -> Results:
        """Wait for an attempt to be done, for news, or for the time; the results of those that are done."""
        self._news.clear()
        done = self._tasks.take_done()
        if not done:
            await self._wait(until_us)
            done = self._tasks.take_done()
        if not done:
            await self._catch_up()
        return done

    async def _restart(self, to: str, run_id: str) -> ActionResult:
        """Create the run that takes over. Created again after a crash, it is the same one."""
        event = restarted(self._definition, self._appender.run, to, VERSION)
        at_us = self._appender.now_us()
        run, events = applied(None, (event,), run_id=run_id, at_us=at_us)
        append_id = f"restart of {self._appender.run.id}"
        journal = self._parts.journal
        await journal.put(journal.creation(run, events, at_us=at_us, append_id=append_id))
        self._successor = run_id
        return SuccessorCreated(run_id)

    def _is_too_long(self, until_us: int) -> bool:
        """Whether a wait is not worth holding the run for."""
        if self._patience_s is None or self._stop.reason is not None:
            return False
        return (until_us - self._appender.now_us()) / 1_000_000 > self._patience_s

    async def _sleep(self, until_us: int) -> None:
        """Wait for the time of a retry, or for news."""
        self._news.clear()
        if self._stop.reason is None:
            await self._wait(until_us)
        await self._catch_up()

    async def _wait(self, until_us: int | None) -> None:
        """Wait until there is news, or `until_us`."""
        if until_us is None:
            await self._news.wait()
        elif (seconds := (until_us - self._appender.now_us()) / 1_000_000) > 0:
            await self._parts.clock.wait_s(seconds, self._news)
        if self._hold.is_lost:
            raise self._hold.loss

    async def _catch_up(self) -> None:
        await self._appender.catch_up()
        self._heed_pause()

    # -- news from outside ---------------------------------------------------------------------------

    def _asked_to_stop(self) -> None:
        self._news.set()
        self._stopping.set()
        if self._stop.is_now:
            self._interrupt(STOPPED)

    def lost(self) -> None:
        """Another process may hold the run: end the attempts, whose results do not count."""
        self._news.set()
        self._interrupt("the lease was lost")

    def expired(self) -> None:
        """The lease may have expired: end the attempts; the database is asked before the next one starts."""
        self._interrupt(EXPIRED)

    def head_is(self, head: int) -> None:
        """If another process appended to this run, look at its request."""
        if head > self._appender.folded.position.seq and self._looking is None:
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        try:
            pending = await self._appender.requests()
        except (StoreError, HistoryCorrupt):
            return  # the next heartbeat looks again, and the next append cannot miss it
        finally:
            self._looking = None
        self._follow(pending)

    def _follow(self, pending: Pending) -> None:
        """Do what a request asks of the attempts that are under way."""
        self._news.set()
        self._executor.asked = pending
        if pending.pause_after is not None:
            self._stopping.set()
        if pending.cancel_by is not None:
            self._interrupt(f"cancelled by {pending.cancel_by}")
        elif pending.pause_after == "now":
            # Another process may resume the run, so a function that cannot be ended is waited for.
            self._interrupt(f"paused by {pending.pause_by}", patiently=True)

    def _interrupt(self, why: str, *, patiently: bool = False) -> None:
        self._runner.interrupt(why, patiently=patiently)
        self._tasks.interrupt(why, patiently=patiently)


WORTH_HOLDING_S = 5.0


class ServedPipeline(Frozen, frozen=True):
    """A definition, and a handler for every node of it."""

    definition: Definition
    handlers: Mapping[str, Handler]
    interviewer: Interviewer | None = None


class Runner(msgspec.Struct, frozen=True):
    """Executes claimed runs, whether they were started, resumed, answered or taken from the queue."""

    claims: Claims
    serving: Serving
    sources: Sources
    parts: EngineParts
    files: RunFiles | None
    awaited: AwaitedRuns

    async def served(self, run: Run, interviewer: Interviewer | None = None) -> ServedPipeline:
        """What executing a run needs: its stored definition, and handlers."""
        definition = self.serving.definition(await self.sources.stored(run))
        ahead = nodes_ahead(definition.graph, run)
        handlers = self.serving.handlers_for(definition, run.simulation, interviewer, ahead)
        return ServedPipeline(definition, handlers, interviewer)

    async def run(
        self, claimed: Reply, served: ServedPipeline, stop: StopSwitch, action: Action | None = None
    ) -> Folded:
        """Execute a run, if the request claimed it, and the runs that restarts create.

        `action` is what was planned together with the claim, if anything was.
        """
        folded = claimed.folded
        # Only what this very request claimed: another task of this process may be executing the run.
        if claimed.claimed_s is None or folded.run.status is not RUNNING:
            return folded
        ended = await self._run(folded, claimed.claimed_s, served, stop, action=action)
        while ended.run.restarted_as is not None:
            if stop.reason is not None:
                return await self.parts.journal.load(ended.run.restarted_as)
            successor = await self.claims.request_observed(ended.run.restarted_as, _claim_a_new_run)
            if successor.claimed_s is None:
                return successor.folded
            ended = await self._run(successor.folded, successor.claimed_s, served, stop)
        return ended

    async def leave_files(self, definition: Definition, folded: Folded) -> None:
        """Write the files of a run that has ended in the append that created it."""
        if self.files is not None and self.parts.receipts is not None:
            self.files.open(definition, folded.run)
            await self.parts.receipts.write_all(definition, folded)

    async def run_from_queue(self, folded: Folded, claimed_s: float, stop: StopSwitch) -> Folded:
        """Execute a run that was taken from the queue, as it is stored; a long wait goes back there."""
        with self.claims.dropping(folded.lease):
            served = await self.served(folded.run)
        # The run that a restart creates is queued: any worker may take it.
        return await self._run(folded, claimed_s, served, stop, patience_s=WORTH_HOLDING_S)

    async def _run(
        self,
        folded: Folded,
        claimed_s: float,
        served: ServedPipeline,
        stop: StopSwitch,
        *,
        action: Action | None = None,
        patience_s: float | None = None,
    ) -> Folded:
        """Execute one run until it stops; if that ends before the run stopped, drop its lease."""
        try:
            if self.files is not None:
                self.files.open(served.definition, folded.run)
            loop = RunLoop(
                self._parts_with(served),
                served.definition,
                folded,
                stop,
                claimed_s=claimed_s,
                patience_s=patience_s,
            )
            ended = await loop.run(action)
            if ended.run.workspace is not None and ended.run.is_final:
                await self.parts.workspaces.close(ended.run)
        except LeaseLost:
            raise
        except BaseException as error:  # also one that goes through everything, such as a library's panic
            self.claims.dropped.drop(folded.lease, error)
            raise
        await self.awaited.stopped(ended.run)
        return ended

    def _parts_with(self, served: ServedPipeline) -> EngineParts:
        if served.handlers is self.parts.handlers and served.interviewer is None:
            return self.parts
        return replace(self.parts, handlers=served.handlers, interviewer=served.interviewer)


def _claim_a_new_run(run: Run, holder_view: HolderView) -> Sequence[Event]:
    """Unless another process was first."""
    return decide_claim(run, holder_view) if run.status is RunStatus.QUEUED and not run.token else ()
