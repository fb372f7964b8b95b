"""Executing a child in its manager's process: in a task, with its gates answered by the interviewer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from onward.clock import Clock
from onward.engine.control.interview import Informed, Interviewer, Said, answers_of
from onward.engine.control.requests import Resume
from onward.engine.log.reader import Folded
from onward.engine.log.terms import RequestTerms
from onward.engine.loop.stop import StopSwitch
from onward.engine.managed.child import ManagedRuns
from onward.engine.managed.settings import MANAGER, stands_idle
from onward.errors import LeaseLost, Refused, StoreIO, StoreUnavailable
from onward.handlers.port import StepContext
from onward.machine.decide.requests import woken
from onward.model.run import Gate, Run, RunStatus

STOP_S = 2.0  # how long a child that is stopped may take to record it


class ChildExecution:
    """Executes the child of one attempt of a managing step. Sets `news` when it stops."""

    def __init__(
        self,
        runs: ManagedRuns,
        clock: Clock,
        step: StepContext,
        interviewer: Interviewer | None,
        news: asyncio.Event,
    ) -> None:
        self._runs, self._clock, self._step, self._news = runs, clock, step, news
        self._interviewer, self._is_asking = interviewer, False
        self._stop = StopSwitch(grace_s=None)  # the manager's own grace counts for both
        self._relay = asyncio.create_task(self._relay_stop())
        self._task: asyncio.Task[Folded] | None = None
        self._is_left_open = False

    async def _relay_stop(self) -> None:
        """Ask the child to stop when its manager is asked, whatever the loop is doing."""
        await self._step.stopping.wait()
        self._stop.request(MANAGER)
        self._news.set()

    @property
    def is_under_way(self) -> bool:
        return self._task is not None

    def may_start(self, child: Folded) -> bool:
        """Whether the child can continue, and no process executes it."""
        if self._task is not None:
            return False
        if child.run.status is RunStatus.WAITING:
            is_answered = self._interviewer is not None and not self._is_left_open
            return is_answered or bool(woken(child.run, self._clock.now_us()))
        return stands_idle(child, is_at_work=self._runs.is_at_work(child))

    def start(self, child: Folded, *, key: str | None) -> None:
        """Execute the child in a task; `key` is that of the resume."""
        # A child keeps the definition that it was created with, even if the file has changed since.
        resume = Resume(by=MANAGER, original=True, terms=RequestTerms(key), interviewer=self._interviewer)
        self._task = asyncio.create_task(self._execute(child, resume))
        self._task.add_done_callback(lambda _: self._news.set())

    async def _execute(self, child: Folded, resume: Resume) -> Folded:
        """Execute the child until it stops; the interviewer, or their deadlines, answer its gates."""
        if child.run.status is not RunStatus.WAITING:
            child = await self._runs.resume(child.run.id, resume, self._stop)
        return await self._runs.attend(child, self, self._stop)

    def has_stopped(self) -> bool:
        """Whether the execution has ended since the last call, and the child has stopped."""
        if self._task is None or not self._task.done():
            return False
        task, self._task = self._task, None
        if task.cancelled():
            return False  # the question does not need an answer any more
        try:
            self._is_left_open = task.result().run.status is RunStatus.WAITING
        except (Refused, LeaseLost):
            return False  # another process was first; the next look shows which
        except (StoreUnavailable, StoreIO):
            return False  # the child was dropped, and is executed when the store can be reached again
        return True

    async def wait(self) -> bool:
        """Wait until the child is not executed here any more; returns what `has_stopped` says then."""
        if self._task is not None:
            if self._is_asking:
                self._task.cancel()
            await asyncio.wait([self._task])
        return self.has_stopped()

    async def stop_now(self) -> None:
        """End the child's step, too, and give it a moment to be recorded."""
        if self._task is not None and not self._task.done():
            self._stop.request(MANAGER, now=True)
            self._news.clear()
            await self._clock.wait_s(STOP_S, self._news)

    async def end(self) -> None:
        """End everything that was started here."""
        tasks = [task for task in (self._relay, self._task) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- the interviewer of the child ----------------------------------------------------------------

    @property
    def name(self) -> str:
        """Who answers the child's gates."""
        return self._interviewer.name if self._interviewer is not None else MANAGER

    async def ask(self, run: Run, gate: Gate) -> Said:
        """Ask the interviewer, if there is one. Nothing else is under way then, so it can be cancelled."""
        return (await self.ask_multiple(run, [gate]))[0]

    async def ask_multiple(self, run: Run, gates: Sequence[Gate]) -> Sequence[Said]:
        """The same for several gates, as many as the interviewer takes at once."""
        if self._interviewer is None:
            return [None]
        self._is_asking = True
        try:
            return await answers_of(self._interviewer, run, gates)
        finally:
            self._is_asking = False

    async def inform(self, message: str, stage: str) -> None:
        """Pass a reminder on."""
        interviewer: object = self._interviewer
        if isinstance(interviewer, Informed):
            await interviewer.inform(message, stage)
