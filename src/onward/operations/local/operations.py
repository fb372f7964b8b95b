"""Everything that can be asked, answered by the engine of this process.

`LocalDecide` writes decisions about runs, and `LocalStart` creates runs; the engine executes nothing for
them. A preview of a resume says in words what is skipped and what comes first. `LocalOperations` has all
groups of requests; it imports every one of them, so quick commands import the single groups instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from onward.clock import Clock, SystemIds, new_secret
from onward.engine.control.requests import ForkRequest, Preview, Resume
from onward.engine.engine import Engine
from onward.engine.leftovers import view_left
from onward.machine.decide.requests import looks_at_runs, woken
from onward.machine.plan.action import Execute, Sleep, Wait
from onward.model.events import (
    Event,
    PipelineChanged,
    RunCancelled,
    RunCompleted,
    RunFailed,
    StepFinished,
    StepRouted,
    StepStarted,
    WorkdirChanged,
)
from onward.model.gate import Answer, GateDecided, GateOpened
from onward.model.ids import display_id
from onward.model.run import Run, RunStatus
from onward.model.settings import DEFAULT_CHATS, ChatSettings
from onward.model.values import span
from onward.operations.local.access import Access, LocalAccess
from onward.operations.local.chats import LocalChats, LocalMessages
from onward.operations.local.database import LocalLimits, LocalPipelines
from onward.operations.local.effects import LocalEffects
from onward.operations.local.lists import LocalLists, LocalNotifications
from onward.operations.local.look import LocalLook, run_state
from onward.operations.local.submit import LocalSubmit, raises_of, run_id_of, terms_of
from onward.operations.requests import (
    AnswerGate,
    CancelRun,
    DismissRun,
    ForkRun,
    PauseRun,
    PreviewResume,
    RecoverRuns,
    ResumeRun,
    SteerRun,
    SubmitRun,
    SubmitRuns,
)
from onward.read.lookup import completed_of, find_run
from onward.read.view import dead_end

if TYPE_CHECKING:
    from onward.replies.database import Recovered, RunRecovered
    from onward.replies.runs import (
        PlannedAct,
        ResumePreview,
        RunState,
        RunWithNotice,
        Submitted,
        SubmittedRuns,
    )


async def preview(engine: Engine, run_id: str, how: Resume, *, now_us: int) -> ResumePreview:
    """What would come of a resume; the checks are the same, and nothing is changed."""
    known = (await engine.journal.load(run_id)).run
    found: ResumePreview = {"run": run_id, "skip": [], "plan": [], "left": [], "notice": ""}
    waits = known.status is RunStatus.WAITING and not _can_look(known, now_us)
    asks = [
        _planned_act("ask", gate.gate, gate.text) for gate in known.gates.values() if gate.decided is None
    ]
    if is_asking(known, how, now_us):
        found["plan"] = asks
        _, found["notice"] = await engine.sources.to_continue(
            known, accept_changes=False, original=how.original
        )
    else:
        seen = await engine.preview_resume(run_id, how)
        found["plan"], found["notice"] = list(_planned_acts(seen, now_us)), seen.notice
        if waits and how.action is None:  # it is only prepared
            found["plan"] += asks
        found["left"] = [view_left(left) for left in seen.left]
    found["skip"] = await completed_of(engine.store.log, run_id)
    return found


def is_asking(run: Run, how: Resume, now_us: int) -> bool:
    """Whether a resume of this run comes down to asking its questions: it has no other way to continue."""
    is_plain = not (how.asks or how.prepares or how.answers or how.repeats or how.fresh or how.step)
    return run.status is RunStatus.WAITING and is_plain and not _can_look(run, now_us)


def _can_look(run: Run, now_us: int) -> bool:
    return bool(woken(run, now_us) or looks_at_runs(run, now_us))


def _planned_act(does: str, what: str, why: str) -> PlannedAct:
    return {"does": does, "what": what, "why": why}


def _planned_acts(seen: Preview, now_us: int) -> Iterator[PlannedAct]:
    """What would happen first: up to the next effect, which decides the rest."""
    for event in seen.events:
        yield from _acts_of(event)
    match seen.action:
        case Execute(started):
            yield _attempt(started)
        case Wait(starts):
            yield from map(_attempt, starts)
        case Sleep(until_us, step):
            due = span((until_us - now_us) / 1_000_000)
            yield _planned_act("wait", step, f"its next attempt is due in {due}")


def _attempt(started: StepStarted) -> PlannedAct:
    return _planned_act("run", started.step, f"attempt {started.attempt}")


def _acts_of(event: Event) -> Iterator[PlannedAct]:
    match event:
        case PipelineChanged():
            yield _planned_act("use", event.pipeline_hash[:12], f"instead of {event.before[:12]}")
        case WorkdirChanged():
            yield _planned_act("use", event.workdir, "as the directory of its commands")
        case StepFinished():
            yield _planned_act("pass", event.step, event.outcome.status.value)
        case StepRouted():
            yield _planned_act("take", event.step, f"the edge to {event.next.to}")
        case GateOpened():
            yield _planned_act("ask", event.gate, event.text)
        case GateDecided():
            what = "rejected" if event.rejected else event.choice.label
            yield _planned_act("take", event.gate, f"{what}: no answer in time")
        case RunCompleted():
            yield _planned_act("end", "completed", dead_end(event.ended_at) if event.ended_at else "")
        case RunFailed():
            yield _planned_act("end", "failed", event.detail)
        case RunCancelled():
            yield _planned_act("end", "cancelled", "")


class LocalDecide(msgspec.Struct, frozen=True):
    """Writes decisions through one engine; a worker executes what follows."""

    engine: Engine
    clock: Clock

    async def preview_resume(self, request: PreviewResume) -> ResumePreview:
        """What a resume would skip and do first; refuses what a resume would refuse."""
        how = resume_of(request)
        return await preview(self.engine, await self._run_id(request.run), how, now_us=self.clock.now_us())

    async def resume_run(self, request: ResumeRun) -> RunWithNotice:
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
            shown=request.content_hash,
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
        fresh=request.fresh,
        raises=raises_of(request.raises) if isinstance(request, ResumeRun) else (),
        only_stopped=isinstance(request, ResumeRun) and request.only_stopped,
        may_answer=not isinstance(request, ResumeRun) or request.may_answer,
    )


class LocalStart(msgspec.Struct, frozen=True):
    """Makes runs through one engine; a worker executes them."""

    engine: Engine

    async def submit_run(self, request: SubmitRun) -> Submitted:
        """Create a run and leave it queued for whichever worker claims it."""
        return await self._submit.submit_run(request)

    async def submit_runs(self, request: SubmitRuns) -> SubmittedRuns:
        """Create many runs and leave them queued."""
        return await self._submit.submit_runs(request)

    @property
    def _submit(self) -> LocalSubmit:
        return LocalSubmit(self.engine.registry, self.engine.submitting)

    async def fork_run(self, request: ForkRun) -> RunWithNotice:
        """A new run that shares another's log up to a checkpoint. The other run is not touched."""
        parent = (await find_run(self.engine.store.runs, request.run)).row.id
        notices: list[str] = []
        fork = ForkRequest(
            request.checkpoint,
            from_step=request.from_step,
            changes=request.changes,
            by=request.by,
            new_id=run_id_of(request),
            accept_changes=request.accept_changes,
            original=request.original,
            may_answer=request.may_answer,
            terms=terms_of(request),
        )
        folded = await self.engine.fork(parent, fork, tell=notices.append)
        return {
            **await run_state(self.engine.store, folded, folded.run.updated_at_us),
            "notice": "; ".join(notices),
        }


class LocalOperations:
    """All groups of requests, at one engine and its store."""

    def __init__(self, engine: Engine, clock: Clock, chats: ChatSettings | None = None) -> None:
        self.lists = LocalLists(engine.store)
        self.look = LocalLook(engine.store, clock, lambda: engine.leftovers, lambda: engine.sources)
        self.decide = LocalDecide(engine, clock)
        self.effects = LocalEffects(engine.effects)
        self.notifications = LocalNotifications(engine.store)
        self.limits = LocalLimits(engine.store, clock)
        self.messages = LocalMessages(engine.store, clock)
        self.chats = LocalChats(engine, clock, chats or DEFAULT_CHATS)
        self.pipelines = LocalPipelines(engine.registry, clock)
        self.start = LocalStart(engine)
        self.access = LocalAccess(Access(engine.store, clock, SystemIds(), new_secret))
