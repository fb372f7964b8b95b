"""Decisions about runs, by an engine that executes nothing for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from onward.clock import Clock
from onward.engine.control.requests import Resume
from onward.engine.engine import Engine
from onward.model.answer import Answer
from onward.model.ids import display_id
from onward.model.run import Run
from onward.operations.local.look import run_state
from onward.operations.local.preview import preview
from onward.operations.local.terms import terms_of
from onward.operations.replies.decisions import Resumed, ResumePreview
from onward.operations.replies.runs import RunState
from onward.operations.replies.workers import Recovered, RunRecovered
from onward.operations.requests.decisions import (
    AnswerGate,
    CancelRun,
    DismissRun,
    PauseRun,
    PreviewResume,
    RecoverRuns,
    ResumeRun,
    SteerRun,
)
from onward.operations.requests.limits import LimitRaise
from onward.read.lookup import find_run


class LocalDecide(msgspec.Struct, frozen=True):
    """Writes decisions through one engine; a worker executes what follows."""

    engine: Engine
    clock: Clock

    async def preview_resume(self, request: PreviewResume) -> ResumePreview:
        """What a resume would skip and do first; refuses what a resume would refuse."""
        how = resume_of(request)
        return await preview(self.engine, await self._run_id(request.run), how, now_us=self.clock.now_us())

    async def resume_run(self, request: ResumeRun) -> Resumed:
        """Queue a stopped run, under all checks of a resume; or cancel it."""
        notices: list[str] = []
        how = replace(resume_of(request), by=request.by, run=False, terms=terms_of(request))
        folded = await self.engine.resume(await self._run_id(request.run), how, tell=notices.append)
        return {
            **await run_state(self.engine.store, folded, self.clock.now_us()),
            "notice": "; ".join(notices),
        }

    async def answer_gate(self, request: AnswerGate) -> RunState:
        """Decide an open gate and queue the run that waited for it."""
        folded = await self.engine.answer(
            await self._run_id(request.run),
            answer_of(request),
            by=request.by,
            gate=request.gate,
            run=False,
            terms=terms_of(request),
        )
        return await run_state(self.engine.store, folded, self.clock.now_us())

    async def pause_run(self, request: PauseRun) -> RunState:
        """Ask a run to stop; it stops at once if no live process holds it."""
        run_id = await self._run_id(request.run)
        folded = await self.engine.pause(run_id, after=request.after, by=request.by, terms=terms_of(request))
        return await run_state(self.engine.store, folded, self.clock.now_us())

    async def cancel_run(self, request: CancelRun) -> RunState:
        """Cancel a run for good, and with it the runs that it manages."""
        run_id = await self._run_id(request.run)
        folded = await self.engine.cancel(
            run_id, by=request.by, reason=request.reason, terms=terms_of(request)
        )
        return await run_state(self.engine.store, folded, self.clock.now_us())

    async def dismiss_run(self, request: DismissRun) -> RunState:
        """Stop suggesting a stopped run, and stop resuming it automatically."""
        run_id = await self._run_id(request.run)
        folded = await self.engine.dismiss(run_id, by=request.by, terms=terms_of(request))
        return await run_state(self.engine.store, folded, self.clock.now_us())

    async def steer_run(self, request: SteerRun) -> RunState:
        """Give the run's agents an instruction; the next agent step takes it."""
        run_id = await self._run_id(request.run)
        folded = await self.engine.steer(run_id, request.text, by=request.by, terms=terms_of(request))
        return await run_state(self.engine.store, folded, self.clock.now_us())

    async def recover_runs(self, request: RecoverRuns) -> Recovered:
        """Take runs from processes that died; a run that cannot be handled does not hide the others."""
        swept = await self.engine.recover()
        return {
            "interrupted": [_recovered(run) for run in swept.stopped],
            "requeued": [_recovered(run) for run in swept.requeued],
            "waiting": [run.id for run in swept.asking],
            "broken": [{"run": run_id, "error": why} for run_id, why in swept.broken],
        }

    async def _run_id(self, wanted: str) -> str:
        return (await find_run(self.engine.store.runs, wanted)).row.id


def _recovered(run: Run) -> RunRecovered:
    return {
        "id": run.id,
        "display_id": display_id(run.id),
        "status": run.status.value,
        "detail": run.detail,
    }


def answer_of(request: AnswerGate) -> Answer:
    """What is said to the gate."""
    return Answer(request.choice, request.text, request.verdict)


def resume_of(request: PreviewResume) -> Resume:
    """How the engine is asked to resume a run and execute it."""
    return Resume(
        from_node=request.from_node,
        action=request.action,
        step=request.step,
        accept_changes=request.accept_changes,
        original=request.original,
        take_over=request.take_over,
        restore_workspace=request.restore_workspace,
        workdir=request.workdir,
        answers=request.answers,
        repeats=request.repeats,
        raises=_raises(request.raises) if isinstance(request, ResumeRun) else (),
    )


def _raises(wanted: Sequence[LimitRaise]) -> tuple[tuple[str, str, int], ...]:
    return tuple((f"{one.kind}/{one.id}".rstrip("/"), one.measure, one.value) for one in wanted)
