"""The manager loop: a step that manages another run until that ends, or a stop condition is met.

The child is a separate run, with its own log and lease; this step executes it, observes it and gives it
instructions. Whatever happens to the process, both runs are where their logs say, and the next attempt of
the step finds the same child.

The child is executed in this process, in a task, and its gates are answered by the interviewer. The agent
that gives instructions is asked in a task of its own, so a slow model delays nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from onward.clock import Clock
from onward.engine.child import (
    EXHAUSTED,
    MANAGER,
    PREFIX,
    SATISFIED,
    TIMED_OUT,
    ManagedRuns,
    ManagerSettings,
    find_or_make,
    holds,
    latest,
    named,
    observed,
    stands_idle,
    why_cancelled,
)
from onward.engine.control.requests import Informed, Interviewer, Resume, Said, answers_of
from onward.engine.log import Folded, RequestTerms
from onward.engine.persist import retry_store
from onward.engine.stop import StopSwitch
from onward.errors import LeaseLost, Refused, StoreIO, StoreUnavailable
from onward.handlers.port import Handler, Postponed, StepContext
from onward.machine import reasons
from onward.machine.decide.requests import STEERING_CHARACTERS_MAX, woken
from onward.machine.reasons import is_recoverable
from onward.model.events import RunCancelled, StepStatus
from onward.model.result import Result
from onward.model.run import Gate, Run, RunStatus
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
        self.execution = ChildExecution(runs, clock, step.stopping, interviewer, self._news)
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


STOP_S = 2.0  # how long a child that is stopped may take to record it


class ChildExecution:
    """Executes the child of one attempt of a managing step, or of a call. Sets `news` when it stops."""

    def __init__(
        self,
        runs: ManagedRuns,
        clock: Clock,
        stopping: asyncio.Event,
        interviewer: Interviewer | None,
        news: asyncio.Event,
    ) -> None:
        """`stopping` is set when the step may end early."""
        self._runs, self._clock, self._stopping, self._news = runs, clock, stopping, news
        self._interviewer, self._is_asking = interviewer, False
        self._stop = StopSwitch(grace_s=None)  # the manager's own grace counts for both
        self._relay = asyncio.create_task(self._relay_stop())
        self._task: asyncio.Task[Folded] | None = None
        self._is_left_open = False

    async def _relay_stop(self) -> None:
        """Ask the child to stop when its manager is asked, whatever the loop is doing."""
        await self._stopping.wait()
        self.stop()
        self._news.set()

    def stop(self) -> None:
        """Let the child stop after its step; it is not executed here any more."""
        if self._stop.reason is None:  # a second time would mean: now
            self._stop.request(reasons.MANAGER)

    @property
    def is_under_way(self) -> bool:
        """Whether the child is executed here."""
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
            self._stop.request(reasons.MANAGER, now=True)
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


INSTRUCTION = "stack.steer"  # where an agent may put an instruction that is longer than a response


class Instructor:
    """Asks for one instruction at a time, and not for another before the child has taken it."""

    def __init__(
        self, runs: ManagedRuns, clock: Clock, agent: Handler, step: StepContext, cooldown_s: float
    ) -> None:
        self._runs, self._clock, self._agent, self._step = runs, clock, agent, step
        self._cooldown_s, self._asked_s = cooldown_s, clock.awake_s()
        self._asking: asyncio.Task[None] | None = None
        self._given = 0
        self._trouble = ""

    def consider(self, child: Run, seen: Mapping[str, Any]) -> None:
        """Ask, if the child has nothing to take yet and the last question is long enough ago."""
        is_asking = self._asking is not None and not self._asking.done()
        if is_asking or child.steering or self._clock.awake_s() - self._asked_s < self._cooldown_s:
            return
        self._asked_s = self._clock.awake_s()
        self._asking = asyncio.create_task(self._instruct(child.id, seen))

    async def _instruct(self, child: str, seen: Mapping[str, Any]) -> None:
        """Ask and steer. If the model fails, the child continues, and the failure is noted."""
        asking = self._step.asking(seen, execution=self._given + 1)
        try:
            said = await self._agent.run(asking)
            if said.status not in (StepStatus.SUCCESS, StepStatus.PARTIAL_SUCCESS):
                self._trouble = f"no instruction could be given: {said.failure_reason}"
                return
            updates = said.context_updates
            text = str(updates.get(INSTRUCTION) or updates.get("last_response") or "").strip()
            if text:
                await self._runs.steer(child, text[:STEERING_CHARACTERS_MAX], by=MANAGER)
                self._given += 1
        except Refused:
            return  # the child has ended meanwhile
        except Exception as error:
            self._trouble = f"no instruction could be given: {type(error).__name__}: {error}"

    def notes(self) -> list[str]:
        """What there is to say about it."""
        given = [f"steered {self._given} times"] if self._given else []
        return given + ([self._trouble] if self._trouble else [])

    async def end(self) -> None:
        """End the question that is under way, if there is one."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
