"""Execute what a plan says: an attempt of a step, its work tree before, the merge after branches.

The preamble of a step comes from the end of the log. It is read only when the step asks.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import msgspec

from onward.engine.appender import Appender, EngineParts
from onward.engine.attempt import AttemptHold, AttemptRunner, Interrupted
from onward.engine.calls import CallParts, CallRecorder
from onward.engine.journal import Journal
from onward.engine.lease import Hold
from onward.engine.log import Folded
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput, UnknownHandler, WorkspaceFailed
from onward.handlers.calls import Recorder
from onward.handlers.port import Handler, StepContext
from onward.handlers.user_functions import Functions
from onward.machine.definition import Definition
from onward.machine.plan.results import (
    ActionResult,
    AttemptCut,
    AttemptEnded,
    AttemptLeft,
    BranchesMerged,
    WorkspaceUnusable,
)
from onward.model.events import StepStarted, StepStatus, Tree
from onward.model.ids import branch_of
from onward.model.result import Result
from onward.model.run import NOTHING_PENDING, Pending, Run
from onward.pipeline.graph import Graph
from onward.pipeline.rules.attributes import DEFAULT_FIDELITY, FIDELITIES
from onward.read.past import STYLES, past_of, preamble
from onward.store.codec import unseal

FAILED = (StepStatus.FAIL, StepStatus.RETRY)
STOPPED = "stopped by a signal"
HELD = "it was held between two calls"
EXPIRED = "the lease could not be renewed in time"


class Executor(msgspec.Struct, eq=False):
    """Executes the steps of one held run. `stopping` is set when its handlers may end early."""

    _parts: EngineParts
    _definition: Definition
    _appender: Appender
    _hold: Hold
    _stop: StopSwitch
    _stopping: asyncio.Event
    asked: Pending = NOTHING_PENDING
    """The requests that were seen while attempts were under way; the fold may not have them yet."""
    _loop: asyncio.AbstractEventLoop = msgspec.field(default_factory=asyncio.get_running_loop)

    async def execute(self, folded: Folded, started: StepStarted, runner: AttemptRunner) -> ActionResult:
        """One attempt. LeaseLost: its result does not count."""
        hold, parts = self._hold, self._parts
        keeper = parts.keeper
        if not keeper.is_trusted(hold):
            await keeper.regain(hold)
        run, definition, workspace = folded.run, self._definition, None
        if run.workspace is not None:
            try:
                workspace = await self._parts.workspaces.directory(definition, run, branch_of(started.step))
            except WorkspaceFailed as error:
                return self._ended(started.step, Result.fail(self._told(error), retryable=error.may_pass))
        room = parts.rooms.of(definition, run, started, self._loop)
        context = StepContext(
            run,
            started,
            definition.graph,
            room=room,
            stopping=self._stopping,
            recall=partial(recall, parts.journal, definition.graph, folded, started),
            workspace=workspace,
            deadline=hold.deadline,
            clock=parts.clock,
            show=parts.show,
            record=partial(self._recorder, runner),
            redactor=parts.redactor,
        )
        if self._stop.is_now:
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
                return AttemptCut(
                    started.step, started.attempt, result.why, result.in_doubt, context.output.last()
                )
            result = replace(result, output=context.output.last())
        if workspace is None:
            return self._ended(started.step, result)
        return await self._with_tree(run, started.step, result)

    def _recorder(self, runner: AttemptRunner, started: StepStarted, functions: Functions) -> Recorder:
        """What records the calls of an attempt, created when its handler makes the first."""
        parts = self._parts
        call_parts = CallParts(
            self._appender,
            parts.journal,
            parts.blobs,
            parts.effects,
            parts.keeper,
            self._hold,
            parts.clock,
            parts.dice,
            self._loop,
            parts.flusher,
            parts.sweep,
            parts.waiting,
        )
        end_attempt = partial(runner.interrupt, HELD)
        holding = AttemptHold(self._appender, started, self._stops_at_call, end_attempt)
        return CallRecorder(call_parts, started, functions, holding)

    def _stops_at_call(self) -> str:
        """Why attempts stop before their next call: a signal, or a pause that does not wait for the step."""
        if self._stop.reason is not None:
            return STOPPED
        for pending in (self._appender.run.pending, self.asked):
            if pending.pause_after in ("call", "now"):
                return f"paused by {pending.pause_by}"
        return ""

    def _handler(self, node_id: str) -> Handler:
        kind = self._definition.kind(node_id)
        handler = self._parts.handlers.get(kind)
        if handler is None:
            raise UnknownHandler(node_id, kind, list(self._parts.handlers))
        return handler

    async def _with_tree(self, run: Run, step: str, result: Result) -> ActionResult:
        """The result together with what the step left in its work tree."""
        try:
            tree = await self._parts.workspaces.record(self._definition, run, step)
        except WorkspaceFailed as error:
            before = f"{result.failure_reason}; " if result.failure_reason else ""
            return self._ended(step, Result.fail(f"{before}{self._told(error)}", retryable=error.may_pass))
        return self._ended(step, result, tree)

    def _ended(self, step: str, result: Result, tree: Tree | None = None) -> ActionResult:
        jitter = self._parts.dice.roll() if result.status in FAILED else 0.0  # only a retry needs it
        return AttemptEnded(step, result, jitter, tree)

    def _told(self, error: Exception) -> str:
        """What an error of the workspace says, which may show what git printed."""
        return self._parts.redactor.redact(str(error))

    async def _check(self) -> None:
        """Make sure of the lease before anything happens outside."""
        if not self._parts.keeper.is_trusted(self._hold):
            await self._parts.keeper.regain(self._hold)

    async def open_workspace(self, run: Run) -> ActionResult | None:
        """Open the work tree before anything is executed; if that fails, the run stops here."""
        await self._check()
        try:
            await self._parts.workspaces.open(run)
        except (WorkspaceFailed, InvalidInput) as error:
            return WorkspaceUnusable(self._told(error), has_begun=False)
        return None

    async def merge(self, run: Run, step: str) -> ActionResult:
        """Merge what the branches of a fan-out changed. Repeated after a crash, it has the same result."""
        await self._check()  # the trees may be another process's by now
        still_ours = partial(self._parts.keeper.regain, self._hold)
        try:
            merged = await self._parts.workspaces.merge(
                self._definition, run, run.parallels[step], still_ours
            )
        except WorkspaceFailed as error:
            return WorkspaceUnusable(self._told(error), has_begun=True)
        return BranchesMerged(step, merged)


def _has_succeeded(result: Result | Interrupted) -> bool:
    return isinstance(result, Result) and result.status is not StepStatus.FAIL


# A bounded end: a preamble is short, and its cost must not grow with the run's age.
EVENTS_READ = {"compact": 250, "summary:low": 250, "summary:medium": 500, "summary:high": 1_000}


async def recall(journal: Journal, graph: Graph, folded: Folded, started: StepStarted, mode: str) -> str:
    """The summary of the run for the step that `started`, with its own fidelity or another."""
    mode = mode or started.fidelity or DEFAULT_FIDELITY
    if mode not in FIDELITIES:
        raise InvalidInput(f"{mode!r} is not a fidelity; use one of {', '.join(FIDELITIES)}.")
    if mode not in STYLES:
        return ""
    records = await journal.tail(folded, EVENTS_READ.get(mode, 0))
    events = [unseal(record) for record in records]
    is_whole = len(records) == folded.position.seq
    past = past_of(graph.goal, folded.run, branch_of(started.step), events, is_whole=is_whole)
    return preamble(mode, past)
