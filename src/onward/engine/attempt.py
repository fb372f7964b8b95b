"""One attempt of a step: call the handler, end it from outside, and judge what came of it.

`AttemptRunner` calls the handler in the task of the run loop, or of its branch. Ending it early is cancelling
that task with a reason noted first, so that a stop, a lost lease and a real cancellation can be told apart.
A plain function runs in a thread, which cannot be ended: where the step may begin again afterwards, as after
a time-out, the attempt waits for the function first. An async function may swallow its cancellation. What
still runs when all patience is over leaves the step in doubt.

`Executor` does what a plan says: an attempt, its work tree before, the merge after branches. `Attempt` is
what its handler and its calls see of the run. The preamble of a step comes from the end of the log. It is
read only when the step asks.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from functools import partial

import msgspec

from onward import errors
from onward.clock import Clock
from onward.engine.appender import Appender, EngineParts
from onward.engine.calls import CallParts, CallRecorder
from onward.engine.claims import Hold
from onward.engine.hold import AttemptHold
from onward.engine.log import Folded, redacted_result
from onward.engine.stop import StopSwitch
from onward.handlers.calls import Recorder
from onward.handlers.port import Handler, Postponed, StepContext, close_attempt
from onward.handlers.user_functions import Functions
from onward.machine.definition import AGENT, Definition
from onward.machine.plan.results import (
    ActionResult,
    AttemptCut,
    AttemptEnded,
    AttemptLeft,
    BranchesMerged,
    WorkspaceUnusable,
)
from onward.model.chat import EarlierMessage
from onward.model.context import check_updates
from onward.model.events import StepStarted, StepStatus, Tree
from onward.model.ids import branch_of
from onward.model.result import Result
from onward.model.run import NOTHING_PENDING, Pending, Run
from onward.pipeline.rules.attributes import DEFAULT_FIDELITY, FIDELITIES
from onward.read.past import STYLES, past_of, preamble
from onward.store.codec import unseal


class Interrupted(msgspec.Struct, frozen=True):
    """The attempt was ended from outside before it had a result. `in_doubt`: something of it still runs.

    `are_calls`: what still runs are functions of its calls.
    """

    why: str
    in_doubt: bool = False
    are_calls: bool = False


class AttemptRunner:
    """Runs attempts one after another, all in one task, and can interrupt the one that is under way.

    One that is `for_one` attempt can be interrupted before that begins.
    """

    def __init__(self, clock: Clock, *, for_one: bool = False) -> None:
        self._clock, self._for_one = clock, for_one
        self._own: asyncio.Task[object] | None = None
        self._task: asyncio.Task[object] | None = None
        self._step: StepContext | None = None
        self._why: str | None = None
        self._is_cancelled = self._is_patient = self._is_in_doubt = False
        self._waiting: asyncio.Task[None] | None = None

    def interrupt(self, why: str, *, patiently: bool = False) -> None:
        """End the current attempt; with none under way, nothing happens unless this is for one alone.

        `patiently`: a function that cannot be ended may return first, for as long as there is patience.
        """
        if self._task is None:
            if self._for_one and self._why is None:
                self._why = why
            return
        assert self._step is not None
        if self._why is not None and (patiently or self._is_cancelled):
            return
        self._why, self._is_patient = why, patiently
        self._stop_waiting()
        functions = self._step.functions
        if patiently and (functions.is_busy() or functions.are_calls_busy):
            self._waiting = asyncio.create_task(self._wait(self._step))
        else:
            self._cancel()

    async def _wait(self, step: StepContext) -> None:
        await step.functions.wait_all()
        self._is_in_doubt = step.functions.is_busy()
        if step.functions.is_open:  # else the handler has just returned, and has a result
            self._cancel()

    def _cancel(self) -> None:
        assert self._task is not None
        self._is_cancelled = True
        self._task.cancel()

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    async def run(self, handler: Handler, step: StepContext) -> Result | Interrupted:
        """The handler's result, or that it was ended. Its errors are results too."""
        if self._for_one and self._why is not None:
            return Interrupted(self._why)
        task = self._task = self._own = self._own or _this_task()
        self._step, self._why, cancels = step, None, task.cancelling()
        self._is_cancelled = self._is_patient = self._is_in_doubt = False
        result: Result | Interrupted
        try:
            result = await _call(handler, step, self._clock)
        except asyncio.CancelledError:
            if task.cancelling() == cancels:
                return Result.fail("the handler awaited something that was cancelled")
            if not self._is_cancelled:
                raise
            result = self._interrupted(step)
        finally:
            self._task = self._step = None
            close_attempt(step)
            if self._waiting is not None:
                self._stop_waiting()
        if self._is_cancelled:
            await _uncancel(task, cancels)
        return result

    def _interrupted(self, step: StepContext) -> Interrupted:
        assert self._why is not None
        if self._is_in_doubt or (self._is_patient and step.functions.is_busy()):
            return Interrupted(f"{self._why}, and {step.functions.told()}", in_doubt=True)
        return Interrupted(self._why, are_calls=self._is_patient and step.functions.are_calls_busy)


def _this_task() -> asyncio.Task[object]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def _uncancel(task: asyncio.Task[object], cancels: int) -> None:
    """Forget our own cancellation; one that came from elsewhere at the same time still counts."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)  # it may not have reached the handler, which was done just then
    if task.uncancel() > cancels:
        raise asyncio.CancelledError


async def _call(handler: Handler, step: StepContext, clock: Clock) -> Result | Interrupted:
    """The handler's result; an error becomes a failure, and one of ours is not worth another try.

    Only a database that was out of reach may be back by then. Neither does a handler that exits end the
    process: the run has other steps, and the process other runs.
    """
    room, node = step.room, step.node
    try:
        if step.functions.is_busy() and not await step.functions.wait_idle():
            return Interrupted(f"an earlier attempt is still running: {step.functions.told()}", in_doubt=True)
        if room.is_full:
            await room.prepare(node, step.prompt)
        if node.timeout_s is None or handler.keeps_time:
            result = await handler.run(step)
        else:
            in_time = await _in_time(handler, step, node.timeout_s, clock)
            if isinstance(in_time, Interrupted):
                return in_time
            result = in_time
        step.functions.close()
        result = _without_secrets(result, step)  # before anything is written from it
        if room.is_used() or (node.auto_status and not result.is_decided):
            result = await room.settle(node, result)
        if result.context_updates:
            check_updates(result.context_updates)
        return result
    except Postponed as postponed:
        if not step.stopping.is_set():
            return Result.fail("the handler postponed its step without a request to do so", retryable=False)
        return Interrupted(step.redactor.redact(postponed.why))
    except errors.OnwardError as error:
        if isinstance(error, errors.CallTimedOut) and error.is_running and step.functions.is_busy():
            why = step.redactor.redact(errors.said(error)).rstrip(".")
            return Interrupted(f"{why}, and {step.functions.told()}", in_doubt=True)
        if isinstance(error, errors.CallStillRunning):
            return Interrupted(step.redactor.redact(errors.said(error)).rstrip("."), are_calls=True)
        step.output.raised(error)
        may_pass = isinstance(error, errors.StoreUnavailable | errors.StoreIO)  # a database may come back
        failed = _without_secrets(Result.fail(errors.said(error), retryable=may_pass), step)
        return replace(failed, keeps_calls=True)
    except (Exception, SystemExit) as error:
        step.output.raised(error)
        return replace(_without_secrets(Result.fail(errors.told(error)), step), keeps_calls=True)


def _without_secrets(result: Result, step: StepContext) -> Result:
    """The result with what the handler wrote down on the way."""
    return redacted_result(step.redactor, result.with_log(step.lines) if step.lines else result)


async def _in_time(
    handler: Handler, step: StepContext, timeout_s: float, clock: Clock
) -> Result | Interrupted:
    """The handler's result, or that its time was over. A late result of a plain function still counts."""
    task = _this_task()
    limit = _TimeLimit(task, step, timeout_s, clock)
    cancels, timer = task.cancelling(), asyncio.create_task(limit.enforce())
    try:
        return await handler.run(step)
    except asyncio.CancelledError:
        if not limit.is_over or task.uncancel() > cancels:
            raise
        why = f"timed out after {timeout_s:g} s"
        if step.functions.is_busy():
            return Interrupted(f"{why}, and {step.functions.told()}", in_doubt=True)
        if step.functions.are_calls_busy:
            return Interrupted(why, are_calls=True)
        return replace(Result.fail(why), keeps_calls=True)
    finally:
        timer.cancel()


class _TimeLimit(msgspec.Struct):
    """Cancels an attempt when its time is over; a plain function cannot be ended, so it may return first."""

    task: asyncio.Task[object]
    step: StepContext
    timeout_s: float
    clock: Clock
    is_over: bool = False

    async def enforce(self) -> None:
        await self.step.functions.stopwatch.wait_s(self.timeout_s, self.clock)
        await self.step.functions.wait_all()
        self.is_over = True
        self.task.cancel()


FAILED = (StepStatus.FAIL, StepStatus.RETRY)
STOPPED = "stopped by a signal"
HELD = "it was held between two calls"
EXPIRED = "the lease could not be renewed in time"


class Executor(msgspec.Struct, eq=False):
    """Executes the steps of one held run. `stopping` is set when its handlers may end early."""

    parts: EngineParts
    definition: Definition
    appender: Appender
    hold: Hold
    stop: StopSwitch
    stopping: asyncio.Event
    asked: Pending = NOTHING_PENDING
    """The requests that were seen while attempts were under way; the fold may not have them yet."""
    loop: asyncio.AbstractEventLoop = msgspec.field(default_factory=asyncio.get_running_loop)

    async def execute(self, folded: Folded, started: StepStarted, runner: AttemptRunner) -> ActionResult:
        """One attempt. LeaseLost: its result does not count."""
        hold, parts = self.hold, self.parts
        keeper = parts.keeper
        if not keeper.is_trusted(hold):
            await keeper.regain(hold)
        run, definition, workspace = folded.run, self.definition, None
        if run.workspace is not None:
            try:
                workspace = await self.parts.workspaces.directory(definition, run, branch_of(started.step))
            except errors.WorkspaceFailed as error:
                return self._ended(started.step, Result.fail(self._told(error), retryable=error.may_pass))
        room = parts.rooms.of(definition, run, started, self.loop)
        context = StepContext(
            run,
            started,
            definition.graph,
            room=room,
            stopping=self.stopping,
            workspace=workspace,
            deadline=hold.deadline,
            clock=parts.clock,
            show=parts.show,
            log=Attempt(self, folded, started, runner),
            redactor=parts.journal.redactor,
        )
        if self.stop.is_now:
            return AttemptCut(started.step, started.attempt, STOPPED)  # asked while the start was written
        try:
            result = await runner.run(self._handler(started.node), context)
        finally:
            recorded = context.recorded
            if recorded is not None:
                recorded.close()
        if hold.is_lost:
            raise hold.loss
        if recorded is not None and await recorded.is_held():
            return AttemptLeft(started.step)
        if isinstance(result, Interrupted) or result.status in FAILED:
            if not _has_succeeded(result) and not keeper.is_trusted(hold):
                # It may have failed because the lease ended, so the failure is not the step's.
                await keeper.regain(hold)
                result = result if isinstance(result, Interrupted) else Interrupted(EXPIRED)
            if isinstance(result, Interrupted):
                running = recorded.still_running() if recorded is not None and result.are_calls else ()
                return AttemptCut(
                    *(started.step, started.attempt, result.why, result.in_doubt, context.output.last()),
                    running,
                )
            result = replace(result, output=context.output.last())
        if workspace is None:
            return self._ended(started.step, result)
        return await self._with_tree(run, started.step, result)

    def stops_at_call(self) -> str:
        """Why attempts stop before their next call: a signal, or a pause that does not wait for the step."""
        if self.stop.reason is not None:
            return STOPPED
        for pending in (self.appender.run.pending, self.asked):
            if pending.pause_after in ("call", "now"):
                return f"paused by {pending.pause_by}"
        return ""

    def _handler(self, node_id: str) -> Handler:
        kind = self.definition.kind(node_id)
        handler = self.parts.handlers.get(kind)
        if handler is None:
            raise errors.UnknownHandler(node_id, kind, list(self.parts.handlers))
        return handler

    async def _with_tree(self, run: Run, step: str, result: Result) -> ActionResult:
        """The result together with what the step left in its work tree."""
        try:
            tree = await self.parts.workspaces.record(self.definition, run, step)
        except errors.WorkspaceFailed as error:
            before = f"{result.failure_reason}; " if result.failure_reason else ""
            return self._ended(step, Result.fail(f"{before}{self._told(error)}", retryable=error.may_pass))
        return self._ended(step, result, tree)

    def _ended(self, step: str, result: Result, tree: Tree | None = None) -> ActionResult:
        jitter = self.parts.dice.roll() if result.status in FAILED else 0.0  # only a retry needs it
        return AttemptEnded(step, result, jitter, tree)

    def _told(self, error: Exception) -> str:
        """What an error of the workspace says, which may show what git printed."""
        return self.parts.journal.redactor.redact(str(error))

    async def _check(self) -> None:
        """Make sure of the lease before anything happens outside."""
        if not self.parts.keeper.is_trusted(self.hold):
            await self.parts.keeper.regain(self.hold)

    async def open_workspace(self, run: Run) -> ActionResult | None:
        """Open the work tree before anything is executed; if that fails, the run stops here."""
        await self._check()
        try:
            await self.parts.workspaces.open(run)
        except (errors.WorkspaceFailed, errors.InvalidInput) as error:
            return WorkspaceUnusable(self._told(error), has_begun=False)
        return None

    async def merge(self, run: Run, step: str) -> ActionResult:
        """Merge what the branches of a fan-out changed. Repeated after a crash, it has the same result."""
        await self._check()  # the trees may be another process's by now
        still_ours = partial(self.parts.keeper.regain, self.hold)
        try:
            merged = await self.parts.workspaces.merge(self.definition, run, run.parallels[step], still_ours)
        except errors.WorkspaceFailed as error:
            return WorkspaceUnusable(self._told(error), has_begun=True)
        return BranchesMerged(step, merged)


def _has_succeeded(result: Result | Interrupted) -> bool:
    return isinstance(result, Result) and result.status is not StepStatus.FAIL


# A bounded end: a preamble is short, and its cost must not grow with the run's age.
EVENTS_READ = {"compact": 250, "summary:low": 250, "summary:medium": 500, "summary:high": 1_000}


class Attempt(msgspec.Struct, frozen=True, eq=False):
    """One attempt: the log as its handler uses it, and what holds it between two calls."""

    executor: Executor
    folded: Folded
    started: StepStarted
    runner: AttemptRunner

    async def recall(self, mode: str) -> str:
        """The summary of the run for this step, with its own fidelity or another."""
        started, folded = self.started, self.folded
        mode = mode or started.fidelity or DEFAULT_FIDELITY
        if mode not in FIDELITIES:
            raise errors.InvalidInput(f"{mode!r} is not a fidelity; use one of {', '.join(FIDELITIES)}.")
        if mode not in STYLES:
            return ""
        records = await self.executor.parts.journal.tail(folded, EVENTS_READ.get(mode, 0))
        events = [unseal(record) for record in records]
        is_whole = len(records) == folded.position.seq
        goal, branch = self.executor.definition.graph.goal, branch_of(started.step)
        return preamble(mode, past_of(goal, folded.run, branch, events, is_whole=is_whole))

    async def remember(self, count: int) -> tuple[EarlierMessage, ...]:
        """The last messages of the run's chat before the run, at most `count`; oldest first."""
        return await self.executor.parts.services.history.before(self.folded.run, count)

    def open_recorder(self, functions: Functions) -> Recorder:
        """What records the calls of the attempt, created when its handler makes the first."""
        executor = self.executor
        parts = CallParts(executor.parts, executor.appender, executor.hold, executor.loop)
        return CallRecorder(parts, self.started, functions, AttemptHold(parts.appender, self.started, self))

    @property
    def agent(self) -> Handler | None:
        """What serves agent steps here; None if nothing does."""
        return self.executor.parts.handlers.get(AGENT)

    def stops_at_call(self) -> str:
        """Why the attempt should stop before its next call; empty if it should not."""
        return self.executor.stops_at_call()

    def end(self) -> None:
        """Stop the handler: the attempt is held."""
        self.runner.interrupt(HELD)
