"""A run that a call of a flow waits for: `await graph("site.dot")`.

The log of the flow names the run before it exists, so there is never a second one. The run is executed in
this process, in a task, as that of a managing step is. If it stops before its end, or another process has
it, the branch waits, and the flow gives its process up when all branches do. Whoever ends the run lets the
flow continue (`awaited`).
"""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from onward.engine.calls import CallParts, CallRecorder
from onward.engine.child import NewChild, child_pipeline, create_child, latest
from onward.engine.hold import AttemptHold, UnderWay
from onward.engine.log import Folded
from onward.engine.overseer import LOOK_S, ChildExecution
from onward.engine.persist import retry_store, unbroken
from onward.engine.sources import is_source
from onward.errors import (
    InvalidInput,
    InvalidPipeline,
    NoProvider,
    PipelineNotFound,
    RunNotFound,
    UnknownHandler,
    said,
)
from onward.handlers.calls import ChildAsked, ChildEnded
from onward.handlers.port import StepContext
from onward.machine.decide.calls import finish_call
from onward.machine.fold.calls import PAUSE
from onward.machine.reasons import is_at_limit, is_recoverable
from onward.model.call import STARTED, CallFinished, CallKind, CallStatus
from onward.model.ids import called, called_run_id
from onward.model.run import Run, RunStatus
from onward.pipeline.build import Pipeline

REFUSED = (InvalidInput, InvalidPipeline, PipelineNotFound, UnknownHandler, NoProvider)
"""Why a run cannot be created: the call fails."""
STOPPED = (RunStatus.PAUSED, RunStatus.INTERRUPTED)


class _Waits(msgspec.Struct, frozen=True):
    """What a branch waits for while its run is not executed here."""

    says: str
    until_us: int | None = None
    is_stopped: bool = False


class FlowChild:
    """The run of one call, for one attempt of its flow."""

    def __init__(
        self,
        recorder: CallRecorder,
        parts: CallParts,
        step: StepContext,
        asked: ChildAsked,
        holding: AttemptHold,
        under_way: UnderWay,
    ) -> None:
        self._recorder, self._parts, self._step, self._asked = recorder, parts, step, asked
        self._holding, self._under_way = holding, under_way
        engine = parts.engine
        self._runs, self._clock, self._news = engine.managed, engine.clock, asyncio.Event()
        self._execution = ChildExecution(
            self._runs, engine.clock, step.stopping, engine.interviewer, self._news
        )
        opened = parts.appender.run.open_steps[step.step]
        self._id = called_run_id(step.run_id, step.step, asked.key, opened.opened_at_us)
        self._may_retry, self._may_try = asked.fails, True

    async def ended(self) -> ChildEnded:
        """How the run ended. While it cannot be executed here, the branch is parked."""
        try:
            await self._create()
        except REFUSED as refused:
            return ChildEnded("", failure=said(refused).removesuffix("."))
        while True:
            child = await self._look()
            if (ended := self._end(child)) is not None:
                return ended
            if self._asked.hooks.is_ending:
                raise asyncio.CancelledError
            if self._step.stopping.is_set():
                self._holding.ask(PAUSE, f"stopped with its {self._named(child.run)}")
                await self._holding.boundary()  # this never returns
            elif self._may_execute(child):
                await self._execute(child)
            else:
                await self._wait(child)

    async def close(self) -> None:
        """End everything that was started here. A run that is to stop gets a moment to record that."""
        if self._step.stopping.is_set():
            await self._execution.stop_now()
        await self._execution.end()

    # -- creating ------------------------------------------------------------------------------------

    async def _create(self) -> None:
        """Create the run, unless it exists. From the moment at which it is named it is this one."""
        try:
            found = (await self._runs.journal.load(self._id)).run
        except RunNotFound:
            await self._make()
            return
        by = found.managed_by
        if by is None or (by.run, by.step, by.call) != (self._step.run_id, self._step.step, self._asked.key):
            raise InvalidInput(
                f"{self._asked.key!r} would wait for run {self._id}, which it did not create; fork the flow "
                f"before it: onward replay {called(self._step.run_id)} --from {self._asked.key}"
            )

    async def _make(self) -> None:
        step, asked = self._step, self._asked
        parent = self._parts.appender.run
        pipeline = await self._pipeline(parent)
        new = NewChild(
            *(self._id, f"{asked.key!r}", step.step, asked.key, asked.values),
            step.workspace or parent.workdir,
        )
        self._runs.check_served(pipeline, parent.simulation, new.workdir)
        with self._asked.hooks.under_way():
            await self._holding.boundary()
            with self._under_way.one(asked.key, None):
                if asked.started != self._id:
                    await self._name()
                await self._parts.trust()
                await retry_store(self._clock, lambda: create_child(self._runs, parent, new, pipeline))

    async def _pipeline(self, parent: Run) -> Pipeline:
        written = self._asked.pipeline
        if is_source(written):
            return self._runs.sources.prepare(written, f"<{self._asked.key}>")
        return await child_pipeline(self._runs, parent, written)

    async def _name(self) -> None:
        """Record which run it is. A fork of the flow gets one of its own."""
        asked = self._asked
        named = CallFinished(
            step=self._step.step,
            attempt=self._step.attempt,
            call=f"{asked.key}{STARTED}",
            number=1,
            status=CallStatus.OK,
            type=CallKind.RUN.value,
            name=asked.key.rpartition("/")[2].partition("#")[0],
            value={"run": self._id},
            about=f"run {called(self._id)}",
            inputs=asked.inputs,
            patches=asked.patches,
        )
        await unbroken(self._parts.appender.record(partial(finish_call, finished=named)))

    # -- looking -------------------------------------------------------------------------------------

    async def _look(self) -> Folded:
        """The run as it stands, or the one that continues in its place."""
        return await retry_store(self._clock, lambda: latest(self._runs.journal, self._id))

    def _named(self, run: Run) -> str:
        return f"run {called(run.id)} ({self._asked.key})"

    def _end(self, child: Folded) -> ChildEnded | None:
        """How the run ended, if it has. One that failed continues once when the flow tries the call again."""
        run = child.run
        match run.status:
            case RunStatus.COMPLETED:
                return ChildEnded(run.id, run.context.plain())
            case RunStatus.CANCELLED:
                why = f": {run.detail}" if run.detail else ""
                return ChildEnded(run.id, failure=f"{self._named(run)} was cancelled{why}")
            case RunStatus.FAILED if not (self._may_retry and is_recoverable(run.status, run.reason)):
                why = run.detail or run.reason
                return ChildEnded(run.id, failure=f"{self._named(run)} failed: {why}")
            case _:
                return None

    def _may_execute(self, child: Folded) -> bool:
        """Whether the run can continue here, now."""
        run = child.run
        if run.is_dismissed:
            return False
        if run.status is RunStatus.INTERRUPTED and is_at_limit(run.reason):
            return self._may_try or (run.wake_at_us is not None and child.is_due)
        return self._execution.may_start(child)

    def _waits(self, run: Run) -> _Waits:
        """What the branch waits for, in words that stay true for a while."""
        name = f"for the {self._named(run)}"
        match run.status:
            case RunStatus.WAITING if any(gate.decided is None for gate in run.gates.values()):
                return _Waits(f"{name}, which waits for an answer", run.wake_at_us)
            case RunStatus.WAITING:
                return _Waits(f"{name}, which waits {run.detail}".rstrip(), run.wake_at_us)
            case RunStatus.RUNNING:
                return _Waits(f"{name}, which another process executes")
            case RunStatus.QUEUED:
                return _Waits(f"{name}, which is queued", run.wake_at_us)
            case _ if run.wake_at_us is not None:
                return _Waits(f"{name}, which stopped ({run.reason})", run.wake_at_us)
        why = f"{run.reason}: {run.detail}" if run.detail else run.reason
        return _Waits(f"the {self._named(run)} is {run.status.value} ({why})", is_stopped=True)

    # -- executing and waiting -----------------------------------------------------------------------

    async def _execute(self, child: Folded) -> None:
        """Execute the run here until it stops. It is asked to when its flow ends or is to be held."""
        key = None
        if child.run.status is RunStatus.FAILED:
            self._may_retry = False
            key = f"event {child.run.head} again for {self._asked.key}"
        elif is_at_limit(child.run.reason):
            self._may_try = False
        is_refused = False
        with self._asked.hooks.under_way():
            await self._holding.boundary()
            with self._under_way.one(self._asked.key, None):
                self._execution.start(child, key=key)
                while True:
                    self._news.clear()
                    is_refused = not self._execution.has_stopped()
                    if not self._execution.is_under_way:
                        break
                    if self._is_leaving:
                        self._execution.stop()
                        await self._execution.wait()  # whoever is asked need not answer any more
                        return
                    await self._clock.wait_s(LOOK_S, self._news)
        if is_refused:  # another process was first; the next look shows which
            await self._clock.wait_s(LOOK_S, self._holding.over)

    @property
    def _is_leaving(self) -> bool:
        """Whether the flow ends, or is to give its process up."""
        return self._step.stopping.is_set() or self._asked.hooks.is_ending or self._holding.is_wanted

    async def _wait(self, child: Folded) -> None:
        """Wait until the run stands otherwise, or can be executed here."""
        waits, status = self._waits(child.run), child.run.status
        async with self._asked.hooks.parked(
            child.run.id, waits.says, waits.until_us, is_stopped=waits.is_stopped
        ):
            while True:
                await self._recorder.rest(waits.until_us, looks=True)
                child = await self._look()
                is_same = child.run.status is status and self._end(child) is None
                if not is_same or self._may_execute(child):
                    return
