"""What a resume would do, in words: what is skipped, and what comes first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from onward.engine.control.preview import Preview
from onward.engine.control.requests import Resume
from onward.engine.engine import Engine
from onward.engine.step.leftovers import view_left
from onward.machine.decide.claim import woken
from onward.machine.plan.action import Execute, Sleep, Wait
from onward.model.events.event import Event
from onward.model.events.gates import GateDecided, GateOpened
from onward.model.events.runs import PipelineChanged, RunCancelled, RunCompleted, RunFailed, WorkdirChanged
from onward.model.events.steps import StepFinished, StepRouted, StepStarted
from onward.model.run import Run, RunStatus
from onward.model.values.instant import span
from onward.operations.replies.decisions import PlannedAct, ResumePreview
from onward.operations.replies.left import LeftShown
from onward.read.lookup import completed_of
from onward.read.view import dead_end


async def preview(engine: Engine, run_id: str, how: Resume, *, now_us: int) -> ResumePreview:
    """What would come of a resume; the checks are the same, and nothing is changed."""
    known = (await engine.journal.load(run_id)).run
    found: ResumePreview = {"run": run_id, "skip": [], "plan": [], "left": [], "notice": ""}
    waits = known.status is RunStatus.WAITING and not woken(known, now_us)
    asks = [_act("ask", gate.gate, gate.text) for gate in known.gates.values() if gate.decided is None]
    if is_asking(known, how, now_us):
        found["plan"] = asks
        _, found["notice"] = await engine.sources.to_continue(
            known, accept_changes=False, original=how.original
        )
    else:
        seen = await engine.preview_resume(run_id, how)
        found["plan"], found["notice"] = list(_plan(seen, now_us)), seen.notice
        if waits and how.action is None:  # it is only prepared
            found["plan"] += asks
        found["left"] = [cast("LeftShown", view_left(left)) for left in seen.left]
    found["skip"] = await completed_of(engine.store.log, run_id)
    return found


def is_asking(run: Run, how: Resume, now_us: int) -> bool:
    """Whether a resume of this run comes down to asking its questions: it has no other way to continue."""
    is_plain = not (how.asks or how.prepares or how.answers or how.repeats or how.step)
    return run.status is RunStatus.WAITING and is_plain and not woken(run, now_us)


def _act(does: str, what: str, why: str) -> PlannedAct:
    return {"does": does, "what": what, "why": why}


def _plan(seen: Preview, now_us: int) -> Iterator[PlannedAct]:
    """What would happen first: up to the next effect, which decides the rest."""
    for event in seen.events:
        yield from _planned(event)
    match seen.action:
        case Execute(started):
            yield _attempt(started)
        case Wait(starts):
            yield from map(_attempt, starts)
        case Sleep(until_us, step):
            due = span((until_us - now_us) / 1_000_000)
            yield _act("wait", step, f"its next attempt is due in {due}")


def _attempt(started: StepStarted) -> PlannedAct:
    return _act("run", started.step, f"attempt {started.attempt}")


def _planned(event: Event) -> Iterator[PlannedAct]:
    match event:
        case PipelineChanged():
            yield _act("use", event.pipeline_hash[:12], f"instead of {event.before[:12]}")
        case WorkdirChanged():
            yield _act("use", event.workdir, "as the directory of its commands")
        case StepFinished():
            yield _act("pass", event.step, event.outcome.status.value)
        case StepRouted():
            yield _act("take", event.step, f"the edge to {event.next.to}")
        case GateOpened():
            yield _act("ask", event.gate, event.text)
        case GateDecided():
            what = "rejected" if event.rejected else event.choice.label
            yield _act("take", event.gate, f"{what}: no answer in time")
        case RunCompleted():
            yield _act("end", "completed", dead_end(event.ended_at) if event.ended_at else "")
        case RunFailed():
            yield _act("end", "failed", event.detail)
        case RunCancelled():
            yield _act("end", "cancelled", "")
