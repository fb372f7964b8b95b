"""Runs that this process executes until they stop, for the same requests that leave them to a worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from onward.chats.dispatch import Dispatcher
from onward.clock import Clock
from onward.engine.control.requests import Interviewer
from onward.engine.engine import Engine
from onward.engine.log import Folded
from onward.engine.stop import StopSwitch
from onward.machine.decide.calls import is_in_doubt
from onward.machine.decide.requests import open_gate
from onward.machine.definition import Definition
from onward.model.events import StepFinished
from onward.model.ids import display_id
from onward.model.settings import DEFAULT_CHATS, ChatSettings
from onward.operations.local.look import run_state, wait_stopped
from onward.operations.local.operations import answer_of, is_asking, resume_of
from onward.operations.local.submit import prepared, start_of, terms_of
from onward.operations.requests import AnswerGate, GetRun, ResumeRun, SubmitRun
from onward.pipeline.build import Pipeline
from onward.read.lookup import find_run, last_checkpoint
from onward.read.view import instant
from onward.store.codec import unseal
from onward.store.owner import owner_label

if TYPE_CHECKING:
    from onward.operations.here.replies import LastCheckpoint, ResumeOutlook
    from onward.replies.runs import RunState


class Execution(msgspec.Struct, frozen=True):
    """Executes runs until they stop, or until `stop` is requested.

    `interviewer` answers gates as they open; None leaves them open.
    """

    engine: Engine
    clock: Clock
    stop: StopSwitch
    interviewer: Interviewer | None
    chats: ChatSettings = DEFAULT_CHATS

    async def prepare(self, request: SubmitRun) -> Pipeline:
        """The pipeline of a run that is to be started, checked."""
        return await prepared(self.engine.registry, request, self.engine.variables)

    def handlers(self, pipeline: Pipeline) -> tuple[str, ...]:
        """The handlers that the nodes of a pipeline need."""
        return Definition(pipeline.graph).handlers

    async def start_run(self, request: SubmitRun, pipeline: Pipeline) -> RunState:
        """Create a run of a prepared pipeline, and execute it."""
        start = msgspec.structs.replace(start_of(request), interviewer=self.interviewer)
        return await self._attended(await self.engine.start(pipeline, start, self.stop))

    async def look_ahead(self, request: ResumeRun) -> ResumeOutlook:
        """What a resume would begin with. This makes none of the checks of a resume."""
        folded = await self._load(request.run)
        run, holder = folded.run, folded.holder
        is_held = holder is not None and holder.is_alive
        return {
            "run": run.id,
            "display_id": display_id(run.id),
            "pipeline": run.pipeline,
            "is_asking": is_asking(run, resume_of(request), self.clock.now_us()),
            "holder": owner_label(holder.owner) if holder is not None and is_held else None,
            "checkpoint": await self._last_checkpoint(folded),
            "workdir": run.workdir,
            "in_doubt": [opened.step for opened in run.open_steps.values() if is_in_doubt(opened)],
        }

    async def resume_run(
        self,
        request: ResumeRun,
        *,
        wait: bool = False,
        tell: Callable[[str], None] = lambda notice: None,
    ) -> RunState:
        """Continue a stopped run. `wait`: until the process that holds it releases it."""
        how = replace(
            resume_of(request),
            by=request.by,
            wait=wait,
            terms=terms_of(request),
            interviewer=self.interviewer,
        )
        run_id = await self._run_id(request.run)
        return await self._attended(await self.engine.resume(run_id, how, self.stop, tell=tell))

    async def ask_run(
        self, request: ResumeRun, tell: Callable[[str], None] = lambda notice: None
    ) -> RunState:
        """Resume a run that only waits for answers: compare its pipeline's file, then ask its questions."""
        folded = await self._load(request.run)
        _, notice = await self.engine.sources.to_continue(
            folded.run, accept_changes=False, original=request.original
        )
        if notice:
            tell(notice)
        return await self._attended(folded)

    async def attend_run(self, request: GetRun) -> RunState:
        """Answer the questions of a run that waits, and continue it as far as they are answered."""
        return await self._attended(await self._load(request.run))

    async def wait_run(self, request: GetRun) -> RunState:
        """A run that another process executes, when it has stopped."""
        return await self._attended(await wait_stopped(self.engine, self.clock, request.run))

    async def ask(self, request: AnswerGate) -> AnswerGate | None:
        """The request with what the interviewer answers; None leaves the gate open."""
        folded = await self._load(request.run)
        run = folded.run
        gate = open_gate(run, request.gate)
        if self.interviewer is None:
            return None
        said = await self.engine.ask(folded, gate, self.interviewer)
        if said.skipped:
            return None
        return msgspec.structs.replace(
            request,
            run=run.id,
            by=self.interviewer.name,
            gate=gate.gate,
            choice=said.choice,
            text=said.text,
            verdict=said.verdict,
        )

    async def answer_gate(self, request: AnswerGate) -> RunState:
        """Decide an open gate, and continue the run that waited for it."""
        folded = await self.engine.answer(
            await self._run_id(request.run),
            answer_of(request),
            by=request.by,
            gate=request.gate,
            shown=request.content_hash,
            terms=terms_of(request),
            stop=self.stop,
            interviewer=self.interviewer,
        )
        return await self._attended(folded)

    async def _attended(self, folded: Folded) -> RunState:
        if self.interviewer is not None:
            folded = await self.engine.attend(folded, self.interviewer, self.stop)
        await Dispatcher(self.engine, self.clock, self.chats).tell_stop(folded.run)
        return await run_state(self.engine.store, folded, self.clock.now_us())

    async def _last_checkpoint(self, folded: Folded) -> LastCheckpoint | None:
        record = await last_checkpoint(self.engine.store.log, folded.run.id, folded.run.head)
        if record is None:
            return None
        event = unseal(record)
        step = event.step if isinstance(event, StepFinished) else None
        return {"seq": record.seq, "at": instant(record.at_us), "step": step}

    async def _load(self, wanted: str) -> Folded:
        return await self.engine.journal.load(await self._run_id(wanted))

    async def _run_id(self, wanted: str) -> str:
        return (await find_run(self.engine.store.runs, wanted)).row.id
