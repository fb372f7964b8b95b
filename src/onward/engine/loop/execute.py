"""Performing what a plan says: an attempt of a step, the work tree before it, and the merge behind branches.

Each has an `Upshot`: how to record it against the run as that is when it is written down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from onward.engine.lease.keeper import Hold
from onward.engine.log.journal import Folded
from onward.engine.loop.attempt import Ended, Interrupter
from onward.engine.loop.ports import Tools
from onward.engine.loop.stop import StopSwitch
from onward.engine.step.recall import recall
from onward.errors import InvalidInput, UnknownHandler, WorkspaceFailed
from onward.handlers.port import Handler, StepContext
from onward.machine.definition import Definition
from onward.machine.plan.fan_in import joined
from onward.machine.plan.finish import finish
from onward.machine.plan.workspace import unusable
from onward.model.event import AttemptInterrupted, Event, StepStarted, StepStatus
from onward.model.ids import branch_of
from onward.model.result import Result
from onward.model.run import Run
from onward.model.workspace import Tree

Upshot = Callable[[Run, int], Sequence[Event]]
"""The events for what came of an effect, given the run and the time at which they are recorded."""
STOPPED = "stopped by a signal"
EXPIRED = "the lease could not be renewed in time"


class Performer:
    """Does the effects of one run. `stopping` is set when its handlers may end early."""

    def __init__(
        self, tools: Tools, definition: Definition, stop: StopSwitch, stopping: asyncio.Event
    ) -> None:
        self._tools, self._definition, self._stop, self._stopping = tools, definition, stop, stopping
        self._loop = asyncio.get_running_loop()

    async def perform(
        self, folded: Folded, hold: Hold, started: StepStarted, interrupter: Interrupter
    ) -> Upshot:
        """One attempt. LeaseLost: whatever it came to does not count."""
        await self._check(hold)
        run, definition, workspace = folded.run, self._definition, None
        if run.workspace is not None:
            try:
                workspace = await self._tools.workspaces.directory(definition, run, branch_of(started.step))
            except WorkspaceFailed as error:
                return self._finished(started.step, Result.fail(str(error), retryable=error.may_pass))
        context = StepContext(
            run,
            started,
            definition.graph,
            room=self._tools.rooms.of(definition, run, started, self._loop),
            stopping=self._stopping,
            recall=partial(recall, self._tools.journal, definition.graph.goal, folded, started),
            make_once=self._tools.make_once,
            workspace=workspace,
            deadline=hold.deadline,
        )
        if self._stop.is_now:
            return _interrupted(started, STOPPED)  # asked while the start was being written
        result = await interrupter.run(self._handler(started.node), context)
        if hold.is_lost:
            raise hold.loss
        if not self._tools.keeper.is_trusted(hold) and not _has_succeeded(result):
            # Whatever it failed of may be the end of the lease; the step itself is not to blame.
            await self._tools.keeper.regain(hold)
            result = result if isinstance(result, Ended) else Ended(EXPIRED)
        if isinstance(result, Ended):
            return _interrupted(started, result.why, in_doubt=result.in_doubt)
        if workspace is None:
            return self._finished(started.step, result)
        return await self._with_tree(run, started.step, result)

    def _handler(self, node_id: str) -> Handler:
        kind = self._definition.kind(node_id)
        handler = self._tools.handlers.get(kind)
        if handler is None:
            raise UnknownHandler(node_id, kind, list(self._tools.handlers))
        return handler

    async def _with_tree(self, run: Run, step: str, result: Result) -> Upshot:
        """The result together with what the step left in its work tree."""
        try:
            tree = await self._tools.workspaces.record(self._definition, run, step)
        except WorkspaceFailed as error:
            before = f"{result.failure_reason}; " if result.failure_reason else ""
            return self._finished(step, Result.fail(f"{before}{error}", retryable=error.may_pass))
        return self._finished(step, result, tree)

    def _finished(self, step: str, result: Result, tree: Tree | None = None) -> Upshot:
        return partial(_finishing, self._definition, step, result, self._tools.dice.roll(), tree)

    async def _check(self, hold: Hold) -> None:
        """Nothing is done outside under a lease that cannot be trusted."""
        if not self._tools.keeper.is_trusted(hold):
            await self._tools.keeper.regain(hold)

    async def open_workspace(self, run: Run, hold: Hold) -> Upshot | None:
        """Have the work tree before anything is executed; if that cannot be, the run stops here."""
        await self._check(hold)
        try:
            await self._tools.workspaces.open(run)
        except (WorkspaceFailed, InvalidInput) as error:
            why = str(error)
            return lambda run, now_us: unusable(run, why, has_begun=False)
        return None

    async def merge(self, run: Run, hold: Hold, step: str) -> Upshot:
        """Take over what the branches of a fan-out changed. Done again after a crash, it is the same."""
        await self._check(hold)  # the trees may be somebody else's by now
        definition, still_ours = self._definition, partial(self._tools.keeper.regain, hold)
        try:
            merged = await self._tools.workspaces.merge(definition, run, run.parallels[step], still_ours)
        except WorkspaceFailed as error:
            why = str(error)
            return lambda run, now_us: unusable(run, why, has_begun=True)
        return lambda run, now_us: joined(definition, run, step, merged)


def _finishing(
    definition: Definition,
    step: str,
    result: Result,
    jitter: float,
    tree: Tree | None,
    run: Run,
    now_us: int,
) -> Sequence[Event]:
    return finish(definition, run, step, result, now_us=now_us, jitter=jitter, tree=tree)


def _has_succeeded(result: Result | Ended) -> bool:
    return isinstance(result, Result) and result.status is not StepStatus.FAIL


def _interrupted(started: StepStarted, why: str, *, in_doubt: bool = False) -> Upshot:
    event = AttemptInterrupted(step=started.step, attempt=started.attempt, why=why, in_doubt=in_doubt)
    return lambda run, now_us: (event,)
