"""The manager loop: a step that manages another run until that ends, or a stop condition is met.

The child is a separate run, with its own log and lease; this step executes it, observes it and gives it
instructions. Whatever happens to the process, both runs are where their logs say, and the next attempt of
the step finds the same child.
"""

from __future__ import annotations

import asyncio

from onward.clock import Clock
from onward.engine.control.interview import Interviewer
from onward.engine.log.reader import Folded
from onward.engine.log.retry_store import retry_store
from onward.engine.managed.child import ManagedRuns, find_or_make, latest
from onward.engine.managed.child_view import PREFIX, holds, named, observed
from onward.engine.managed.execution import ChildExecution
from onward.engine.managed.instruct import Instructor
from onward.engine.managed.settings import EXHAUSTED, SATISFIED, TIMED_OUT, ManagerSettings, why_cancelled
from onward.errors import Refused, StoreIO, StoreUnavailable
from onward.handlers.port import Handler, Postponed, StepContext
from onward.machine.lifecycle import is_recoverable
from onward.model.events import RunCancelled, StepStatus
from onward.model.result import Result
from onward.model.run import Run, RunStatus
from onward.store.codec import unseal

LOOK_S = 1.0  # how soon an answer, or a holder's death, is noticed while another process holds the child


class Overseer:
    """Serves `stack.manager_loop`."""

    keeps_time = True

    def __init__(
        self,
        runs: ManagedRuns,
        clock: Clock,
        agent: Handler | None,
        interviewer: Interviewer | None = None,
    ) -> None:
        self._runs, self._clock, self._agent, self._interviewer = runs, clock, agent, interviewer

    async def run(self, step: StepContext) -> Result:
        """Manage the step's child. Postponed: the process is to stop, and the child has stopped."""
        watch = _Watch(self._runs, self._clock, self._agent, self._interviewer, step)
        try:
            return await watch.run(await retry_store(self._clock, lambda: find_or_make(self._runs, step)))
        except asyncio.CancelledError:
            if step.stopping.is_set():
                await watch.execution.stop_now()
            raise
        finally:
            await watch.end()


class _Watch:
    """One attempt of a managing step."""

    def __init__(
        self,
        runs: ManagedRuns,
        clock: Clock,
        agent: Handler | None,
        interviewer: Interviewer | None,
        step: StepContext,
    ) -> None:
        self._runs, self._clock, self._step = runs, clock, step
        self._settings = settings = ManagerSettings.of(step.node)
        self._instructor: Instructor | None = None
        if settings.is_steering and agent is not None:
            self._instructor = Instructor(runs, clock, agent, step, settings.cooldown_s)
        self._child = ""
        self._news = asyncio.Event()
        self.execution = ChildExecution(runs, clock, step, interviewer, self._news)
        self._began_s = self._cycle_s = clock.awake_s()
        self._cycles = 0
        self._has_retried = False

    # -- the loop ------------------------------------------------------------------------------------

    async def run(self, child: str) -> Result:
        """Until there is a result."""
        self._child = child
        while True:
            self._news.clear()
            if self.execution.has_stopped():
                self._cycle_s = self._clock.awake_s()
            child_now = await self._look()
            if child_now is not None:
                result = await self._after(child_now)
                if result is not None:
                    return result
            await self._clock.wait_s(self._pause_s(), self._news)

    async def _after(self, child: Folded) -> Result | None:
        """What one look leads to; a result ends the step."""
        run, now_s = child.run, self._clock.awake_s()
        # A child that is being resumed may be seen as it was before.
        has_failed = run.status is RunStatus.FAILED and not self.execution.is_under_way
        if run.is_final or (has_failed and not self._may_retry(run)):
            return await self._ended(child)
        if self._step.stopping.is_set():
            await self._postpone()
        if self._settings.timeout_s is not None and now_s - self._began_s >= self._settings.timeout_s:
            await self._cancel_child(TIMED_OUT)
            return None
        if self._settings.executes_child and self.execution.may_start(child):
            self._execute(child)
        if now_s >= self._cycle_s:
            await self._cycle(child)
        return None

    async def _cycle(self, child: Folded) -> None:
        if self._cycles >= self._settings.cycles_max:
            await self._cancel_child(EXHAUSTED)
            return
        self._cycles += 1
        seen = {**self._seen(child), "stack.cycle": self._cycles}
        if holds(self._settings.stop, self._step.values, seen, child.run):
            await self._cancel_child(SATISFIED)
            return
        if self._instructor is not None:
            self._instructor.consider(child.run, seen)
        self._cycle_s = self._clock.awake_s() + self._settings.poll_s

    def _pause_s(self) -> float:
        now_s = self._clock.awake_s()
        ahead = [self._cycle_s - now_s]
        if not self.execution.is_under_way:
            ahead.append(LOOK_S)
        if self._settings.timeout_s is not None:
            ahead.append(self._began_s + self._settings.timeout_s - now_s)
        return max(0.0, min(ahead))

    async def _look(self) -> Folded | None:
        """The child as it stands; None when the store is out of reach for a moment."""
        try:
            child = await latest(self._runs.journal, self._child)
        except (StoreUnavailable, StoreIO):
            return None
        self._child = child.run.id
        return child

    def _seen(self, child: Folded) -> dict[str, object]:
        return observed(child, is_at_work=self._runs.is_at_work(child))

    # -- executing the child -------------------------------------------------------------------------

    def _may_retry(self, run: Run) -> bool:
        """A failed child is resumed once by every new attempt of its manager, not by a repeated one."""
        return (
            self._settings.executes_child
            and self._step.attempt > 1
            and not self._has_retried
            and is_recoverable(run.status, run.reason)
        )

    def _execute(self, child: Folded) -> None:
        key = None
        if child.run.status is RunStatus.FAILED:
            self._has_retried = True
            key = f"attempt {self._step.attempt} of {self._step.idempotency_key}"
        self.execution.start(child, key=key)

    # -- endings -------------------------------------------------------------------------------------

    async def _ended(self, child: Folded) -> Result:
        """The result of the step, now that the child has ended."""
        await self._wait_child()
        run, seen = child.run, self._seen(child)
        if run.status is RunStatus.COMPLETED:
            return Result(context_updates=seen, notes=self._notes())
        if run.status is RunStatus.FAILED:
            again = self._settings.executes_child and is_recoverable(run.status, run.reason)
            return self._failed(f"{named(run)} failed: {run.detail or run.reason}", seen, retryable=again)
        by = await self._cancelled_by(run)
        if by == SATISFIED:
            seen[f"{PREFIX}outcome"] = StepStatus.SUCCESS.value
            return Result(context_updates=seen, notes=self._notes("the stop condition was met"))
        return self._failed(why_cancelled(self._step, run, by), seen, retryable=False)

    async def _cancelled_by(self, run: Run) -> str:
        (record,) = await self._runs.journal.read(run.id, after=run.head - 1, limit=1)
        event = unseal(record)
        return event.by if isinstance(event, RunCancelled) else ""

    def _failed(self, reason: str, seen: dict[str, object], *, retryable: bool) -> Result:
        return Result(
            status=StepStatus.FAIL,
            failure_reason=reason,
            context_updates=seen,
            notes=self._notes(),
            retryable=retryable,
        )

    async def _cancel_child(self, why: str) -> None:
        """Cancel the child; its log has the reason, in case this process dies before the step is recorded.

        A child that another process holds ends when that learns of it; the loop waits for that.
        """
        try:
            child = await self._runs.cancel(self._child, by=why)
        except Refused:
            return  # it has just ended by itself
        self._cycle_s = self._clock.awake_s() + self._settings.poll_s
        if not self.execution.is_under_way and not child.run.is_final:
            self._cycle_s = self._clock.awake_s() + LOOK_S
        await self._wait_child()

    async def _postpone(self) -> None:
        """Wait until the child, if it is executed here, has stopped at its boundary; then stop this step."""
        await self._wait_child()
        raise Postponed(f"stopped with its child run {self._child}")

    async def _wait_child(self) -> None:
        """Wait until the child is not executed here any more."""
        if await self.execution.wait():
            self._cycle_s = self._clock.awake_s()

    async def end(self) -> None:
        """End everything that this attempt started."""
        await self.execution.end()
        if self._instructor is not None:
            await self._instructor.end()

    def _notes(self, first: str = "") -> str:
        steered = self._instructor.notes() if self._instructor is not None else []
        return "; ".join(part for part in (first, *steered) if part)
